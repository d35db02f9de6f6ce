"""The Unix socket: the only file here that touches it. Both sides use it: the adapter listens, `ethos chat` calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import AdapterNotReady

_PEER_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
_MAX_NAME_BYTES = 80  # of the 107 that sun_path holds, the rest is `/proc/self/fd/<number>/`
_PERSON_LINE_LIMIT_BYTES = 64 * 1024 * 1024  # of a line that the person's side reads; memory is taken as it comes


class LineTooLong(ValueError):
    """A line was longer than the limit; it was thrown away up to its end, and the next one can be read."""


def listen(path: Path) -> socket.socket:
    """Bind and listen, readable by this user only; a socket that a dead process left behind is replaced.

    Raises:
        AdapterNotReady: another process listens there, or the place cannot be used.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before bind, so that the file never has another mode
        with _short_path(path) as short:
            _clear_stale(path, short)
            listening.bind(short)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise AdapterNotReady(f"the terminal's socket {path} cannot be opened: {error.strerror or error}") from error
    except BaseException:
        listening.close()
        raise
    return listening


def file_of(path: Path) -> tuple[int, int] | None:
    """Which file is at the path, by device and inode; None where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


async def call(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a gateway's socket, and make sure that it is ours: whoever listens would read what is written.

    Raises:
        AdapterNotReady: no gateway listens there, or it is not this user's.
    """
    try:
        with _short_path(path) as short:
            reader, writer = await asyncio.open_unix_connection(short, limit=_PERSON_LINE_LIMIT_BYTES)
    except OSError as error:
        raise AdapterNotReady(f"no gateway answers at {path} ({error.strerror or error})") from error
    owner = peer_uid(writer)
    if os.getuid() not in {owner, 0} and owner != 0:
        writer.close()
        raise AdapterNotReady(f"{path} is held by {account_name(owner)}, not by you; nothing was sent")
    return reader, writer


def peer_uid(writer: asyncio.StreamWriter) -> int:
    """The user id of the process at the other end, told by the kernel (SO_PEERCRED, unix(7))."""
    raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, uid, _gid = _PEER_CREDENTIALS.unpack(raw)
    return int(uid)


def account_name(uid: int) -> str:
    """The login name, for people."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


async def read_line(reader: asyncio.StreamReader) -> bytes | None:
    """The next line without its newline; None at the end, where an unfinished line counts for nothing.

    Raises:
        LineTooLong: it is longer than the reader's limit.
    """
    try:
        return (await reader.readuntil(b"\n"))[:-1]
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        consumed = error.consumed
    while True:
        await reader.readexactly(consumed)
        try:
            await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            consumed = error.consumed
        except asyncio.IncompleteReadError:
            return None
        else:
            raise LineTooLong


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """The same place under a name that fits into the 107 bytes of an address, through an open directory."""
    if len(os.fsencode(path.name)) > _MAX_NAME_BYTES:
        raise AdapterNotReady(f"the socket's file name {path.name!r} is longer than {_MAX_NAME_BYTES} bytes")
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _clear_stale(path: Path, short: str) -> None:
    """Remove the socket of a dead process; nothing else is ever removed."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AdapterNotReady(f"{path} is in the way and is not a socket; move it, or set `socket` to another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(short)
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:  # its queue is full: somebody holds it
            pass
    raise AdapterNotReady(f"another process listens on {path}; stop it, or set `socket` to another path")
