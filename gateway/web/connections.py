"""Connections with an end: a request must come in time, and there are never more than the process has descriptors for.

Uvicorn waits for ever for a request that was begun, so a thousand half requests would take every descriptor. The limits
are those of Apache's mod_reqtimeout (https://httpd.apache.org/docs/2.4/mod/mod_reqtimeout.html): a head within ten
seconds, and of a body at least 500 bytes a second. What is answered, an event stream too, may take its time; but a
client that takes nothing of it for two minutes is given up (nginx: send_timeout).

The bodies of all requests that are held at one time share a budget, and requests that come all at once begin a few at
a time (`BodyBudget`, `Paced`).
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any, Literal, cast

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from gateway.files.unix_socket import is_of_owner
from gateway.web.auth import CALLER, OWNER

HEAD_S = 10.0
BODY_S = 15.0
BODY_BYTES_PER_S = 500.0
TAKEN_S = 120.0
MOST_CONNECTIONS = 4096
# Of the descriptors so many stay for files, databases, and connections of our own.
RESERVED_FILES = 256
WANTED_FILES = 65_536
# So much is held at most to be sent together with what comes in the same round of the event loop.
GATHERED_BYTES = 16 * 1024
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Crowd:
    """The connections of a server whose request is not there yet, oldest first."""

    def __init__(self, most: int) -> None:
        """`most` connections in all."""
        self.most = most
        self.waiting: dict[PunctualProtocol, None] = {}


class Gathered(asyncio.Transport):
    """A transport that sends all that is written in one round of the event loop at once: a head with its body.

    Each send is a system call, wakes the client, and has to get the interpreter back from the threads of the store.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it with what else is written now."""
        if not data:
            return
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(bytes(data))
        self._held_bytes += len(data)
        if self._held_bytes >= GATHERED_BYTES:  # a download: the transport says when it has enough
            self._flush()

    def close(self) -> None:
        """Send what was written, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._pieces.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """What the other side has not taken yet."""
        return self._held_bytes + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the transport itself has it."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Take nothing more in."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        self._transport.resume_reading()

    def _flush(self) -> None:
        pieces, self._pieces, self._held_bytes = self._pieces, [], 0
        if pieces:
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))


class PunctualProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with an end to all waiting for the client."""

    def __init__(self, *args: Any, crowd: Crowd, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._crowd = crowd
        self._until_s: float | None = None
        self._untaken_bytes = 0
        self._untaken_since_s = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it at the cost of the one that has kept us waiting longest; where there is none, refuse it."""
        super().connection_made(Gathered(transport, self.loop))
        connection = transport.get_extra_info("socket")
        if connection.family == socket.AF_UNIX:
            if not is_of_owner(connection):
                self.transport.abort()
                return
            self.app_state = {**self.app_state, OWNER: True}
        if len(self.connections) > self._crowd.most:
            oldest = next(iter(self._crowd.waiting), self)
            self._crowd.waiting.pop(oldest, None)
            oldest.transport.abort()
            if oldest is self:
                return
        self._crowd.waiting[self] = None
        self._until_s = self.loop.time() + HEAD_S

    def connection_lost(self, exc: Exception | None) -> None:
        """None is waited for any more."""
        self._crowd.waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; the sender gets time for more."""
        before = self.waits_for
        super().data_received(data)
        waits_for, now_s = self.waits_for, self.loop.time()
        if waits_for == before == "body" and self._until_s is not None:
            self._until_s = min(self._until_s + len(data) / BODY_BYTES_PER_S, now_s + 2 * BODY_S)
        elif waits_for != before or self._until_s is None:
            self._until_s = now_s + (BODY_S if waits_for == "body" else HEAD_S)
        if waits_for is None:
            self._crowd.waiting.pop(self, None)
        else:
            self._crowd.waiting.setdefault(self)

    def on_response_complete(self) -> None:
        """The next request of the connection has its own time; until it begins, uvicorn's keep-alive counts."""
        self._until_s = None
        super().on_response_complete()
        if self.waits_for == "body":  # of a request that came together with the one before
            self._until_s = self.loop.time() + BODY_S
        if self.waits_for is not None and not self.transport.is_closing():
            self._crowd.waiting.setdefault(self)

    def look(self, now_s: float) -> None:
        """Give a client up that is too late."""
        if self._takes_nothing(now_s):
            self.transport.abort()
            return
        waits_for = self.waits_for
        if waits_for is None or self._until_s is None:
            return
        if waits_for == "body" and self.flow.read_paused:  # it is us who do not read
            self._until_s = now_s + BODY_S
        elif now_s >= self._until_s:
            if waits_for == "head":
                self.transport.write(_TOO_LATE)
                self.transport.close()
            else:
                self.transport.abort()

    def _takes_nothing(self, now_s: float) -> bool:
        untaken_bytes = self.transport.get_write_buffer_size()
        if untaken_bytes == 0 or untaken_bytes < self._untaken_bytes:
            self._untaken_since_s = now_s
        self._untaken_bytes = untaken_bytes
        return now_s - self._untaken_since_s > TAKEN_S

    @property
    def waits_for(self) -> Literal["head", "body"] | None:
        """What the client has yet to send; None while it waits for us."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request, whatever its type says
        if cycle is None or cycle.response_complete:
            return "head"
        return "body" if cycle.more_body else None


def look_at(connections: Iterable[object], now_s: float) -> None:
    """Give up the clients that are too late."""
    for connection in list(connections):
        if isinstance(connection, PunctualProtocol):
            connection.look(now_s)


def give_up_bodies(connections: Iterable[object]) -> None:
    """End the requests whose body has not come whole: the server stops."""
    for connection in list(connections):
        if isinstance(connection, PunctualProtocol) and connection.waits_for == "body":
            connection.transport.abort()


def room_for_connections() -> int:
    """How many connections there may be at once; takes as many descriptors as the system gives, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, max(soft - RESERVED_FILES, soft // 2)))  # of a small limit half is kept back


MAX_HELD_BYTES = 32 * 1024 * 1024
# So much of a body always has room: a platform's webhook is not refused for the slow uploads of others.
SMALL_BYTES = 16 * 1024
# The ends of addresses that hand a body on as it comes, and hold nothing of it; of strangers none is taken there.
STREAMED = ("/traces/import",)


class BodyBudget:
    """Counts what each request has sent, until it is answered. What has no room is answered with 503.

    Half of it is for those who have shown a token, a key or a cookie: no stranger can take it from them with slow
    uploads.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on.

        Raises:
            HTTPException: 503, out of `receive`.
        """
        is_known = scope.get(CALLER) is not None
        if scope["type"] != "http" or (is_known and scope["path"].endswith(STREAMED)):
            await self._app(scope, receive, send)
            return
        mine_bytes = 0
        most_bytes = self._max_bytes if is_known else self._max_bytes // 2

        async def counted() -> Message:
            nonlocal mine_bytes
            message = await receive()
            size_bytes = len(message.get("body", b""))
            if mine_bytes + size_bytes > SMALL_BYTES and self._held_bytes + size_bytes > most_bytes:
                raise HTTPException(
                    503, "Too much is being sent to this gateway at once. Try again.", headers={"retry-after": "2"}
                )
            mine_bytes += size_bytes
            self._held_bytes += size_bytes
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._held_bytes -= mine_bytes


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
