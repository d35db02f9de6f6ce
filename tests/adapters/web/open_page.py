"""A page without a browser: posts messages and reads the event stream, straight through ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from starlette.authentication import SimpleUser

from adapters.web import Config, build
from adapters.web.adapter import WebAdapter
from adapters.web.convert import to_html
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices
from tests.conformance.adapters import soon
from tests.conformance.conversation_log import FakeLog
from tests.conformance.notes import FakeNotes

MAIN = ConversationRef(channel="web", conversation="main")


def logged_in(adapter: WebAdapter) -> Any:
    """The adapter's application as it is called behind the gateway's login."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await adapter.http_app(scope | {"user": SimpleUser("operator")}, receive, send)

    return app


def client_of(adapter: WebAdapter) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(logged_in(adapter), raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def post(
    adapter: WebAdapter, text: str, *, message_id: str | None = None, conversation: str = "main"
) -> httpx.Response:
    async with client_of(adapter) as client:
        body = {"id": message_id or str(uuid4()), "conversation": conversation, "text": text}
        return await client.post("/messages", json=body)


class OpenPage:
    """One event stream.

    Attributes:
        events: (name, cursor, data), as they came.
        status: of the response, None before it began.
        may_read: cleared, the page takes nothing, as one behind a slow line.
    """

    def __init__(self, adapter: WebAdapter, *, after: int | None = None, query: str = "conversation=main") -> None:
        self._app = logged_in(adapter)
        self._query = query
        self._after = after
        self._leaving = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._buffer = b""
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.status: int | None = None
        self.events: list[tuple[str, int | None, dict[str, Any]]] = []
        self.comments = 0

    async def open(self, *, until: str = "live") -> OpenPage:
        headers = [(b"host", b"localhost"), (b"accept", b"text/event-stream")]
        if self._after is not None:
            headers.append((b"last-event-id", str(self._after).encode()))
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/events",
            "root_path": "",
            "scheme": "http",
            "query_string": self._query.encode(),
            "headers": headers,
        }
        self._task = asyncio.create_task(self._app(scope, self._receive, self._send))
        if until:
            await self.first(lambda event: event[0] == until)
        return self

    async def first(self, matches: Callable[[tuple[str, int | None, dict[str, Any]]], bool]) -> dict[str, Any]:
        await self.until(lambda: any(map(matches, self.events)))
        return next(event[2] for event in self.events if matches(event))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(is_so)

        await soon(wait())

    def messages(self) -> list[tuple[int, str]]:
        """(cursor, text) of what was said."""
        return [(cursor or 0, data["text"]) for name, cursor, data in self.events if name == "message"]

    @property
    def cursor(self) -> int | None:
        """Of the last message, as a browser keeps it."""
        return next((cursor for _, cursor, _ in reversed(self.events) if cursor is not None), self._after)

    async def ended(self) -> None:
        assert self._task is not None
        await soon(asyncio.shield(self._task))

    async def leave(self) -> None:
        self._leaving.set()
        if self._task is not None:
            await soon(asyncio.shield(self._task))

    async def _receive(self) -> dict[str, Any]:
        await self._leaving.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self.may_read.wait()
        async with self._changed:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            else:
                self._buffer += message["body"]
                *blocks, self._buffer = self._buffer.split(b"\n\n")
                for block in blocks:
                    self._take(block.decode("ascii"))
            self._changed.notify_all()

    def _take(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "event" in fields:
            cursor = int(fields["id"]) if "id" in fields else None
            self.events.append((fields["event"], cursor, json.loads(fields["data"])))
        else:
            self.comments += 1


class WebHarness:
    """The web channel for the conformance suite; the person has one page open."""

    longest_text_chars = 100_000
    conversation = MAIN

    def __init__(self, directory: Path) -> None:
        self.log = FakeLog()
        services = AdapterServices(
            name="web", state_dir=directory / "state", log=self.log, notes=FakeNotes(), commands=()
        )
        self.adapter = build(Config(), services)
        self._page: OpenPage | None = None
        self._seen: list[tuple[str, str]] = []
        self._posts: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._posting: asyncio.Task[None] | None = None
        self._said: dict[str, str] = {}
        self._acknowledged: set[str] = set()
        self._changed = asyncio.Condition()

    def carries(self, text: str) -> bool:
        return "\x00" not in text

    async def attach(self) -> None:
        await self.close()
        while not self._is_running():  # `run` was only just started
            await asyncio.sleep(0)
        entries = await self.log.read(MAIN, newest=True, limit=1)
        self._seen = []
        self._page = await OpenPage(self.adapter, after=entries[-1].cursor if entries else 0).open()
        self._posting = asyncio.create_task(self._post_in_order())

    def _is_running(self) -> bool:
        return self.adapter._accept is not None

    async def _post_in_order(self) -> None:
        """As the page does: the next one after the last one's answer."""
        while True:
            message_id, text = await self._posts.get()
            response = await post(self.adapter, text, message_id=message_id)
            if response.status_code == 202:
                async with self._changed:
                    self._acknowledged.add(message_id)
                    self._changed.notify_all()

    async def person_says(self, text: str) -> str:
        message_id = str(uuid4())
        self._said[message_id] = text
        self._posts.put_nowait((message_id, text))
        return message_id

    async def redeliver(self, event_id: str) -> None:
        self._posts.put_nowait((event_id, self._said[event_id]))

    def is_acknowledged(self, event_id: str) -> bool:
        return event_id in self._acknowledged

    async def wait_acknowledged(self, event_id: str) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.is_acknowledged(event_id))

    async def settle(self) -> None:
        async with client_of(self.adapter) as client:
            await client.get("/")

    async def record(self, message: OutboundMessage) -> None:
        self.log.add_out(message)

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        assert self._page is not None
        page = self._page
        await page.until(lambda: len(self._seen) + len(page.messages()) >= amount)
        return [*self._seen, *_messages(page)]

    async def previewed(self, message_id: str, text: str) -> None:
        assert self._page is not None
        wanted = {"id": message_id, "html": to_html(text) if text else ""}
        await self._page.first(lambda event: event[0] == "preview" and event[2] == wanted)

    async def drop_connection(self) -> None:
        assert self._page is not None
        await self._page.leave()
        self._seen += _messages(self._page)
        self._page = await OpenPage(self.adapter, after=self._page.cursor).open()

    async def close(self) -> None:
        if self._posting is not None:
            self._posting.cancel()
            await asyncio.gather(self._posting, return_exceptions=True)
            self._posting = None
        if self._page is not None:
            await self._page.leave()
            self._page = None


def _messages(page: OpenPage) -> list[tuple[str, str]]:
    return [(data["id"], data["text"]) for name, _, data in page.events if name == "message"]
