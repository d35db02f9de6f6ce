"""A program that tries to get out of its sandbox, and prints as JSON which ways were open. Standard library alone."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_CLONE_NEWUSER = 0x10000000


def reads_environment_of_parent() -> bool:
    """The process that started this, whose secrets are in its environment."""
    known = os.environ["TMPDIR"].encode()  # what is inside has it in its environment, too
    places: list[Path] = []
    with contextlib.suppress(OSError):
        places = [*Path("/proc").iterdir()]
    for place in places:
        with contextlib.suppress(OSError):
            if place.name.isdigit() and known not in (place / "environ").read_bytes():
                return True
    return False


def reads_files_of_user() -> bool:
    """One that this very user has just made, and what the system says of its users."""
    for place in (sys.argv[1], "/etc/passwd"):
        with contextlib.suppress(OSError):
            if Path(place).read_bytes():
                return True
    return False


def writes_to_system() -> bool:
    """Where all programs of the machine look."""
    for place in ("/usr", "/etc", "/var/tmp"):  # noqa: S108 (to be refused)
        path = Path(place) / ".ethos-probe"
        with contextlib.suppress(OSError):
            path.touch()
            path.unlink()
            return True
    return False


def opens_socket_of_internet() -> bool:
    """To this machine, where servers trust who calls."""
    with contextlib.suppress(OSError), socket.socket() as opened:
        opened.settimeout(0.2)
        return opened.connect_ex(("127.0.0.1", 22)) not in _UNREACHABLE
    return False


def sends_datagram() -> bool:
    """To an address of nobody's."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.sendto(b"x", ("192.0.2.1", 9))
        return True
    return False


def signals_others() -> bool:
    """Whether the one that started this could be ended."""
    with contextlib.suppress(OSError):
        if os.getppid() > 1:
            os.kill(os.getppid(), 0)
            return True
    return False


def makes_namespace() -> bool:
    """In which it would be root, and reach more of the kernel."""
    pid = os.fork()
    if pid == 0:
        done = ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER)
        os._exit(0 if done == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def writes_too_large() -> bool:
    """A file that would fill a disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = Path("large")
    try:
        with path.open("wb") as file:
            file.truncate(1 << 30)
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True


_UNREACHABLE = {101, 111, 113, 1, 13}
_WAYS: dict[str, Callable[[], bool]] = {
    "the environment of other processes": reads_environment_of_parent,
    "files of the user": reads_files_of_user,
    "files of the system": writes_to_system,
    "the network": opens_socket_of_internet,
    "datagrams": sends_datagram,
    "signals to others": signals_others,
    "new namespaces": makes_namespace,
    "files without a limit": writes_too_large,
}


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: is_open() for name, is_open in _WAYS.items()}))
