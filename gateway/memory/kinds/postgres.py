"""`postgres`: documents in any PostgreSQL, 13 or newer, also beside a gateway whose own database is SQLite."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from gateway.config.values import Count, Seconds, Section
from gateway.memory.addresses import checked, shown
from gateway.memory.stored.memory import StoredMemory
from gateway.memory.stored.postgres import PostgresDocuments
from gateway.protocols import MemoryServices

_EXAMPLE = "postgresql://ethos:…@db.example.org/ethos"


class Config(Section):
    """Where the database is.

    Attributes:
        url: as libpq takes it, with the password, if there is one.
        connections: at once, at most.
        timeout_s: for a connection and for one question.
    """

    url: SecretStr
    connections: Annotated[Count, Field(ge=1, le=100)] = 4
    timeout_s: Annotated[Seconds, Field(le=60)] = 2

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: SecretStr) -> SecretStr:
        return checked(url, ("postgresql", "postgres"), _EXAMPLE)


def provider(config: Config, services: MemoryServices) -> StoredMemory:
    """The memory; the server is asked when it is opened."""
    url = config.url.get_secret_value()
    documents = PostgresDocuments(url, shown_url=shown(url), connections=config.connections, timeout_s=config.timeout_s)
    return StoredMemory(documents, max_bytes=services.max_document_bytes)
