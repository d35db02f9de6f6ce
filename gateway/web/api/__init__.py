"""The HTTP API under `/api/v1`. Nothing of it is loaded before its first request."""

from __future__ import annotations

import asyncio
import importlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from gateway.app import Gateway
    from gateway.desk.caller import Caller
    from gateway.desk.desks import Desks

PATH = "/api/v1"


class Api:
    """The door of the API: an ASGI application, and whoever holds a key of it."""

    def __init__(self, desks: Callable[[], Desks], make: Callable[[Desks], ASGIApp]) -> None:
        """Nothing is made yet.

        Args:
            desks: makes the desks; called once.
            make: makes the application of them; called once.
        """
        self._make_desks = desks
        self._make = make
        self._desks: Desks | None = None
        self._app: ASGIApp | None = None
        self._making = asyncio.Lock()

    @property
    def desks(self) -> Desks:
        """What the API and the pages ask."""
        if self._desks is None:
            self._desks = self._make_desks()
        return self._desks

    async def caller(self, key: str) -> Caller | None:
        """Whoever holds the API key; None where it is wrong or revoked."""
        return await self.desks.keys.caller(key)

    async def application(self) -> ASGIApp:
        """The application, made at the first call: its libraries take a third of a second to load."""
        async with self._making:
            if self._app is None:
                await asyncio.to_thread(importlib.import_module, "gateway.web.api.application")
                self._app = self._make(self.desks)
        return self._app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app or await self.application()
        await app(scope, receive, send)


def api_of(gateway: Gateway) -> Api:
    """The API of a gateway."""

    def desks() -> Desks:
        from gateway.desk.desks import desks_of  # noqa: PLC0415 (loaded at the first request)

        return desks_of(gateway)

    def make(desks: Desks) -> ASGIApp:
        from gateway.store.idempotency import SqliteIdempotency  # noqa: PLC0415 (loaded at the first request)
        from gateway.web.api.application import make_application  # noqa: PLC0415 (loaded at the first request)

        return make_application(desks, SqliteIdempotency(gateway.store.database, owner=secrets.token_hex(8)))

    return Api(desks, make)
