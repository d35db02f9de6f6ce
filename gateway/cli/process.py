"""The gateway that runs on a data directory, seen from another process.

That it runs is known by its lock, which the kernel lets go of with the process. What it left in `run/gateway.json`
counts only beside the lock: the token must not be sent to another program that has the port of a gateway that was
killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway.errors import EthosError
from gateway.home import LOCK_NAME, RUNNING_NAME, TOKEN_NAME
from gateway.locks import holder_pid

HEALTH_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 4 * 1024 * 1024


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


class HealthUnknown(EthosError):
    """The running gateway did not say how it is; says why."""


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


def ask_health(home: Path, process: GatewayProcess) -> Mapping[str, Any]:
    """What the gateway says of itself, as `gateway.health.Health` has it.

    Raises:
        HealthUnknown: it has no web server, does not answer, or does not know our token.
    """
    from http.client import HTTPConnection, HTTPException  # unlike urllib, it asks no proxy
    from urllib.parse import urlsplit

    if process.url is None:
        raise HealthUnknown("it runs without a web server, or has only just begun to start")
    address = urlsplit(process.url)
    connection = HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health", headers={"authorization": f"Bearer {_token(home)}"})
        response = connection.getresponse()
        body = response.read(_MAX_ANSWER_BYTES)
    except (OSError, HTTPException) as error:
        raise HealthUnknown(f"{process.url} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if response.status == 401:
        raise HealthUnknown(f"it does not know the token in {home / TOKEN_NAME}; restart it")
    try:
        health = json.loads(body)
    except ValueError:
        health = None
    if response.status not in (200, 503) or not isinstance(health, dict):
        raise HealthUnknown(f"{process.url}health answered {response.status} {response.reason}")
    return health


def _token(home: Path) -> str:
    path = home / TOKEN_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise HealthUnknown(f"{path} is not a file; remove it and restart the gateway")
            token = file.read(4096).strip().decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise HealthUnknown(f"the token in {path} cannot be read: {error}") from error
    if not token.isprintable():
        raise HealthUnknown(f"{path} holds no token; remove it and restart the gateway")
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
