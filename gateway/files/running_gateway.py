"""The gateway that runs on a data directory, seen from another process.

That it runs is known by its lock, which the kernel lets go of with the process. What it left in `run/gateway.json`
counts only with the lock: the token must not be sent to another program that has the port of a gateway that was
killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gateway.errors import DataDirectoryLocked, EthosError
from gateway.files.home import LOCK_NAME, RUNNING_NAME, TOKEN_NAME
from gateway.files.locks import HeldLock, hold, holder_pid

LOOK_S = 0.05
"""As long as `ethos status` may hold the lock of the data directory to see that no other process does."""
PATIENCE_S = 10.0
"""As long as one command may take, or a gateway to start or to end, while another process waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """A gateway that runs.

    Attributes:
        pid: as the process itself knows it; None in the moment of its start.
        url: of its web server; None where it has none.
    """

    pid: int | None
    url: str | None
    started_at: datetime | None


class TokenUnreadable(EthosError):
    """The token of the web server cannot be read."""


def running_gateway(home: Path) -> GatewayProcess | None:
    """The gateway that holds the data directory, None where none does.

    Raises:
        PermissionError: the directory is somebody else's.
    """
    lock = home / LOCK_NAME
    if not _is_held(lock):
        return None
    pid = holder_pid(lock)
    left = left_word(home)
    if left is None or left.pid != pid:
        return GatewayProcess(pid=pid, url=None, started_at=None)
    return left


async def take(home: Path) -> HeldLock:
    """Take the data directory, as soon as the commands that have it are done; a gateway that serves it keeps it.

    Somebody who only looks whether it is held has the lock for a moment, so a gateway's is tried twice, too.

    Raises:
        DataDirectoryLocked: a gateway serves it, or one process holds it for longer than `PATIENCE_S`.
    """
    clock = asyncio.get_running_loop().time
    holder: int | None = -1
    tried, give_up_at = 0, 0.0
    while True:
        try:
            return hold(home / LOCK_NAME)
        except DataDirectoryLocked as locked:
            if locked.pid != holder:
                holder, give_up_at = locked.pid, clock() + PATIENCE_S
            word = left_word(home)
            is_served = word is not None and word.pid == holder
            if clock() >= give_up_at or (is_served and tried):
                raise
        tried += 1
        await asyncio.sleep(LOOK_S)


def left_word(home: Path) -> GatewayProcess | None:
    """What a gateway left in `run/gateway.json`, whether it still runs or not; None where there is nothing legible."""
    try:
        word = json.loads((home / RUNNING_NAME).read_bytes())
        return GatewayProcess(
            pid=int(word["pid"]),
            url=None if word["url"] is None else str(word["url"]),
            started_at=datetime.fromisoformat(word["started_at"]),
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
        return None


def web_token(home: Path) -> str:
    """The operator's token for the gateway's web server.

    Raises:
        TokenUnreadable: there is none, or it is not ours to read; says what to do.
    """
    path = home / TOKEN_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TokenUnreadable(f"{path} is not a file; remove it and restart the gateway")
            token = file.read(4096).strip().decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenUnreadable(f"the token in {path} cannot be read: {error}") from error
    if not token.isprintable():
        raise TokenUnreadable(f"{path} holds no token; remove it and restart the gateway")
    return token


def _is_held(path: Path) -> bool:
    """Whether a process holds the lock. Ours is shared and gone at once, and makes no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
