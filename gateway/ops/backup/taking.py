"""Make a backup: the moment, the file, and a look at what was written, before anything is called done."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from gateway import __version__
from gateway.errors import BackupError
from gateway.files.atomic import give_name, make_private_directory, read_settled, sync_directory, write_new
from gateway.files.home import DATABASE_NAME
from gateway.files.locks import FileLock
from gateway.memory.atomic_document import AtomicDocument
from gateway.memory.paths import ARCHIVE_NAME, DocumentPlace, documents
from gateway.ops.backup.archive import Contents, list_files, read_archive, write_archive
from gateway.ops.backup.contents import NAME, STAGING_PREFIX, HomeEntry, memory_elsewhere, secrets_of, walk
from gateway.ops.backup.databases import DATABASES, Snapshot, take_snapshots

LOCK_TIMEOUT_S = 30.0
_MAP = Path("users/identity-map.json")
_MAP_LOCK = Path("users/.identity-map.lock")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBackup:
    """A backup that was made, and read again.

    Attributes:
        left_out: one line for people for each name that is not in it, but for secrets.
        removed: older backups that were deleted because newer ones are enough.
    """

    path: Path
    size_bytes: int
    contents: Contents
    left_out: tuple[str, ...]
    removed: tuple[Path, ...]


async def take_backup(
    home: Path, wanted: Path, *, with_secrets: bool = False, keep: int | None = None, copy: Copy | None = None
) -> TakenBackup:
    """Make one file of the data directory, while a gateway may run on it.

    There is a file of that name only once it is whole and was read back.

    Args:
        wanted: the file, which must not be there yet, or a directory, in which it is named by the time.
        with_secrets: take files that hold secrets in too.
        keep: with a directory, how many of its backups stay; the oldest of the others go once this one is there.
        copy: what fills an empty directory with what is to be kept; `copy_at_one_moment` by default.

    Raises:
        BackupError: it cannot be made; says why.
        LockTimeout: another process held a document for too long.
        StoreError: the database cannot be used.
        OSError: the disk is full, or the place cannot be written.
    """
    now = datetime.now(UTC)
    directory = _directory(home, wanted)
    with _staging(directory) as staging:
        tree = staging / "home"
        tree.mkdir(mode=0o700)
        copied = await (copy or copy_at_one_moment)(home, tree, with_secrets=with_secrets)
        contents = Contents(
            created_at=now.isoformat(timespec="seconds"),
            version=__version__,
            schema_version=copied.schema_version,
            files=await asyncio.to_thread(list_files, tree),
            links={str(name): goal for name, goal in copied.links.items()},
            secrets=tuple(str(name) for name in copied.secrets),
        )
        unfinished = staging / "backup"
        await asyncio.to_thread(write_archive, unfinished, tree, contents)
        if await asyncio.to_thread(read_archive, unfinished) != contents:
            raise BackupError(f"{wanted} could not be read back as it was written; is the disk sound?")
        size_bytes = unfinished.stat().st_size
        path = _put(unfinished, wanted if directory != wanted else None, directory, now)
    removed = _remove_old(directory, keep) if keep is not None and path != wanted else ()
    return TakenBackup(
        path=path,
        size_bytes=size_bytes,
        contents=contents,
        left_out=tuple(copied.left_out),
        removed=removed,
    )


def _directory(home: Path, wanted: Path) -> Path:
    """Where the file will lie."""
    if not home.is_dir():
        raise BackupError(f"there is no data directory {home}; set ETHOS_HOME to the one that is meant")
    if wanted.is_dir():
        return wanted
    if wanted.exists() or wanted.is_symlink():
        raise BackupError(f"{wanted} is there already; name another file")
    if not wanted.parent.is_dir():
        raise BackupError(f"there is no directory {wanted.parent}; make it first")
    return wanted.parent


def _put(unfinished: Path, wanted: Path | None, directory: Path, now: datetime) -> Path:
    """Give the file its name, if that is still free; without a wanted one, a name by the time.

    Two backups may begin in the same second, by hand and by a timer: the later one is numbered behind the other.
    """
    moment = f"{now:%Y%m%dT%H%M%SZ}"
    taken = (_age(path) for path in directory.glob(f"ethos-{moment}*.tar.gz") if NAME.fullmatch(path.name))
    number = max((number for _, number in taken), default=0) + 1
    while True:
        path = wanted or directory / f"ethos-{moment}{f'-{number}' if number > 1 else ''}.tar.gz"
        try:
            give_name(unfinished, path)
        except FileExistsError as error:
            if wanted is not None:
                raise BackupError(f"{path} was created by another program meanwhile; name another file") from error
            number += 1
        else:
            sync_directory(directory)
            return path


@contextmanager
def _staging(parent: Path) -> Iterator[Path]:
    """A directory of our own next to the file; those that killed backups left behind are removed."""
    for left in parent.glob(f"{STAGING_PREFIX}*"):
        _remove_if_dead(left)
    path, descriptor = _own_directory(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _own_directory(parent: Path) -> tuple[Path, int]:
    """A new directory, locked; the lock dies with the process, and so says that it is alive.

    Before it is locked, another backup may take it for one that was left behind. Then the next one is made.
    """
    while True:
        path = parent / f"{STAGING_PREFIX}{secrets.token_hex(6)}"
        path.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists():
                    return path, descriptor
            os.close(descriptor)


def _remove_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
        finally:
            os.close(descriptor)


def _remove_old(directory: Path, keep: int) -> tuple[Path, ...]:
    """Delete all but the newest; their names are their times."""
    ours = sorted((path for path in directory.iterdir() if NAME.fullmatch(path.name) and path.is_file()), key=_age)
    old = tuple(ours[: max(0, len(ours) - keep)])
    for path in old:
        path.unlink(missing_ok=True)
    return old


def _age(path: Path) -> tuple[str, int]:
    """Later ones are greater: of the time and the number in the name."""
    moment, _, number = path.name.removesuffix(".tar.gz").removeprefix("ethos-").partition("-")
    return moment, int(number or 1)


@dataclass(slots=True)
class CopyResult:
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


class Copy(Protocol):
    """Fills an empty directory with a data directory as it is at one moment."""

    async def __call__(self, home: Path, target: Path, /, *, with_secrets: bool) -> CopyResult:
        """`home` may be in use; files that hold secrets come along `with_secrets` only."""


async def copy_at_one_moment(
    home: Path,
    target: Path,
    *,
    with_secrets: bool,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    databases: Sequence[str] = DATABASES,
) -> CopyResult:
    """Copy the data directory as it is at one moment.

    The order makes the parts agree. While every document is locked, what is in a memory file is settled in the journal
    or evident next to it. The read transactions of the databases begin then, and the files are copied: the identity
    map after the databases began, so that it holds everybody whom they name. The databases are copied out of their
    transactions after the locks are let go, so that turns wait only for the files.

    Args:
        home: the data directory; a gateway and other commands may work in it.
        target: an empty directory.
        with_secrets: copy files that hold secrets too.
        lock_timeout_s: how long to wait for each document that is locked.
        databases: the names of those that are copied, too.

    Raises:
        BackupError: it cannot be told which files hold secrets, or the database's copy is not sound.
        LockTimeout: a document was held for too long.
        StoreError: the database cannot be used.
    """
    home = await asyncio.to_thread(home.resolve)
    secrets = set() if with_secrets else await asyncio.to_thread(secrets_of, home)
    copied = CopyResult()
    kind = await asyncio.to_thread(memory_elsewhere, home)
    if kind is not None:
        copied.left_out.append(f"the memory, which the kind {kind} keeps elsewhere; back it up there, too")
    with ExitStack() as closing:
        async with _moment(home, lock_timeout_s, databases) as (snapshots, places):
            for snapshot in snapshots:
                closing.callback(snapshot.close)
            await asyncio.to_thread(_copy_files, home, target, places, secrets, copied)
        for snapshot in snapshots:
            version = await asyncio.to_thread(snapshot.copy_into, target)
            if snapshot.name == DATABASE_NAME:
                copied.schema_version = version
    return copied


# ---- the moment -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _moment(
    home: Path, lock_timeout_s: float, databases: Sequence[str]
) -> AsyncIterator[tuple[list[Snapshot], list[DocumentPlace]]]:
    """Hold every document while the body runs; the databases as they are then, which the body closes."""
    _allow_many_files()
    held: set[Path] = set()
    async with AsyncExitStack() as locks:
        while True:
            places = await asyncio.to_thread(lambda: list(_documents(home)))
            wanted = {place.lock_path for place in places}
            if (home / _MAP_LOCK).parent.is_dir():
                wanted.add(home / _MAP_LOCK)
            for path in sorted(wanted - held):
                await locks.enter_async_context(FileLock(path, lock_timeout_s))
            held |= wanted
            snapshots = await asyncio.to_thread(take_snapshots, home, databases)
            # A document that came into being meanwhile was not held: then once more, with it.
            new = await asyncio.to_thread(lambda: {place.lock_path for place in _documents(home)})
            if new <= held:
                break
            for snapshot in snapshots:
                snapshot.close()
        yield snapshots, [place for place in places if place.lock_path in held]


def _documents(home: Path) -> Iterator[DocumentPlace]:
    """Every document, and those that a memory elsewhere has a copy of in `memory/<kind>`."""
    for root in (home, *sorted(home.glob("memory/*/"))):
        yield from documents(root)


def _allow_many_files() -> None:
    """Every lock is an open file, and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# ---- files ----------------------------------------------------------------------------------------------------------


