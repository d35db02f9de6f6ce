"""A Unix socket of the data directory: only its owner can open it, and the kernel says who is at the other end."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

SOCKET_NAME = "run/gateway.sock"

_PEER_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
_BACKLOG = 128


def listen(path: Path) -> socket.socket:
    """Listen at a path in a data directory that is ours, so what lies there is of a dead process.

    Raises:
        OSError: the place cannot be used.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before bind, so that the file never has another mode
        path.unlink(missing_ok=True)
        with short_path(path) as short:
            listening.bind(short)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def is_served(path: Path) -> bool:
    """Whether a process takes connections there.

    Raises:
        OSError: the place cannot be looked at.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as trying:
        try:
            with short_path(path) as short:
                trying.connect(short)
        except BlockingIOError:  # so many others wait that there is no room in its queue
            return True
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return False
    return True


def is_of_owner(connection: socket.socket) -> bool:
    """Whether the process at the other end runs as our user, or as root (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, uid, _gid = _PEER_CREDENTIALS.unpack(raw)
    return uid in (os.getuid(), 0)


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The same place under a name that fits into the 107 bytes of an address, through an open directory."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
