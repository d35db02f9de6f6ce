"""Server-sent events (WHATWG HTML, section 9.2) from what a service tells.

A message of the log has its place as `id`, and so has `live`: a reader that comes again with `Last-Event-ID` goes on
behind it and misses nothing. What is shown in passing has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.errors import EthosError
from gateway.services.stream import Event

PLACE = re.compile(r"^[0-9]{1,18}$", re.ASCII)
HEARTBEAT = b": still here\n\n"
LAST_WORD_S = 0.5

_log = structlog.get_logger(__name__)


class EventStreamResponse(Response):
    """Writes events until the reader goes away or there are no more.

    Args:
        events: as they go over the wire; see `framed`.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(media_type=self.media_type, headers={"x-accel-buffering": "no", "cache-control": "no-store"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI's signature)
        """Write."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        writing = asyncio.create_task(self._write(send), name="event stream")
        leaving = asyncio.create_task(_has_left(receive), name="reader of events")
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            writing.cancel()
            leaving.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)
        with contextlib.suppress(TimeoutError):  # a reader that reads no more must not hold us up
            async with asyncio.timeout(LAST_WORD_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        if not writing.cancelled():
            writing.result()

    async def _write(self, send: Send) -> None:
        try:
            async with contextlib.aclosing(self._events) as events:  # type: ignore[type-var]
                async for body in events:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except EthosError as error:  # the reader reconnects, and goes on where it was
            _log.warning("event stream ended", reason=str(error))


async def framed(events: AsyncIterator[Event | None], is_let_in: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
    """As the API's readers receive them.

    Args:
        is_let_in: asked before each of them; a stream outlives the check at its door.
    """
    async with contextlib.aclosing(events) as each:  # type: ignore[type-var]
        async for event in each:
            if not await is_let_in():
                return
            yield HEARTBEAT if event is None else to_frame(event)


def to_frame(event: Event) -> bytes:
    """As it goes over the wire: the data is one line, for JSON escapes line ends."""
    place = "" if event.place is None else f"id: {event.place}\n"
    return f"{place}event: {event.name}\ndata: {event.data.model_dump_json(by_alias=True)}\n\n".encode(
        "utf-8", "replace"
    )


async def _has_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
