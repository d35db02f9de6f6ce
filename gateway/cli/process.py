"""How the gateway is that runs on a data directory, as it says itself."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from gateway.errors import EthosError
from gateway.files.unix_socket import SOCKET_NAME, short_path

HEALTH_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 4 * 1024 * 1024


class HealthUnknown(EthosError):
    """The running gateway did not say how it is; says why."""


def ask_health(home: Path) -> Mapping[str, Any]:
    """What the gateway says of itself through its Unix socket, as `gateway.sdk.models.system.Health` has it.

    Raises:
        HealthUnknown: it does not answer.
    """
    connection = _Connection(home / SOCKET_NAME)
    try:
        connection.request("GET", "/health")
        with connection.getresponse() as response:
            body = response.read(_MAX_ANSWER_BYTES)
    except (OSError, HTTPException) as error:
        raise HealthUnknown(f"{home / SOCKET_NAME} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    try:
        health = json.loads(body)
    except ValueError:
        health = None
    if response.status not in (200, 503) or not isinstance(health, dict):
        raise HealthUnknown(f"the gateway answered {response.status} {response.reason} to the question how it is")
    return health


class _Connection(HTTPConnection):
    """Over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=HEALTH_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(HEALTH_TIMEOUT_S)
        with short_path(self._path) as short:
            self.sock.connect(short)
