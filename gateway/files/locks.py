"""Locks between tasks and between processes, on files.

`FileLock` is for one read-modify-write: an `asyncio.Lock` orders the tasks of a process and `flock` the processes, in
the kernel's own queue and not by polling. `hold` is for the life of a process. Both die with the process, `kill -9`
included, and both leave the holder's pid in the lock file, so that one who waits in vain can be told for whom.
A lock file is never deleted: two processes could then hold two files of one name.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.errors import DataDirectoryLocked, FileError, LockTimeout, UnsafePath
from gateway.runtime.failpoints import reach

_MOUNTS = Path("/proc/self/mountinfo")
# flock on these is local to one machine, emulated or absent, and SQLite's WAL needs shared memory that they lack.
_NETWORK_TYPES = frozenset({
    "9p", "afs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
    "orangefs", "pvfs2", "smb3", "smbfs",
})  # fmt: skip
_NETWORK_FUSE_TYPES = frozenset(["ceph", "davfs", "gcsfuse", "glusterfs", "rclone", "s3fs", "sshfs", "vmhgfs-fuse"])
_devices_seen: set[int] = set()


@dataclass(slots=True)
class _Place:
    """The tasks of one event loop that want one path."""

    mutex: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    queued: asyncio.Future[int] | None = None
    """A thread stands in the kernel's queue; the next task that wants the lock takes its place over."""


_places: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Place]] = weakref.WeakKeyDictionary()


class FileLock:
    """Mutual exclusion for a path among all tasks and processes of a machine: `async with FileLock(path, 10.0):`.

    An instance is good for one `async with` at a time. Without contention it costs a few system calls and no thread.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        """Name the lock file, whose directory must exist, and how long to wait for it."""
        self._path = path
        self._timeout_s = timeout_s
        self._fd: int | None = None
        self._place: _Place | None = None

    async def __aenter__(self) -> Self:
        """Wait for the lock.

        Raises:
            LockTimeout: it was not free in time; names the holder.
            UnsafePath: the file system cannot lock, or the lock file is a link.
            FileError: the lock file cannot be opened or locked.
        """
        places = _places.setdefault(asyncio.get_running_loop(), {})
        place = places.setdefault(str(self._path), _Place())
        place.users += 1
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                await place.mutex.acquire()
                try:
                    self._fd = await self._flock(place)
                except BaseException:
                    place.mutex.release()
                    raise
        except TimeoutError:
            self._leave(place)
            waited_s = round(time.monotonic() - started_at, 1)
            pid = holder_pid(self._path)
            raise LockTimeout(str(self._path), waited_s, None if pid is None else f"process {pid}") from None
        except BaseException:
            self._leave(place)
            raise
        self._place = place
        reach("lock.held")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        place, fd = self._place, self._fd
        if place is None or fd is None:
            raise RuntimeError("the lock is not held")
        self._place = self._fd = None
        reach("lock.releasing")
        _release(fd)
        reach("lock.released")
        place.mutex.release()
        self._leave(place)

    def _leave(self, place: _Place) -> None:
        place.users -= 1
        if place.users:
            return
        queued = place.queued
        if queued is not None and queued.done():  # the lock came in the moment in which its waiter was cancelled
            place.queued = None
            if not queued.cancelled() and queued.exception() is None:
                _release(queued.result())
        if place.queued is None:
            _places.get(asyncio.get_running_loop(), {}).pop(str(self._path), None)

    async def _flock(self, place: _Place) -> int:
        if place.queued is None:
            fd = _open(self._path)
            if _try_flock(fd, self._path):
                _sign(fd)
                return fd
            place.queued = _queue_in_thread(fd, place, self._path)
        queued = place.queued
        try:
            fd = await asyncio.shield(queued)
        finally:
            if queued.done() and (queued.cancelled() or queued.exception() is not None):
                place.queued = None
        place.queued = None
        _sign(fd)
        return fd


def _queue_in_thread(fd: int, place: _Place, path: Path) -> asyncio.Future[int]:
    """Wait in the kernel's queue, in a thread of its own that does not keep the process from ending.

    The waiting cannot be taken back, so the future outlives a task that gives up: the next task takes the place over,
    and a lock that is not wanted any more is released as soon as it comes.
    """
    loop = asyncio.get_running_loop()
    queued: asyncio.Future[int] = loop.create_future()

    def resolve(error: OSError | None) -> None:
        if error is None and place.users:
            queued.set_result(fd)
            return
        _release(fd)
        if error is not None and place.users:
            queued.set_exception(_unlockable(path, error))
            return
        queued.cancel()
        place.queued = None

    def wait() -> None:
        error = None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as caught:
            error = caught
        try:
            loop.call_soon_threadsafe(resolve, error)
        except RuntimeError:  # the loop has ended
            _release(fd)

    try:
        threading.Thread(target=wait, name=f"flock-{fd}", daemon=True).start()
    except RuntimeError as error:  # the system gives no more threads
        os.close(fd)
        raise FileError(f"{path} is locked, and cannot be waited for: {error}") from error
    return queued


# ---- for the life of a process --------------------------------------------------------------------------------------


class HeldLock:
    """A lock that is held until `release`, or until the process ends."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd: int | None = fd

    def release(self) -> None:
        """Let go. Idempotent."""
        if self._fd is not None:
            _release(self._fd)
            self._fd = None


