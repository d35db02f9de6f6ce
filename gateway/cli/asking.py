"""The running gateway, asked by the SDK: what changes its queues or its memory is its own work while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gateway.files.running_gateway import running_gateway

if TYPE_CHECKING:  # a command that finds no gateway needs no client
    from gateway.sdk import AsyncEthos

T = TypeVar("T")

PATIENCE_S = 2.0


class NobodyAnswered(Exception):
    """No gateway runs, it has no web server, or it did not see the request."""


async def ask_gateway(home: Path, question: Callable[[AsyncEthos], Awaitable[T]]) -> T:
    """What the gateway that runs on the data directory answers.

    Raises:
        NobodyAnswered: nothing was done; the command may work on the files itself.
        EthosApiError: the gateway said no, or nobody knows whether it has done it.
    """
    process = running_gateway(home)
    if process is None or process.url is None:
        raise NobodyAnswered
    from gateway.sdk import AsyncEthos, NotKnown, NotReached

    async with AsyncEthos(home=home, patience_s=PATIENCE_S) as client:
        try:
            return await question(client)
        except NotReached as error:
            if error.may_have_arrived:
                raise
            raise NobodyAnswered from error
        except NotKnown as error:  # it was started with another token than the one in the file
            raise NobodyAnswered from error
