"""An application that is made at its first request: what it needs takes a third of a second to load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

App = TypeVar("App", bound=ASGIApp)


class Lazy(Generic[App]):
    """Mounted in the application's place.

    Attributes:
        made: the application; None before its first request.
    """

    def __init__(self, load: Callable[[], object], make: Callable[[], App]) -> None:
        """Nothing is loaded yet.

        Args:
            load: imports what the application needs, in a thread.
            make: makes it; called once, after `load`.
        """
        self._load = load
        self._make = make
        self._making = asyncio.Lock()
        self.made: App | None = None

    async def application(self) -> App:
        """The application, made at the first call."""
        async with self._making:
            if self.made is None:
                await asyncio.to_thread(self._load)
                self.made = self._make()
        return self.made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await (self.made or await self.application())(scope, receive, send)
