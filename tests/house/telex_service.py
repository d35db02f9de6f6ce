"""The imaginary service of `adapters/ADDING_AN_ADAPTER.md`, played by the test on a free port of this machine."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices, ChannelAdapter, LogEntry
from tests.conformance.notes import FakeNotes

TOKEN = "a token of Telex"
_LIMIT_BYTES = 4 * 1024 * 1024


class NoLog:
    """Telex keeps its own history."""

    async def read(self, conversation: ConversationRef, **_: object) -> Sequence[LogEntry]:
        raise AssertionError(f"nobody should ask for {conversation}")


class TelexService:
    """Takes and hands out lines.

    Attributes:
        shown: what people can read, by the id of the piece, in order.
        acknowledged: ids of events.
    """

    def __init__(self) -> None:
        self.port = 0
        self.shown: dict[str, str] = {}
        self.acknowledged: set[str] = set()
        self.answers: list[dict[str, Any]] = []
        """Given to the next sends in place of the true one; an empty one hangs up."""
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.StreamWriter | None = None
        self._waiting: list[dict[str, Any]] = []
        self._given: set[str] = set()

    async def start(self) -> None:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._server = await asyncio.start_server(take, "127.0.0.1", self.port, limit=_LIMIT_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(condition)

    async def listened_to(self) -> None:
        await self.until(lambda: self._listener is not None)

    async def all_acknowledged(self) -> None:
        await self.until(lambda: self._given <= self.acknowledged)

    def give(self, event: dict[str, Any]) -> None:
        """Hand an event over, now or when somebody listens."""
        self._waiting.append(event)
        self._flush()

    def hang_up(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _flush(self) -> None:
        if self._listener is not None:
            for event in self._waiting:
                self._listener.write(json.dumps(event).encode() + b"\n")
                self._given.add(str(event.get("event")))
            self._waiting.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                await self._obey(json.loads(line), writer)
        except ConnectionError:
            pass  # they hung up
        finally:
            if self._listener is writer:
                self._listener = None
            writer.close()

    async def _obey(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if "ack" in asked:
            self.acknowledged.add(asked["ack"])
        elif asked["token"] != TOKEN:
            writer.write(b'{"error": "bad token"}\n')
        elif "listen" in asked:
            writer.write(b'{"ok": true}\n')
            self._listener = writer
            self._flush()
        else:
            answer = self.answers.pop(0) if self.answers else self._sent(asked)
            if answer:
                writer.write(json.dumps(answer).encode() + b"\n")
            else:
                writer.close()
        async with self._changed:
            self._changed.notify_all()

    def _sent(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["to"] != "c1":
            return {"refused": "no such conversation"}
        self.shown.setdefault(asked["send"], asked["text"])
        return {"sent": f"p{list(self.shown).index(asked['send'])}"}


class TelexHarness:
    """The adapter of the page, with the service that it speaks to."""

    conversation = ConversationRef(channel="office", conversation="c1")
    unknown_conversation = ConversationRef(channel="office", conversation="nowhere")
    is_unknown_refused = True
    longest_text_chars = 20_000

    def __init__(self, token: str = TOKEN) -> None:
        self.service = TelexService()
        self._token = token
        self._numbers = count(1)
        self._events: dict[str, dict[str, Any]] = {}
        self._adapter: ChannelAdapter | None = None

    @property
    def adapter(self) -> ChannelAdapter:
        assert self._adapter is not None
        return self._adapter

    async def start(self) -> None:
        await self.service.start()
        telex = importlib.import_module("adapters.telex")
        services = AdapterServices(name="office", state_dir=Path("unused"), log=NoLog(), notes=FakeNotes(), commands=())
        config = telex.Config(host="127.0.0.1", port=self.service.port, token=self._token)
        self._adapter = telex.build(config, services)

    def carries(self, text: str) -> bool:  # noqa: ARG002
        return True

    async def attach(self) -> None:
        self.service.shown.clear()
        await self.service.listened_to()

    async def person_says(self, text: str) -> str:
        number = next(self._numbers)
        event = {
            "event": f"e{number}", "id": f"m{number}", "from": "42", "name": "Ada", "to": "c1", "text": text,
            "at": "2026-11-20T10:00:00Z",
        }  # fmt: skip
        self._events[f"e{number}"] = event
        self.service.give(event)
        return f"e{number}"

    async def redeliver(self, event_id: str) -> None:
        self.service.give(self._events[event_id])

    def is_acknowledged(self, event_id: str) -> bool:
        return event_id in self.service.acknowledged

    async def wait_acknowledged(self, event_id: str) -> None:
        await self.service.until(lambda: self.is_acknowledged(event_id))

    async def settle(self) -> None:
        for _ in range(10):  # both ends are in this event loop, so what was written is read by then
            await asyncio.sleep(0)

    async def record(self, message: OutboundMessage) -> None:
        """Telex has a memory of its own."""

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        await self.service.until(lambda: len(self._messages()) >= amount)
        return list(self._messages().items())

    def _messages(self) -> dict[str, str]:
        """The pieces, put together."""
        whole: dict[str, str] = {}
        for id_, text in self.service.shown.items():
            message_id = id_.rpartition(".")[0]
            whole[message_id] = whole.get(message_id, "") + text
        return whole

    async def go_down(self) -> None:
        await self.service.stop()

    async def come_up(self) -> None:
        await self.service.start()

    async def drop_connection(self) -> None:
        await self.service.listened_to()
        await self.service.all_acknowledged()
        self.service.hang_up()

    async def close(self) -> None:
        await self.service.stop()
