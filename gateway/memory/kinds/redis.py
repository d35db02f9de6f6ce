"""`redis`: documents in Redis or Valkey, 6.2 or newer."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, SecretStr, StringConstraints, field_validator
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.config.values import Seconds, Section
from gateway.memory.addresses import checked, shown
from gateway.memory.stored.memory import StoredMemory
from gateway.memory.stored.redis import RedisDocuments
from gateway.protocols import MemoryServices

_EXAMPLE = "redis://127.0.0.1:6379/0"


class Config(Section):
    """Where the server is.

    Attributes:
        url: with the password, if there is one; `unix://` for a socket.
        prefix: how all keys begin; two gateways with one prefix share their memory.
        timeout_s: for one question to the server.
    """

    url: SecretStr
    prefix: Annotated[str, StringConstraints(pattern=re.compile(r"[A-Za-z0-9._:-]{1,64}\Z"))] = "ethos"
    timeout_s: Annotated[Seconds, Field(le=60)] = 2

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: SecretStr) -> SecretStr:
        return checked(url, ("redis", "rediss", "unix"), _EXAMPLE)


def provider(config: Config, services: MemoryServices) -> StoredMemory:
    """The memory; the server is asked when it is opened."""
    url = config.url.get_secret_value()
    client: Redis = Redis.from_url(
        url,
        socket_timeout=config.timeout_s,
        socket_connect_timeout=config.timeout_s,
        retry=Retry(NoBackoff(), 1),
    )
    documents = RedisDocuments(client, prefix=config.prefix, shown_url=shown(url))
    return StoredMemory(documents, max_bytes=services.max_document_bytes)
