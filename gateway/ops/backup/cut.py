"""One moment of a data directory that is in use, copied to a place of its own.

The order makes the parts agree with one another:

1. Every memory document's lock is taken, and the identity map's. No memory file changes now, and what is in one is
   settled in the journal or evident beside it.
2. A read transaction of each database begins. From here on it shows this moment, however long it is read. The main
   one is first: what others derive from it may be there already, and is then derived again without effect.
3. The files are copied. The identity map is one of them: it holds at least everybody whom the database names.
4. The locks are let go; turns that have something to remember waited for this long, and no longer.
5. The databases are copied out of their transactions.

So whatever the journal of the copy calls settled is in the copy's files; of the rest the evidence beside the files says
what is in them, and the gateway that starts on the copy brings in what is not. Nothing is missing, nothing is twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.errors import BackupError
from gateway.files.atomic import make_private_directory, read_settled, write_new
from gateway.files.home import DATABASE_NAME
from gateway.files.locks import FileLock
from gateway.memory.atomic_document import AtomicDocument
from gateway.memory.paths import ARCHIVE_NAME, DocumentPlace, documents
from gateway.ops.backup.contents import Found, secrets_of, walk
from gateway.ops.backup.databases import Snapshot, take_snapshots

LOCK_TIMEOUT_S = 30.0
_MAP = Path("users/identity-map.json")
_MAP_LOCK = Path("users/.identity-map.lock")
_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Cut:
    """What was copied.

    Attributes:
        schema_version: of the database; None where there is none yet.
        links: symbolic links, by their path below the data directory.
        secrets: names that were left out because they hold secrets.
        left_out: one line for people for each other name that was left out.
    """

    schema_version: int | None = None
    links: dict[Path, str] = field(default_factory=dict)
    secrets: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


async def take_cut(home: Path, target: Path, *, with_secrets: bool, lock_timeout_s: float = LOCK_TIMEOUT_S) -> Cut:
    """Copy the data directory as it is at one moment.

    Args:
        home: the data directory; a gateway and other commands may work in it.
        target: an empty directory.
        with_secrets: copy files that hold secrets too.
        lock_timeout_s: how long to wait for each document that somebody writes.

    Raises:
        BackupError: it cannot be told which files hold secrets, or the database's copy is not sound.
        LockTimeout: a document was held for too long.
        StoreError: the database cannot be used.
    """
    home = await asyncio.to_thread(home.resolve)
    secrets = set() if with_secrets else await asyncio.to_thread(secrets_of, home)
    cut = Cut()
    with ExitStack() as closing:
        async with _moment(home, lock_timeout_s) as (snapshots, places):
            for snapshot in snapshots:
                closing.callback(snapshot.close)
            await asyncio.to_thread(_copy_files, home, target, places, secrets, cut)
        for snapshot in snapshots:
            version = await asyncio.to_thread(snapshot.copy_into, target)
            if snapshot.name == DATABASE_NAME:
                cut.schema_version = version
    return cut


# ---- the moment -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _moment(home: Path, lock_timeout_s: float) -> AsyncIterator[tuple[list[Snapshot], list[DocumentPlace]]]:
    """Hold every document while the body runs; the databases as they are then, which the body closes."""
    _allow_many_files()
    held: set[Path] = set()
    async with AsyncExitStack() as locks:
        while True:
            places = await asyncio.to_thread(lambda: list(documents(home)))
            wanted = {place.lock_path for place in places}
            if (home / _MAP_LOCK).parent.is_dir():
                wanted.add(home / _MAP_LOCK)
            for path in sorted(wanted - held):
                await locks.enter_async_context(FileLock(path, lock_timeout_s))
            held |= wanted
            snapshots = await asyncio.to_thread(take_snapshots, home)
            # A document that came into being meanwhile was not held: then once more, with it.
            new = await asyncio.to_thread(lambda: {place.lock_path for place in documents(home)})
            if new <= held:
                break
            for snapshot in snapshots:
                snapshot.close()
        yield snapshots, [place for place in places if place.lock_path in held]


def _allow_many_files() -> None:
    """Every lock is an open file, and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# ---- files ----------------------------------------------------------------------------------------------------------


def _copy_files(home: Path, target: Path, places: list[DocumentPlace], secrets: set[Path], cut: Cut) -> None:
    real = {Path(os.path.realpath(place.path)) for place in places}
    taken = real | {path.with_name(ARCHIVE_NAME) for path in real}
    for path in sorted(real):
        _copy_document(home, target, path)
    for found in walk(home, secrets):
        source = home / found.path
        if found.why_not == "secret":
            cut.secrets.append(found.path)
        elif found.why_not is not None:
            cut.left_out.append(found.why_not)
        elif found.link is not None:
            cut.links[found.path] = found.link
        elif source not in taken and not _is_beside(source, real) and not _is_new_document(found):
            _copy_file(source, target / found.path, is_edited=found.path == _MAP)


def _is_beside(source: Path, documents: set[Path]) -> bool:
    """Whether it is one of the hidden files of a document, which has a name of its own where a link leads to it."""
    return any(source.parent == path.parent and source.name.startswith(f".{path.name}.") for path in documents)


def _is_new_document(found: Found) -> bool:
    """One that came into being after the moment, for all others are held; the journal will bring it in."""
    match found.path.parts:
        case ("MEMORY.md",) | ("personalities", _, "MEMORY.md") | ("users", _, "USER.md"):
            return True
        case ("users", _, "personalities", _, "MEMORY.md"):
            return True
    return False


def _copy_document(home: Path, target: Path, path: Path) -> None:
    resting = AtomicDocument(path, lambda _step: None).at_rest()
    copy = target / path.relative_to(home)
    if resting.data is not None:
        _write(copy, iter([resting.data]), resting.mtime_ns)
    for name in resting.evidence:
        _write(copy.with_name(name), iter(()), resting.mtime_ns)
    archive = path.with_name(ARCHIVE_NAME)
    if resting.archive_bytes and not archive.is_symlink():
        _copy_file(archive, copy.with_name(ARCHIVE_NAME), most_bytes=resting.archive_bytes)


def _copy_file(source: Path, copy: Path, *, most_bytes: int | None = None, is_edited: bool = False) -> None:
    if is_edited:  # a person may be saving it
        snapshot = read_settled(source)
        if snapshot is not None:
            _write(copy, iter([snapshot.data]), snapshot.signature.mtime_ns)
        return
    try:
        with source.open("rb") as file:
            _write(copy, _chunks(file.fileno(), most_bytes), os.fstat(file.fileno()).st_mtime_ns)
    except FileNotFoundError:  # gone since it was listed
        return
    except PermissionError as error:
        raise BackupError(
            f"{source} cannot be read: {error.strerror}. Make it yours again, or move it away."
        ) from error


def _chunks(descriptor: int, most_bytes: int | None) -> Iterator[bytes]:
    left = most_bytes
    while left is None or left > 0:
        chunk = os.read(descriptor, _CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
        if not chunk:
            return
        yield chunk
        left = None if left is None else left - len(chunk)


def _write(copy: Path, chunks: Iterator[bytes], mtime_ns: int) -> None:
    make_private_directory(copy.parent)
    write_new(copy, b"")
    with copy.open("ab") as file:
        for chunk in chunks:
            file.write(chunk)
    os.utime(copy, ns=(mtime_ns, mtime_ns))
