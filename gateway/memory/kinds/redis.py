"""`redis`: documents in Redis or Valkey, 6.2 or newer."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, StringConstraints, field_validator, model_validator
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.config.addresses import refuse_other_schemes, refuse_unescaped_password, shown
from gateway.config.values import CaFile, Seconds, Section
from gateway.memory.stored.memory import TIMES_LONGER, StoredMemory
from gateway.memory.stored.redis import RedisDocuments
from gateway.protocols import MemoryServices

_EXAMPLE = "redis://redis.example.org:6379/0"
_TLS = "rediss://"


class Config(Section):
    """Where the server is.

    Attributes:
        url: with the password, if there is one; `rediss://` for TLS, `unix://` for a socket.
        ca_file: of the authority that signed the server's certificate, where the system does not know it.
        prefix: how all keys begin; two gateways with one prefix share their memory.
        timeout_s: for one question to the server.
    """

    url: SecretStr
    ca_file: CaFile | None = None
    prefix: Annotated[str, StringConstraints(pattern=re.compile(r"\A[A-Za-z0-9._:-]{1,64}\Z"))] = "ethos"
    timeout_s: Annotated[Seconds, Field(le=60)] = 2

    @model_validator(mode="after")
    def _ca_file_is_used(self) -> Self:
        if self.ca_file is not None and not self.url.get_secret_value().startswith(_TLS):
            raise ValueError(f"`ca_file` is for TLS; expected an `url` with {_TLS}, or no `ca_file`")
        return self

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: SecretStr) -> SecretStr:
        text = url.get_secret_value().strip()
        refuse_unescaped_password(text)
        refuse_other_schemes(text, ("redis", "rediss", "unix"), _EXAMPLE)
        try:
            ConnectionPool.from_url(text).make_connection()  # type: ignore[no-untyped-call]
            if not text.startswith("unix:"):
                int(urlsplit(text).path.strip("/") or 0)  # the library takes what is no number for 0
        except (TypeError, ValueError):  # their texts may quote the address
            raise ValueError(f"not an address that Redis's library takes; expected such as {_EXAMPLE}") from None
        return SecretStr(text)


def provider(config: Config, services: MemoryServices) -> StoredMemory:
    """The memory; the server is asked when it is opened."""
    url = config.url.get_secret_value()
    tls: dict[str, Any] = {} if config.ca_file is None else {"ssl_ca_certs": str(config.ca_file)}
    client: Redis = Redis.from_url(
        url,
        socket_timeout=config.timeout_s,
        socket_connect_timeout=config.timeout_s,
        retry=Retry(NoBackoff(), 1),
        **tls,
    )
    documents = RedisDocuments(
        client,
        prefix=config.prefix,
        shown_url=shown(url),
        max_bytes=TIMES_LONGER * services.max_document_bytes,
    )
    return StoredMemory(documents, max_bytes=services.max_document_bytes)