def _copy_files(home: Path, target: Path, places: list[DocumentPlace], secrets: set[Path], copied: CopyResult) -> None:
    real = {Path(os.path.realpath(place.path)) for place in places}
    taken = real | {path.with_name(ARCHIVE_NAME) for path in real}
    for path in sorted(real):
        _copy_document(home, target, path)
    for found in walk(home, secrets):
        source = home / found.path
        if found.why_not == "secret":
            copied.secrets.append(found.path)
        elif found.why_not is not None:
            copied.left_out.append(found.why_not)
        elif found.link is not None:
            copied.links[found.path] = found.link
        elif source not in taken and not _is_beside(source, real) and not _is_new_document(found):
            _copy_file(source, target / found.path, is_edited=found.path == _MAP)


def _is_beside(source: Path, documents: set[Path]) -> bool:
    """Whether it is one of the hidden files of a document, which has a name of its own where a link leads to it."""
    return any(source.parent == path.parent and source.name.startswith(f".{path.name}.") for path in documents)


def _is_new_document(found: HomeEntry) -> bool:
    """One that came into being after the moment, for all others are held; the journal will bring it in."""
    match found.path.parts:
        case ("MEMORY.md",) | ("personalities", _, "MEMORY.md") | ("users", _, "USER.md"):
            return True
        case ("users", _, "personalities", _, "MEMORY.md"):
            return True
    return False


def _copy_document(home: Path, target: Path, path: Path) -> None:
    resting = AtomicDocument(path).at_rest()
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
