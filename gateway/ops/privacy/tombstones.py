"""The tombstones of one machine: `erasures.json` in the data directory; see `gateway.domain.tombstones`.

A database that has gone through an erasure says so itself (`erasures` in its schema); one that does not, as from a
backup, is cleaned at the next start.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gateway.domain.tombstones import Tombstone
from gateway.errors import FileError
from gateway.files.atomic import read_once, write_atomically
from gateway.files.locks import FileLock

TOMBSTONES_NAME = "erasures.json"
_LOCK_NAME = ".erasures.lock"
_LOCK_TIMEOUT_S = 10.0
_VERSION = 1


class TombstoneFile:
    """The file; safe for several processes."""

    def __init__(self, home: Path) -> None:
        """Name the data directory; the file need not exist."""
        self._path = home / TOMBSTONES_NAME
        self._lock_path = home / _LOCK_NAME

    async def all(self) -> Sequence[Tombstone]:
        return await asyncio.to_thread(self._read)

    async def add(self, tombstones: Iterable[Tombstone]) -> None:
        async with FileLock(self._lock_path, _LOCK_TIMEOUT_S):
            there = {each.id: each for each in self._read()}
            new = {each.id: each for each in tombstones if each.id not in there}
            if new:
                write_atomically(self._path, _encoded([*there.values(), *new.values()]))

    def _read(self) -> Sequence[Tombstone]:
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
