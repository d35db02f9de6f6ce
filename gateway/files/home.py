"""The data directory: what lies where in it, and that it is its owner's alone."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from gateway.errors import ConfigError, DataDirectoryLocked
from gateway.files.atomic import make_private_directory, write_atomically
from gateway.files.locks import HeldLock, hold, refuse_network_file_system
from gateway.files.private import close_to_others

LOCK_NAME = ".gateway.lock"
DATABASE_NAME = "ethos.sqlite"
RUNNING_NAME = "run/gateway.json"
TOKEN_NAME = "web-token"  # noqa: S105 (a file's name)
LOG_NAME = "gateway.log"

# As long as `ethos status` may hold the lock of the data directory to see that nobody else does.
LOOK_S = 0.05


def data_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where everything lives: `ETHOS_HOME`, or `~/.ethos`.

    Raises:
        ConfigError: it begins with `~`, and there is no such home: in a container the user may have none.
    """
    home = (os.environ if environment is None else environment).get("ETHOS_HOME") or "~/.ethos"
    try:
        return Path(home).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError([f"there is no home directory for {home}; set ETHOS_HOME to an absolute path"]) from error


def prepare_home(home: Path) -> None:
    """Make the data directory, for its owner only; one that is there is closed to all others.

    Raises:
        UnsafePath: it lies on a file system that cannot lock, is another user's, or is open and full of other things.
        FileError: it cannot be made.
        OSError: it cannot be looked at.
    """
    if home.is_dir():
        close_to_others(home)
    for directory in (home, home / "users", home / "personalities", home / "run", home / "channels"):
        make_private_directory(directory)
    refuse_network_file_system(home)


async def take(home: Path) -> HeldLock:
    """Take the directory. Somebody who only looks whether it is held has the lock for a moment, so try twice.

    Raises:
        DataDirectoryLocked: another process has it.
    """
    try:
        return hold(home / LOCK_NAME)
    except DataDirectoryLocked:
        await asyncio.sleep(LOOK_S)
        return hold(home / LOCK_NAME)


def announce(home: Path, url: str | None, started_at: datetime) -> Callable[[], None]:
    """Leave word for `ethos status` and `ethos chat`, without a secret in it; what is returned takes it back."""
    running = {"pid": os.getpid(), "url": url, "started_at": started_at.isoformat()}
    write_atomically(home / RUNNING_NAME, json.dumps(running).encode())
    return partial((home / RUNNING_NAME).unlink, missing_ok=True)
