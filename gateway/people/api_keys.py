"""Keys of the HTTP API: `ethos_<id>_<secret>`, shown once, stored as a hash.

The secret has 256 random bits, so one round of SHA-256 is enough: what it was made from cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

PREFIX = "ethos_"
SECRET_BYTES = 32
USED_EVERY = timedelta(minutes=1)
"""How exactly it is noted when a key was used last."""
_KEY = re.compile(r"ethos_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is kept.

    Attributes:
        hash: SHA-256 of the secret.
        user_id: the only person whose data it sees; None: everybody's.
    """

    id: str
    name: str
    hash: bytes
    scopes: tuple[str, ...]
    user_id: str | None
    created_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class ApiKeyStore(Protocol):
    """Where keys are kept."""

    async def add(self, key: ApiKey) -> None:
        """Keep a new key, durably."""

    async def key(self, key_id: str) -> ApiKey | None:
        """The key of this id, revoked or not; None where there is none."""

    async def keys(self) -> Sequence[ApiKey]:
        """All keys, the newest first."""

    async def note_use(self, key_id: str, at: datetime) -> None:
        """Note when it was used last; survives a killed process, perhaps not a power cut."""

    async def revoke(self, key_id: str, at: datetime) -> bool:
        """End it, durably; False where there is none, or it is ended already."""


def is_key(text: str) -> bool:
    """Whether a text has the form of a key."""
    return _KEY.fullmatch(text) is not None


class ApiKeys:
    """Makes keys, and knows them again."""

    def __init__(self, store: ApiKeyStore) -> None:
        self.store = store

    async def create(self, name: str, scopes: Sequence[str], user_id: str | None = None) -> tuple[ApiKey, str]:
        """A new key, and its text, which can never be shown again."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        key = ApiKey(
            id=secrets.token_hex(6),
            name=name,
            hash=_hash(secret),
            scopes=tuple(scopes),
            user_id=user_id,
            created_at=datetime.now(UTC),
        )
        await self.store.add(key)
        return key, f"{PREFIX}{key.id}_{secret}"

    async def known(self, text: str) -> ApiKey | None:
        """The key of a text that is in force; None: wrong, unknown or revoked, and it does not show which."""
        match = _KEY.fullmatch(text)
        key = None if match is None else await self.store.key(match[1])
        is_right = hmac.compare_digest(_hash(match[2] if match else ""), key.hash if key else b"\0" * 32)
        if key is None or not is_right or key.revoked_at is not None:
            return None
        now = datetime.now(UTC)
        if key.last_used_at is None or now - key.last_used_at >= USED_EVERY:
            await self.store.note_use(key.id, now)
            key = replace(key, last_used_at=now)
        return key


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
