"""API keys."""

from __future__ import annotations

from datetime import datetime

from gateway.sdk.models.schema import Wire


class Key(Wire):
    """A key, without its text.

    Attributes:
        user: the only person whose data it sees; None: everybody's.
        last_used_at: to the minute.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    user: str | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewKey(Key):
    """A key that was just made; `key` is its text, and is never shown again."""

    key: str
