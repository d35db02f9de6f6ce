"""`postgres`: documents in any PostgreSQL, 13 or newer, also beside a gateway whose own database is SQLite."""

from __future__ import annotations

from typing import Annotated

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, field_validator

from gateway.config.addresses import refuse_other_schemes, refuse_unescaped_password, shown
from gateway.config.values import CaFile, Count, Seconds, Section
from gateway.memory.stored.memory import TIMES_LONGER, StoredMemory
from gateway.memory.stored.postgres import PostgresDocuments
from gateway.protocols import MemoryServices

_EXAMPLE = "postgresql://ethos:…@db.example.org/ethos"


class Config(Section):
    """Where the database is.

    Attributes:
        url: as libpq takes it, with the password, if there is one.
        ca_file: of the authority that signed the server's certificate; then it and the server's name are checked.
        connections: at once, at most.
        timeout_s: for a connection and for one question.
    """

    url: SecretStr
    ca_file: CaFile | None = None
    connections: Annotated[Count, Field(ge=1, le=100)] = 4
    timeout_s: Annotated[Seconds, Field(le=60)] = 2

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: SecretStr) -> SecretStr:
        text = url.get_secret_value().strip()
        refuse_unescaped_password(text)
        refuse_other_schemes(text, ("postgresql", "postgres"), _EXAMPLE)
        try:
            conninfo_to_dict(text)
        except ProgrammingError:  # its text quotes the address
            raise ValueError(f"not an address that PostgreSQL's library takes; expected such as {_EXAMPLE}") from None
        return SecretStr(text)


def provider(config: Config, services: MemoryServices) -> StoredMemory:
    """The memory; the server is asked when it is opened."""
    url = config.url.get_secret_value()
    documents = PostgresDocuments(
        url,
        shown_url=shown(url),
        connections=config.connections,
        timeout_s=config.timeout_s,
        ca_file=config.ca_file,
        max_bytes=TIMES_LONGER * services.max_document_bytes,
    )
    return StoredMemory(documents, max_bytes=services.max_document_bytes)
