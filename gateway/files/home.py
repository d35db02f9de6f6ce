"""The data directory: what lies where in it, and that it is its owner's alone.

A gateway makes directories 0700 and files 0600. Editors, `cp`, a restore by hand and a backup program do not, so every
start looks at them, and closes again what is open.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from gateway.errors import ConfigError, FileError, UnsafePath
from gateway.files.atomic import make_private_directory, write_atomically
from gateway.files.locks import refuse_network_file_system

LOCK_NAME = ".gateway.lock"
DATABASE_NAME = "ethos.sqlite"
RUNNING_NAME = "run/gateway.json"
TOKEN_NAME = "web-token"  # noqa: S105 (a file's name)
LOG_NAME = "gateway.log"
EXPORTS_NAME = "exports"

_FOR_OTHERS = 0o077
# What makes a directory one of ours. Somebody's home directory, given by mistake, is not changed.
_OURS = frozenset([".gateway.lock", "ethos.sqlite", "config.yaml", "users", "web-token"])
_BELOW = ("users", "personalities", "skills", "channels", "chat", "run", "secrets")
_FILES = ("config.yaml", "web-token", ".env", "gateway.log", ".gateway.lock")
_DATABASES = ("ethos.sqlite", "traces.")
_SHOWN = 5
_ELSEWHERE = "Change that, or choose another data directory with ETHOS_HOME."


def data_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where everything lives: `ETHOS_HOME`, or `~/.ethos`.

    Raises:
        ConfigError: it is a file. Or it begins with `~`, and there is no such home: in a container the user may have
            none.
    """
    home = (os.environ if environment is None else environment).get("ETHOS_HOME") or "~/.ethos"
    try:
        path = Path(home).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError([f"there is no home directory for {home}; set ETHOS_HOME to an absolute path"]) from error
    with contextlib.suppress(PermissionError):  # who opens something in it is told
        if path.exists() and not path.is_dir():
            raise ConfigError([f"the data directory {path} is a file; move it away, or set ETHOS_HOME to a directory"])
    return path


def prepare_home(home: Path) -> None:
    """Make the data directory, for its owner only; one that is there is closed to all others.

    Raises:
        UnsafePath: it lies on a file system that cannot lock, is another user's, or is open and full of other things.
        FileError: it cannot be made, or this user may not write into it.
        OSError: it cannot be looked at.
    """
    if home.is_dir():
        close_to_others(home)
    try:
        for directory in (home, home / "users", home / "personalities", home / "run", home / "channels"):
            make_private_directory(directory)
    except FileError as error:
        raise FileError(f"{error}. {_ELSEWHERE}") from error
    if not os.access(home, os.W_OK | os.X_OK):
        raise FileError(f"this user may not write into {home}. {_ELSEWHERE}")
    refuse_network_file_system(home)


def announce(home: Path, url: str | None, started_at: datetime) -> Callable[[], None]:
    """Leave word for commands and programs on this machine, without a secret; what is returned takes it back."""
    running = {"pid": os.getpid(), "url": url, "started_at": started_at.isoformat()}
    write_atomically(home / RUNNING_NAME, json.dumps(running).encode())
    return partial((home / RUNNING_NAME).unlink, missing_ok=True)


def close_to_others(home: Path) -> None:
    """Take from all others what they could read, write or enter in a data directory that is there.

    Links are left as they are. What cannot be changed, as on a read-only mount, is named in the log: behind a closed
    directory no other user reaches it.

    Raises:
        UnsafePath: the directory belongs to another user, cannot be closed, or is open and not one of ours.
    """
    status = home.stat()
    if status.st_uid != os.geteuid():
        raise UnsafePath(
            f"{home} belongs to the user {status.st_uid}, and this is the user {os.geteuid()}; run ethos as its owner, "
            "or choose another directory with ETHOS_HOME"
        )
    with os.scandir(home) as entries:
        names = {entry.name for entry in entries}
    if status.st_mode & _FOR_OTHERS:
        _close_home(home, status.st_mode, names)
    closed, kept = [], []
    for path in _open_to_others(home, names):
        try:
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~_FOR_OTHERS)
            closed.append(path)
        except OSError as error:
            kept.append(f"{path} ({error.strerror})")
    if closed:
        shown = [str(path.relative_to(home)) for path in closed[:_SHOWN]]
        _warn("files were readable by other users; now only by you", amount=len(closed), paths=shown)
    if kept:
        _warn("files are readable by other users and cannot be closed", amount=len(kept), paths=kept[:_SHOWN])


def _warn(event: str, **facts: object) -> None:
    import structlog  # noqa: PLC0415 (0.05 s that a command need not wait)

    structlog.get_logger(__name__).warning(event, **facts)


def _close_home(home: Path, mode: int, names: set[str]) -> None:
    wanted = f"expected a directory of its own that is closed to others: `chmod 700 {home}`, or set ETHOS_HOME"
    if names and not names & _OURS:
        raise UnsafePath(f"{home} is open to other users ({stat.S_IMODE(mode):04o}) and holds other files; {wanted}")
    try:
        home.chmod(0o700)
    except OSError as error:
        raise UnsafePath(f"{home} is open to other users and cannot be closed: {error.strerror}; {wanted}") from error
    _warn(
        "the data directory was readable by other users; now only by you",
        amount=1,
        paths=[str(home)],
        mode=f"{stat.S_IMODE(mode):04o}",
    )


def _open_to_others(home: Path, names: set[str]) -> Iterator[Path]:
    """Files, directories and sockets of ours that others may use; not the data directory itself."""
    for name in sorted(names):
        path = home / name
        if name in _FILES or name.startswith(_DATABASES):
            yield from _if_open(path)
        elif name in _BELOW and not path.is_symlink():
            yield from _if_open(path)
            for place, directories, files in os.walk(path):
                for below in (*directories, *files):
                    yield from _if_open(Path(place, below))


def _if_open(path: Path) -> Iterator[Path]:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # gone since
        return
    if mode & _FOR_OTHERS and not stat.S_ISLNK(mode):
        yield path
