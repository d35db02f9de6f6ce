"""`database`: documents in the gateway's own database, as many workers on one PostgreSQL need them."""

from __future__ import annotations

from gateway.config.values import Section
from gateway.memory.kinds import OwnServices
from gateway.memory.stored.memory import StoredMemory


class Config(Section):
    """Nothing to choose: `memory.max_file_bytes` is for all kinds, and `store` says where the database is."""


def provider(config: Config, services: OwnServices) -> StoredMemory:  # noqa: ARG001 (as every kind)
    """The memory over the database that is open."""
    return StoredMemory(services.documents, max_bytes=services.max_document_bytes)
