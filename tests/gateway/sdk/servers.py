"""Servers that do what a real gateway does seldom: they cut connections, and answer from a script."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Cutting:
    """A way to a gateway on which each stream of events breaks after some bytes, later each time.

    Attributes:
        url: of this way.
        cuts: how many streams broke.
    """

    url: str = ""
    cuts: int = 0


@asynccontextmanager
async def cutting(port: int, step_bytes: int) -> AsyncIterator[Cutting]:
    """Pass everything on to a port, and cut each stream of events after `step_bytes` more than the one before."""
    state = Cutting()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        head = await reader.readuntil(b"\r\n\r\n")
        there_writer.write(head)
        up = asyncio.create_task(pump(reader, there_writer))
        try:
            if b"/chat/events" in head.split(b"\r\n")[0]:
                state.cuts += 1
                with contextlib.suppress(asyncio.IncompleteReadError):
                    writer.write(await there_reader.readuntil(b"\r\n\r\n"))
                    left = state.cuts * step_bytes
                    while left > 0 and (data := await there_reader.read(left)):
                        left -= len(data)
                        writer.write(data)
                        await writer.drain()
            else:
                await pump(there_reader, writer)
        finally:
            up.cancel()
            for one in (writer, there_writer):
                one.close()

    def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@dataclass(frozen=True)
class Reply:
    """What the script answers; without a status the connection is closed."""

    status: int | None = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Scripted:
    """A server that answers from a script, and keeps what it was asked.

    Attributes:
        asked: request line and headers of each request.
    """

    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@asynccontextmanager
async def scripted(replies: Sequence[Reply]) -> AsyncIterator[Scripted]:
    """Answer with each reply in turn, one connection each."""
    state = Scripted()
    waiting = list(replies)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
        await reader.readexactly(int(headers.get("content-length", 0)))
        state.asked.append((line, headers))
        reply = waiting.pop(0)
        if reply.status is not None:
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            more = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
            start = f"HTTP/1.1 {reply.status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{more}\r\n"
            writer.write(start.encode() + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        server.close()
