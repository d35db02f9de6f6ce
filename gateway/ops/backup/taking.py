"""Make a backup: the moment, the file, and a look at what was written, before anything is called done."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gateway import __version__
from gateway.errors import BackupError
from gateway.files.atomic import give_name, sync_directory
from gateway.ops.backup.archive import Contents, check_archive, list_files, write_archive
from gateway.ops.backup.contents import NAME, STAGING_PREFIX
from gateway.ops.backup.cut import take_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
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


async def take_backup(home: Path, wanted: Path, *, with_secrets: bool = False, keep: int | None = None) -> Taken:
    """Make one file of the data directory, beside whatever runs on it.

    There is a file of that name only once it is whole and was read back.

    Args:
        home: the data directory.
        wanted: the file, which must not be there yet, or a directory, in which it is named by the time.
        with_secrets: take files that hold secrets in too.
        keep: with a directory, how many of its backups stay; the oldest of the others go once this one is there.

    Raises:
        BackupError: it cannot be made; says why.
        LockTimeout: somebody held a document for too long.
        StoreError: the database cannot be used.
        OSError: the disk is full, or the place cannot be written.
    """
    now = datetime.now(UTC)
    directory = _directory(home, wanted)
    with _staging(directory) as staging:
        tree = staging / "home"
        tree.mkdir(mode=0o700)
        cut = await take_cut(home, tree, with_secrets=with_secrets)
        contents = Contents(
            created_at=now.isoformat(timespec="seconds"),
            version=__version__,
            schema_version=cut.schema_version,
            files=await asyncio.to_thread(list_files, tree),
            links={str(name): goal for name, goal in cut.links.items()},
            secrets=tuple(str(name) for name in cut.secrets),
        )
        unfinished = staging / "backup"
        await asyncio.to_thread(write_archive, unfinished, tree, contents)
        if await asyncio.to_thread(check_archive, unfinished) != contents:
            raise BackupError(f"{wanted} could not be read back as it was written; is the disk sound?")
        size_bytes = unfinished.stat().st_size
        path = _put(unfinished, wanted if directory != wanted else None, directory, now)
    removed = _remove_old(directory, keep) if keep is not None and path != wanted else ()
    return Taken(
        path=path,
        size_bytes=size_bytes,
        contents=contents,
        left_out=tuple(cut.left_out),
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
    """Give the file its name, which nobody must have taken meanwhile; without a wanted one, a name by the time.

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
                raise BackupError(f"{path} was made by somebody else meanwhile; name another file") from error
            number += 1
        else:
            sync_directory(directory)
            return path


@contextmanager
def _staging(parent: Path) -> Iterator[Path]:
    """A directory of our own beside the file; those that killed backups left behind are removed."""
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
