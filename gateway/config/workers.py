"""Where many workers keep everything, and what one of them does."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from gateway.config.addresses import refuse_unescaped_password
from gateway.config.values import Count, Seconds, Section, Text
from gateway.runtime.extras import how_to_install

Role = Literal["channels", "turns", "web"]
ROLES: tuple[Role, ...] = ("channels", "turns", "web")
OFF = "off"
"""In place of `listen_url`: no news are heard."""
LEASE_S = 15.0
"""Of a claim on a message, where other workers can take it over."""
_EXAMPLE = "postgresql://ethos:…@db.example.org/ethos"


def _postgres_url(value: SecretStr) -> SecretStr:
    """An address that libpq takes; several hosts are parted by commas."""
    text = value.get_secret_value().strip()
    refuse_unescaped_password(text)
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("postgresql", "postgres") or not rest:
        raise ValueError(f"not an address with postgresql:// or postgres://; expected such as {_EXAMPLE}")
    try:
        from psycopg import ProgrammingError  # noqa: PLC0415 (an extra)
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415
    except ImportError:
        raise ValueError(f"PostgreSQL needs a library; run {how_to_install('postgres', 'psycopg')}") from None
    try:
        conninfo_to_dict(text)
    except ProgrammingError:  # its text quotes the address
        raise ValueError(f"not an address that PostgreSQL's library takes; expected such as {_EXAMPLE}") from None
    return SecretStr(text)


class StoreConfig(Section):
    """The database; without a `url` it is a file in the data directory, for one worker.

    Attributes:
        url: of a PostgreSQL that many workers share.
        listen_url: of the server itself, where `url` leads through a pooler; `off`: nothing is heard from it.
        connections: of one worker, besides two for news.
        prepared_statements: False behind a pooler that does not follow them.
        statement_timeout_s: for each statement.
        upgrade: `by_hand`: tables are changed by `ethos store upgrade` only.
    """

    url: SecretStr | None = None
    listen_url: SecretStr | None = None
    connections: Annotated[Count, Field(ge=2, le=200)] = 8
    prepared_statements: bool = True
    statement_timeout_s: Seconds = 30
    upgrade: Literal["at_start", "by_hand"] = "at_start"

    @field_validator("url", "listen_url")
    @classmethod
    def _is_address(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is None or (info.field_name == "listen_url" and value.get_secret_value() == OFF):
            return value
        return _postgres_url(value)

    @property
    def listens_at(self) -> str | None:
        """Where news are heard; None: nowhere."""
        chosen = self.listen_url or self.url
        return None if chosen is None or chosen.get_secret_value() == OFF else chosen.get_secret_value()


class WorkerConfig(Section):
    """What this worker is called, and does.

    Attributes:
        name: for people; None: as its machine is called.
        roles: `channels` holds channels, `turns` answers, `web` serves the API, the pages and what comes by HTTP.
        channels: that it may hold; `all`, or their names.
    """

    name: Text | None = None
    roles: tuple[Role, ...] = ROLES
    channels: Literal["all"] | tuple[Text, ...] = "all"

    @field_validator("roles")
    @classmethod
    def _has_roles(cls, roles: tuple[Role, ...]) -> tuple[Role, ...]:
        if not roles:
            raise ValueError(f"no role at all; expected some of {', '.join(ROLES)}")
        return tuple(role for role in ROLES if role in roles)
