"""Files that people edit while we write them: whole writes, careful reads, and paths that stay inside.

Everything here blocks; async callers use a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import FileError, InvalidId, UnsafePath
from gateway.runtime.failpoints import reach

SETTLED_AFTER_S = 0.010
"""A file younger than this may still be in its editor's hands."""
_GIVE_UP_AFTER_S = 1.0
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Signature:
    """What tells without reading whether a file is still the one that was read."""

    mtime_ns: int
    size_bytes: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Signature:
        """The signature of a file that was looked at."""
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """A file's bytes and what they were taken from; `sha256` in hex."""

    data: bytes
    signature: Signature
    sha256: str


def check_id(kind: str, value: str) -> str:
    r"""Return `value` when it may become part of a path: `[A-Za-z0-9_-]{1,64}`, matched whole.

    Raises:
        InvalidId: names `kind` and the value.
    """
    if not is_id(value):
        raise InvalidId(kind, value)
    return value


def is_id(value: str) -> bool:
    """Whether it may; `fullmatch`, because Python's `$` lets a trailing newline through."""
    return _ID.fullmatch(value) is not None


def inside(root: Path, *parts: str) -> Path:
    """Join `parts` to `root` and make sure that no link on the way leads out of it.

    A link that stays inside is followed, so that people may arrange their directory. Parts that do not exist yet are
    fine.

    Raises:
        UnsafePath: the place is outside of `root`.
    """
    path = root.joinpath(*parts)
    follow(path, os.path.realpath(root))
    return path


def follow(path: Path, real_root: str) -> Path:
    """Where a path leads in the end, links resolved, which must be inside of `real_root`, itself resolved.

    Raises:
        UnsafePath: it is outside.
    """
    try:
        real = os.path.realpath(path)
    except OSError as error:
        raise UnsafePath(f"{path}: {error.strerror}") from error
    if real != real_root and not real.startswith(real_root.rstrip(os.sep) + os.sep):
        raise UnsafePath(f"{path} leads out of {real_root} (to {real}); replace the link by a real file or directory")
    return Path(real)


def make_private_directory(path: Path) -> None:
    """Make a directory and its missing parents, each 0700, and make their names durable.

    Raises:
        FileError: the disk is full, the place cannot be written, or something else has the name.
    """
    missing = []
    here = path
    try:
        while not here.exists():
            missing.append(here)
            here = here.parent
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            sync_directory(directory.parent)
    except OSError as error:
        raise FileError(f"{path} could not be made: {error.strerror}") from error
    if not path.is_dir():
        raise FileError(f"{path} is not a directory; move it away")


def write_atomically(path: Path, data: bytes) -> Signature:
    """Replace a file as a whole, durably: readers see the old bytes or the new ones, also after a power cut.

    Returns:
        The signature of the new file.

    Raises:
        FileError: the disk is full or the place cannot be written; the old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        signature = write_new(temporary, data)
        os.replace(temporary, path)  # noqa: PTH105 (the same call, without a second Path object)
        reach("file.renamed")
        sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise FileError(f"{path} could not be written: {error.strerror}. The old file is untouched.") from error
    return signature


def make_once(path: Path, data: bytes) -> bool:
    """Make a file that does not exist yet, whole and durably; of several who try at once one does, False for others.

    Raises:
        FileError: the disk is full or the place cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        write_new(temporary, data)
        give_name(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, FileExistsError):
            return False
        raise FileError(f"{path} could not be written: {error.strerror}") from error
    return True


def write_new(path: Path, data: bytes) -> Signature:
    """Make a file that is not there yet, with its bytes on the disk; its name is durable once the directory is synced.

    Raises:
        OSError: the disk is full, or the name is taken; nothing is left behind then but perhaps a part of the file.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        reach("file.written")
        os.fsync(fd)
        reach("file.synced")
        return Signature.of(os.fstat(fd))
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    reach("directory.synced")


def exchange(one: Path, other: Path) -> bool:
    """Let two files in one directory swap their names at once; False where the system cannot.

    Unlike a rename, it destroys nothing, also when somebody puts another file in one of the places at that moment.
    renameat2(2), Linux 3.15 and glibc 2.28.

    Raises:
        OSError: one of them is missing.
    """
    return _rename2(one, other, _RENAME_EXCHANGE)


def rename_new(source: Path, target: Path) -> bool:
    """Rename to a name that is free; False where the system cannot make sure of that.

    Raises:
        FileExistsError: the name is taken.
    """
    return _rename2(source, target, _RENAME_NOREPLACE)


def give_name(source: Path, target: Path) -> None:
    """Give a file a name that is free, in one step; by a second link where the system cannot rename so.

    Raises:
        FileExistsError: the name is taken; nothing has changed.
        OSError: the place cannot be written.
    """
    if not rename_new(source, target):
        os.link(source, target)
        source.unlink()


def _rename2(source: Path, target: Path, flag: int) -> bool:
    if _renameat2 is None:
        return False
    if _renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))


def sign(path: Path | str) -> Signature | None:
    """The signature of what is there now, None where there is nothing."""
    try:
        return Signature.of(os.stat(path))  # noqa: PTH116 (half the cost of Path.stat, with every message)
    except FileNotFoundError:
        return None


def read_once(path: Path) -> FileSnapshot | None:
    """Read a file that is never written in place; None where there is none.

    Raises:
        FileError: it is there and cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path} is not a regular file; move it away")
        with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
            data = file.readall()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)
    return FileSnapshot(data, Signature.of(status), hashlib.sha256(data).hexdigest())


def read_settled(
    path: Path, *, trusted: Signature | None = None, wait: Callable[[float], None] = time.sleep
) -> FileSnapshot | None:
    """Read a file that an editor may be saving at this moment; None where there is none.

    Editors ignore locks, and many truncate a file and then write it. So a file that is empty, shorter than it said, or
    younger than 10 ms is read again until two readings agree, for a second at most.

    Args:
        trusted: the signature of a whole write of our own, which needs no second reading.
        wait: what passes the time between two readings, seconds.

    Raises:
        FileError: it is there and cannot be read.
    """
    seen = read_once(path)
    give_up_at = time.monotonic() + _GIVE_UP_AFTER_S
    while seen is not None and seen.signature != trusted and not _is_settled(seen) and time.monotonic() < give_up_at:
        wait(SETTLED_AFTER_S)
        again = read_once(path)
        if again is not None and again.signature == seen.signature and again.data == seen.data:
            return again
        seen = again
    return seen


def _is_settled(seen: FileSnapshot) -> bool:
    age_s = time.time() - seen.signature.mtime_ns / 1e9
    return bool(seen.data) and len(seen.data) == seen.signature.size_bytes and not -1.0 < age_s < SETTLED_AFTER_S
