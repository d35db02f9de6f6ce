"""Who was erased, without a word about them: so that a crash, or an old backup, cannot bring them back.

There is one tombstone for each erasure: its time, and digests of the person's user ids and accounts, with a key of the
tombstone's own. It is written before anything is erased.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

_KEY_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """One erasure.

    Attributes:
        key: of the digests; in hex, as they are.
        digests: of user ids and of accounts, `kind:id`, sorted.
    """

    id: str
    erased_at: datetime
    key: str
    digests: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Tombstone:
        """A new one, for a person with these user ids and accounts."""
        key = secrets.token_bytes(_KEY_BYTES)
        return cls(
            id=f"er_{secrets.token_hex(8)}",
            erased_at=datetime.now(UTC),
            key=key.hex(),
            digests=tuple(sorted(_digest(key, name) for name in names)),
        )

    def names(self, candidates: Iterable[str]) -> frozenset[str]:
        """Those of the candidates that are the person's."""
        key, digests = bytes.fromhex(self.key), set(self.digests)
        return frozenset(name for name in candidates if _digest(key, name) in digests)


class Tombstones(Protocol):
    """Where they are kept: a file of the data directory, or a table of a database that many workers share."""

    async def all(self) -> Sequence[Tombstone]:
        """All of them, oldest first.

        Raises:
            FileError: the file is damaged, or cannot be read.
            StoreUnavailable: the same of the database.
        """

    async def add(self, tombstones: Iterable[Tombstone]) -> None:
        """Write down erasures, durably, each once.

        Raises:
            FileError, StoreUnavailable: not written; nothing may be erased then.
        """


def _digest(key: bytes, name: str) -> str:
    return hmac.digest(key, name.encode("utf-8", "surrogatepass"), hashlib.sha256).hex()
