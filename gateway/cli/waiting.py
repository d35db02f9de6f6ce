"""How a command waits for a gateway that runs: it says so, and asks one that does not answer only once."""

from __future__ import annotations

import asyncio

import typer

from gateway.cli.errors import GatewaySilent
from gateway.files.home import LOCK_NAME, data_directory
from gateway.files.locks import holder_pid
from gateway.sdk.client import AsyncEthos
from gateway.sdk.errors import APITimeoutError
from gateway.sdk.request import Response
from gateway.sdk.transport import AsyncTransport, HttpRequest

TELL_S = 2.0


class _CommandTransport(AsyncTransport):
    async def send(self, request: HttpRequest) -> Response:
        """Send; see `Transport`.

        Raises:
            GatewaySilent: no answer came within the request's time.
        """
        pid = holder_pid(data_directory() / LOCK_NAME)
        gateway = f"the gateway ({'' if pid is None else f'process {pid}, '}{request.socket})"
        telling = asyncio.get_running_loop().call_later(
            TELL_S, lambda: typer.echo(f"ethos: waiting for {gateway}", err=True)
        )
        try:
            return await super().send(request)
        except APITimeoutError as error:
            raise GatewaySilent(f"{gateway} has not answered for {request.timeout_s:g} s") from error
        finally:
            telling.cancel()


class CommandClient(AsyncEthos):
    """A client of a gateway that runs."""

    _transport = _CommandTransport
