"""Small servers that are not what a client expects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

PAGE = b"<!DOCTYPE html><title>Welcome</title>"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def speaking(answer: Answer) -> AsyncIterator[int]:
    """A server that speaks as the function says, with each who connects; gives its port."""

    meetings: set[asyncio.Task[None] | None] = set()

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        meetings.add(asyncio.current_task())
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went, or the test has ended
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in filter(None, meetings):
            task.cancel()
        await asyncio.gather(*filter(None, meetings), return_exceptions=True)


async def web_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An answer as a web server gives it to whatever it is asked."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\nConnection: close\r\n\r\n"
    await reader.read(65_536)
    writer.write(head.encode() + PAGE)
    await writer.drain()


async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Nothing, until the client goes."""
    while await reader.read(65_536):
        pass
