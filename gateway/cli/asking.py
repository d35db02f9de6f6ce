"""The running gateway, asked by the SDK: what changes its queues or its memory is its own work while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gateway.files.running_gateway import running_gateway

if TYPE_CHECKING:  # a command that finds no gateway needs no client
    from gateway.sdk.client import AsyncEthos

T = TypeVar("T")

MAX_RETRIES = 2


class GatewayUnreachable(Exception):
    """No gateway runs, it has no web server, or it did not see the request."""


async def ask_gateway(home: Path, question: Callable[[AsyncEthos], Awaitable[T]]) -> T:
    """What the gateway that runs on the data directory answers.

    Raises:
        GatewayUnreachable: nothing was done; the command may work on the files itself.
        APIError: the gateway said no, or it is unknown whether it has done it.
    """
    process = running_gateway(home)
    if process is None or process.url is None:
        raise GatewayUnreachable
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.errors import APIConnectionError, AuthenticationError

    async with AsyncEthos(home=home, max_retries=MAX_RETRIES) as client:
        try:
            return await question(client)
        except APIConnectionError as error:
            if error.may_have_arrived:
                raise
            raise GatewayUnreachable from error
        except AuthenticationError as error:  # it was started with another token than the one in the file
            raise GatewayUnreachable from error
