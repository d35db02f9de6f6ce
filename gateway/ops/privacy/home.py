"""People's data in a data directory on which no gateway runs: for the operator's commands, and for restores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.config.file import CONFIG_NAME
from gateway.domain.sessions import LOCAL
from gateway.files.home import DATABASE_NAME
from gateway.files.positions.yaml import read_marked_yaml
from gateway.ops.privacy.erasing import Eraser
from gateway.ops.privacy.tombstones import Tombstones
from gateway.people.identity import IdentityMap
from gateway.store.sqlite import SqliteStore, open_store


def kinds_of_channels(home: Path) -> Mapping[str, str]:
    """The kinds of the channels by name, as the identity map has them, whatever else is wrong there.

    A third party's kind is not known without its package; then an account is recognised by its id alone.
    """
    channels: object = None
    path = home / CONFIG_NAME
    if path.exists():
        document = read_marked_yaml(path, path.name)
        channels = document.values.get("channels") if document.is_readable else None
    entries = channels.items() if isinstance(channels, dict) else ()
    kinds = {name: value.get("kind") for name, value in entries if isinstance(value, dict)}
    named = {str(name): kind for name, kind in kinds.items() if isinstance(kind, str) and "." not in kind}
    return {**named, LOCAL: LOCAL}


def eraser_of(home: Path, store: SqliteStore) -> Eraser:
    """The eraser of a directory; only while no other process uses the directory."""
    identities = IdentityMap(home / "users" / "identity-map.json")
    return Eraser(home=home, store=store, identities=identities, kinds=kinds_of_channels(home))


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[SqliteStore]:
    """The database, made where there is none."""
    store = await asyncio.to_thread(open_store, home / DATABASE_NAME)
    try:
        yield store
    finally:
        await store.close()


async def erase_due(home: Path) -> int:
    """Erase each person that has a tombstone and is still there; returns how many erasures were missing.

    Raises:
        EthosError, OSError: it could not be done now.
    """
    if not await asyncio.to_thread(Tombstones(home).read):
        return 0
    async with opened(home) as store:
        eraser = eraser_of(home, store)
        due = await eraser.due()
        for tombstone in due:
            await eraser.erase(tombstone)
        return len(due)


def clean_restored(unpacked: Path, home: Path) -> Sequence[str]:
    """Keep people erased whom a backup would bring back; see `gateway.ops.backup.restoring.Clean`. Blocks."""
    with ThreadPoolExecutor(1) as thread:
        count: int = thread.submit(asyncio.run, _clean_restored(unpacked, home)).result()
    if not count:
        return ()
    return (f"Taken out again: {count} {'person' if count == 1 else 'people'} erased since the backup was made.",)


async def _clean_restored(unpacked: Path, home: Path) -> int:
    await Tombstones(unpacked).add(await asyncio.to_thread(Tombstones(home).read))
    return await erase_due(unpacked)
