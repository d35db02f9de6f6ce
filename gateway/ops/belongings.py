"""What lies in files on one machine and in tables where many workers share a database, and the way between the two.

These are the identity map, the marks of erased people, the documents of the memory with their archives, and the
personalities. Before a data directory is copied they are put into its own tables, so they go along as rows, and are
checked as rows. In a data directory that was copied to, the tables become files, each compared with its hash.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from gateway.domain.personalities.places import NAMES, PREVIOUS_NAME
from gateway.errors import StoreError
from gateway.files.atomic import inside, make_private_directory, write_atomically
from gateway.memory import rules
from gateway.memory.paths import ARCHIVE_NAME, COMPLETE, is_document, is_original
from gateway.ops.privacy.tombstones import TombstoneFile
from gateway.people.identity import IdentityMap
from gateway.store.accounts import SqlAccounts
from gateway.store.engine import Connection, Engine
from gateway.store.payloads import from_ms, to_ms
from gateway.store.rows import insert
from gateway.store.tombstones import SqlTombstones

_MAP = Path("users/identity-map.json")
_ROOTS = ("MEMORY.md", "users", "personalities")
_TAIL = """
    SELECT hash_after, position FROM memory_journal
    WHERE document = ? AND outcome = 'applied' AND position IS NOT NULL ORDER BY position DESC LIMIT 1
"""
_PATHS = "SELECT path FROM documents ORDER BY path"
_DOCUMENT = "SELECT content, archive, modified_at FROM documents WHERE path = ?"


@dataclass(frozen=True, slots=True)
class _Text:
    path: str
    content: bytes
    archive: bytes
    modified_at: datetime


async def gather(home: Path, engine: Engine, *, has_memory: bool = True) -> None:
    """Put the files of a data directory into its own tables, in place of what is in them.

    What the journal of the memory holds must be in the files.

    Args:
        has_memory: the documents of the memory are files; else they are rows already, or elsewhere.

    Raises:
        FileError, IdentityMapBroken: a file cannot be read.
        StoreError: the tables cannot be written.
    """
    await engine.write(partial(clear, has_memory=has_memory))
    accounts = [*(await IdentityMap(home / _MAP).document()).accounts()] if (home / _MAP).exists() else []
    await SqlAccounts(engine).take_in(accounts, is_replacing=True, is_dry_run=False)
    await SqlTombstones(engine).add(await TombstoneFile(home).all())
    for path in await asyncio.to_thread(lambda: sorted(_paths(home))):
        if not (has_memory or _is_of_personality(path)):
            continue
        text = await asyncio.to_thread(_read, home, path)
        await engine.write(partial(_put, text=text), is_durable=False)


async def spread(home: Path, engine: Engine, *, has_memory: bool = True) -> None:
    """Make files of the tables; each is read again. The tables stay as they are.

    Args:
        has_memory: of the memory's documents, too.

    Raises:
        FileError: a file cannot be written.
        StoreError: a document is not what its hash says.
    """
    document = await SqlAccounts(engine).document()
    if [*document.accounts()]:
        make_private_directory((home / _MAP).parent)
        await asyncio.to_thread(write_atomically, home / _MAP, document.written())
    tombstones = await SqlTombstones(engine).all()
    if tombstones:
        await TombstoneFile(home).add(tombstones)
    for (path,) in await engine.rows(_PATHS):
        if not (has_memory or _is_of_personality(path)):
            continue
        row = await engine.row(_DOCUMENT, (path,))
        await asyncio.to_thread(_write, home, path, row)


def clear(connection: Connection, *, has_memory: bool = True) -> None:
    """Leave the files as the only ones that say it."""
    connection.execute("DELETE FROM accounts")
    connection.execute("DELETE FROM tombstones")
    for (path,) in connection.execute(_PATHS).fetchall():
        if has_memory or _is_of_personality(path):
            connection.execute("DELETE FROM documents WHERE path = ?", (path,))


def _paths(home: Path) -> Iterator[str]:
    """Files that are documents of the memory, originals from before a link, or of a personality."""
    for root in _ROOTS:
        top = home / root
        for path in [top] if top.is_file() else top.rglob("*") if top.is_dir() else ():
            name = path.relative_to(home).as_posix()
            if path.is_file() and (is_document(name) or is_original(name) or _is_of_personality(name)):
                yield name


def _is_of_personality(name: str) -> bool:
    match name.split("/"):
        case ["personalities", _, file]:
            return file in NAMES
        case ["personalities", _, previous, file]:
            return previous == PREVIOUS_NAME and file in (*NAMES, COMPLETE)
    return False


def _read(home: Path, name: str) -> _Text:
    path = inside(home, *name.split("/"))
    archive = path.with_name(ARCHIVE_NAME)
    return _Text(
        path=name,
        content=path.read_bytes(),
        archive=archive.read_bytes() if is_document(name) and archive.is_file() else b"",
        modified_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
    )


def _put(connection: Connection, *, text: _Text) -> None:
    tail = connection.execute(_TAIL, (text.path,)).fetchone() if is_document(text.path) else None
    left = None if tail is None else tail["hash_after"]
    insert(connection, "documents", {
        "path": text.path, "content": text.content, "version": 1,
        "sha256": rules.version(text.content) if left is None else bytes(left).hex(),
        "position": 0 if tail is None else tail["position"],
        "archive": text.archive, "modified_at": to_ms(text.modified_at),
    })  # fmt: skip


def _write(home: Path, name: str, row: Sequence[Any]) -> None:
    content, archive, modified_at = row
    path = inside(home, *name.split("/"))
    make_private_directory(path.parent)
    for file, data in ((path, content), (path.with_name(ARCHIVE_NAME), archive)):
        if data or file == path:
            write_atomically(file, data)
            if file.read_bytes() != data:
                raise StoreError(f"{file} is not what was written; is the disk sound?")
    if modified_at is not None:
        at_s = from_ms(modified_at).timestamp()
        os.utime(path, (at_s, at_s))
