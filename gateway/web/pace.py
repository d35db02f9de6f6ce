"""Requests that come all at once begin a few at a time: who asks for the health does not wait for all of them."""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.types import ASGIApp, Receive, Scope, Send

# In one round of the event loop; each takes about a millisecond of it.
AT_ONCE = 8
AHEAD = "/health"


class Paced:
    """Lets `AT_ONCE` requests begin in each round of the event loop, in their order; those for the health at once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, when it is its turn."""
        if not scope.get("path", "").startswith(AHEAD):
            await self._turn()
        await self._app(scope, receive, send)

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        if self._begun == 0:
            loop.call_soon(self._next_round)
        if self._begun < AT_ONCE and not self._waiting:
            self._begun += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next_round(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < AT_ONCE:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._begun += 1
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next_round)
