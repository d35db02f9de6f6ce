"""People's data in a data directory on which no gateway runs: for the operator's commands, and for restores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.config.file import CONFIG_NAME
from gateway.config.memory_kinds import DEFAULT_KIND
from gateway.domain.sessions import LOCAL
from gateway.files.home import DATABASE_NAME
from gateway.files.positions.yaml import read_marked_yaml, value_at
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.ops.privacy.erasing import Eraser
from gateway.ops.privacy.memory import PersonalMemory
from gateway.ops.privacy.tombstones import TombstoneFile
from gateway.people.identity import IdentityMap
from gateway.store.stores import Stores, open_store


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


def kind_of_memory(home: Path) -> str:
    """What the configuration calls the memory, whatever else is wrong there."""
    path = home / CONFIG_NAME
    document = read_marked_yaml(path, path.name) if path.exists() else None
    provider = value_at(document.values, ("memory", "provider")) if document and document.is_readable else None
    kind = provider.get("kind") if isinstance(provider, dict) else provider
    return kind if isinstance(kind, str) else DEFAULT_KIND


def has_memory_files(home: Path) -> bool:
    """Whether the documents of the memory are files of the data directory, as long as the database is there, too."""
    return kind_of_memory(home) == DEFAULT_KIND


def eraser_of(home: Path, store: Stores) -> Eraser:
    """The eraser of a directory whose memory is its files; only while no other process uses the directory."""
    return Eraser(
        home=home,
        store=store,
        identities=IdentityMap(home / "users" / "identity-map.json"),
        tombstones=TombstoneFile(home),
        memory=PersonalMemory(provider=MarkdownFileMemoryProvider(home, store.journal), kind=DEFAULT_KIND),
        kinds=kinds_of_channels(home),
    )


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Stores]:
    """The database, made where there is none."""
    store = await asyncio.to_thread(open_store, home / DATABASE_NAME)
    try:
        yield store
    finally:
        await store.close()


async def _erase_due(home: Path) -> Sequence[str]:
    """Erase each person that has a tombstone and is still there; lines for people.

    A memory that lies elsewhere is asked by the gateway alone, at its start.

    Raises:
        EthosError, OSError: it could not be done now.
    """
    if not await TombstoneFile(home).all():
        return ()
    async with opened(home) as store:
        eraser = eraser_of(home, store)
        due = await eraser.due()
        if not due:
            return ()
        who = f"{len(due)} {'person' if len(due) == 1 else 'people'} erased since the backup was made"
        if not await asyncio.to_thread(has_memory_files, home):
            return (f"The next start of the gateway takes out again: {who}.",)
        for tombstone in due:
            await eraser.erase(tombstone)
        return (f"Taken out again: {who}.",)


def clean_restored(unpacked: Path, home: Path) -> Sequence[str]:
    """Keep people erased whom a backup would bring back; see `gateway.ops.backup.restoring.Clean`. Blocks."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _clean_restored(unpacked, home)).result()


async def _clean_restored(unpacked: Path, home: Path) -> Sequence[str]:
    await TombstoneFile(unpacked).add(await TombstoneFile(home).all())
    return await _erase_due(unpacked)
