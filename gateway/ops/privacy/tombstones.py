"""Who was erased, without a word about them: so that a crash, or an old backup, cannot bring them back.

`erasures.json` in the data directory has an entry for each erasure: its time, and digests of the person's user ids and
accounts, with a key of the entry's own. It is written before anything is erased. A database that has gone through an
erasure says so itself (`erasures` in its schema); one that does not, as from a backup, is cleaned at the next start.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gateway.errors import FileError
from gateway.files.atomic import read_once, write_atomically
from gateway.files.locks import FileLock

TOMBSTONES_NAME = "erasures.json"
_LOCK_NAME = ".erasures.lock"
_LOCK_TIMEOUT_S = 10.0
_VERSION = 1
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


class Tombstones:
    """The file; safe for several processes."""

    def __init__(self, home: Path) -> None:
        """Name the data directory; the file need not exist."""
        self._path = home / TOMBSTONES_NAME
        self._lock_path = home / _LOCK_NAME

    def read(self) -> Sequence[Tombstone]:
        """All of them, oldest first. Blocks.

        Raises:
            FileError: the file is damaged, or cannot be read.
        """
        found = read_once(self._path)
        if found is None:
            return ()
        try:
            value = json.loads(found.data)
            if value["version"] != _VERSION:
                raise FileError(
                    f"{self._path} has version {value['version']}, this program knows {_VERSION}; update it"
                )
            return tuple(
                Tombstone(
                    id=str(entry["id"]),
                    erased_at=datetime.fromisoformat(entry["erased_at"]),
                    key=bytes.fromhex(entry["key"]).hex(),
                    digests=tuple(map(str, entry["digests"])),
                )
                for entry in value["erasures"]
            )
        except (ValueError, TypeError, KeyError) as error:
            raise FileError(
                f"{self._path} cannot be understood ({type(error).__name__}: {error}). It says who was erased, and is "
                f"in every backup: put it back from one. Without it, a restored backup brings erased people back."
            ) from error

    async def add(self, tombstones: Iterable[Tombstone]) -> None:
        """Write down erasures, durably, each once.

        Raises:
            FileError: not written; nothing may be erased then.
        """
        async with FileLock(self._lock_path, _LOCK_TIMEOUT_S):
            there = {each.id: each for each in self.read()}
            new = {each.id: each for each in tombstones if each.id not in there}
            if new:
                write_atomically(self._path, _encoded([*there.values(), *new.values()]))


def _encoded(tombstones: Iterable[Tombstone]) -> bytes:
    erasures = [
        {
            "id": each.id,
            "erased_at": each.erased_at.astimezone(UTC).isoformat(timespec="milliseconds"),
            "key": each.key,
            "digests": each.digests,
        }
        for each in sorted(tombstones, key=lambda each: each.erased_at)
    ]
    return (json.dumps({"version": _VERSION, "erasures": erasures}, indent=1) + "\n").encode()


def _digest(key: bytes, name: str) -> str:
    return hmac.digest(key, name.encode("utf-8", "surrogatepass"), hashlib.sha256).hex()
