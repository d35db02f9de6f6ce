"""How the gateway is that runs on a data directory, as it says itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.errors import EthosError
from gateway.files.home import TOKEN_NAME
from gateway.files.running_gateway import GatewayProcess, TokenUnreadable, web_token

HEALTH_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 4 * 1024 * 1024


class HealthUnknown(EthosError):
    """The running gateway did not say how it is; says why."""


def ask_health(home: Path, process: GatewayProcess) -> Mapping[str, Any]:
    """What the gateway says of itself, as `gateway.sdk.models.system.Health` has it.

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
    try:
        return web_token(home)
    except TokenUnreadable as error:
        raise HealthUnknown(str(error)) from error