def hold(path: Path) -> HeldLock:
    """Take the lock now or not at all; for the data directory, whose lock file `path` is.

    Raises:
        DataDirectoryLocked: another process holds it; carries its pid.
        UnsafePath: the file system cannot lock, or the lock file is a link.
        FileError: the lock file cannot be opened or locked.
    """
    fd = _open(path)
    if not _try_flock(fd, path):
        os.close(fd)
        raise DataDirectoryLocked(str(path.parent), holder_pid(path))
    _sign(fd)
    return HeldLock(path, fd)


def holder_pid(path: Path) -> int | None:
    """The pid that the last holder left in a lock file, None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_bytes())
    return None


# ---- pieces ---------------------------------------------------------------------------------------------------------


def refuse_network_file_system(directory: Path) -> None:
    """Refuse a place where neither locks nor SQLite can be trusted.

    The kernel's list of mounts is asked, not `statfs`, whose numbers tell every FUSE file system as one. Systems
    without `/proc` are taken at their word.

    Raises:
        UnsafePath: names the file system and the way out.
    """
    device = directory.stat().st_dev
    if device in _devices_seen:
        return
    kind = _file_system_type(directory)
    if kind in _NETWORK_TYPES or kind.removeprefix("fuse.") in _NETWORK_FUSE_TYPES:
        raise UnsafePath(
            f"{directory} lies on a network file system ({kind}), where locks cannot be trusted. "
            f"Put the data directory on a local disk: set ETHOS_HOME."
        )
    _devices_seen.add(device)


def _file_system_type(directory: Path) -> str:
    """The type of the mount that is deepest above `directory`, the last one where several lie on one another.

    Empty where it cannot be known.
    """
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    here = directory.resolve()
    found, depth = "", -1
    for line in lines:  # proc(5): id parent major:minor root MOUNT-POINT options [optional...] - TYPE source options
        fields, _, rest = line.partition(" - ")
        point = Path(fields.split(" ")[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        if here.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = rest.split(" ")[0], len(point.parts)
    return found


def _open(path: Path) -> int:
    refuse_network_file_system(path.parent)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(f"{path} is a symbolic link; remove it, a lock must be a file of its own") from None
        raise _unlockable(path, error) from error


def _try_flock(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        os.close(fd)
        raise _unlockable(path, error) from error
    return True


def _unlockable(path: Path, error: OSError) -> FileError:
    return FileError(f"{path} cannot be locked: {error.strerror}. Check who owns it, and that its disk can lock files")


def _sign(fd: int) -> None:
    """Leave our pid in the lock file, unless it is there already; on a full disk it is missing there, and no more."""
    signature = b"%d\n" % os.getpid()
    with contextlib.suppress(OSError):
        if os.pread(fd, 32, 0) != signature:
            os.ftruncate(fd, 0)
            os.pwrite(fd, signature, 0)


def _release(fd: int) -> None:
    """Unlock, also for a forked child that has inherited the descriptor, and close."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)
