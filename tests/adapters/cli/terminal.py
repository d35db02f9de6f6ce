"""The terminal channel under test: a bare client of its socket, and the adapter conformance suite's harness."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from adapters.cli import Config, build, client, socket_path
from adapters.cli.adapter import CliAdapter
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices, CommandInfo
from tests.conformance.adapters import soon
from tests.conformance.conversation_log import FakeLog
from tests.conformance.notes import FakeNotes

COMMANDS = (
    CommandInfo(name="help", usage="/help", description="lists the commands"),
    CommandInfo(name="memory", usage="/memory", description="prints both files"),
)


def make_adapter(
    directory: Path, log: FakeLog, *, config: Config | None = None, stalled_s: float | None = None
) -> CliAdapter:
    """An adapter whose state directory is `directory / "state"`."""
    services = AdapterServices(
        name="terminal", state_dir=directory / "state", log=log, notes=FakeNotes(), commands=COMMANDS
    )
    if stalled_s is None:
        return build(config or Config(), services)
    return CliAdapter(socket_path(config or Config(), services.state_dir), services, stalled_s=stalled_s)


def conversation(name: str = "main") -> ConversationRef:
    return ConversationRef(channel="terminal", conversation=name)


class BareTerminal:
    """Speaks the protocol in plain dictionaries, knowing nothing of the adapter's code but the socket.

    Attributes:
        frames: all that the gateway said on this connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.frames: list[dict[str, Any]] = []
        self.is_ended = False

    async def open(self) -> None:
        reader, self._writer = await client.call(self._path)
        self.frames, self.is_ended = [], False
        self._reading = asyncio.create_task(self._read(reader))

    async def hello(self, name: str = "main", after: int | None = None) -> dict[str, Any]:
        self.write({"type": "hello", "version": 1, "conversation": name, "after": after})
        return await self.first(lambda frame: frame["type"] in {"welcome", "error"})

    def write(self, frame: dict[str, Any] | bytes) -> None:
        assert self._writer is not None
        self._writer.write(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")

    def say(self, text: str, message_id: str | None = None) -> str:
        message_id = message_id or str(uuid4())
        self.write({"type": "message", "id": message_id, "text": text})
        return message_id

    def shown(self, direction: str = "out") -> list[dict[str, Any]]:
        return [each for each in self.frames if each["type"] == "message" and each["direction"] == direction]

    async def first(self, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first frame that matches, of those that came and those to come."""
        await self.until(lambda: any(matches(frame) for frame in self.frames))
        return next(frame for frame in self.frames if matches(frame))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(is_so)

        await soon(wait())

    async def ended(self) -> None:
        await self.until(lambda: self.is_ended)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                frame = json.loads(line)
                async with self._changed:
                    self.frames.append(frame)
                    self._changed.notify_all()
        except ConnectionError:
            pass  # as good an end as any
        async with self._changed:
            self.is_ended = True
            self._changed.notify_all()


class CliHarness:
    """The terminal channel for the conformance suite; the person has one terminal open."""

    longest_text_chars = 300_000
    unknown_conversation = ConversationRef(channel="terminal", conversation="no\nname")
    is_unknown_refused = True

    def __init__(self, directory: Path) -> None:
        self.log = FakeLog()
        self.adapter = make_adapter(directory, self.log)
        self.conversation = conversation()
        self._state = directory / "state"
        self._terminal = BareTerminal(self._state / "chat.sock")
        self._said: dict[str, str] = {}
        self._seen: dict[str, str] = {}
        self._acknowledged: set[str] = set()
        self._cursor: int | None = None

    def carries(self, text: str) -> bool:
        return "\x00" not in text

    async def attach(self) -> None:
        self._seen.clear()
        self._cursor = None
        await self._open()

    async def _open(self) -> None:
        await self._terminal.close()
        await self._terminal.open()
        self._cursor = (await self._terminal.hello(after=self._cursor))["cursor"]

    async def person_says(self, text: str) -> str:
        message_id = self._terminal.say(text)
        self._said[message_id] = text
        return message_id

    async def redeliver(self, event_id: str) -> None:
        self._terminal.say(self._said[event_id], event_id)

    def is_acknowledged(self, event_id: str) -> bool:
        return any(frame["type"] == "accepted" and frame["id"] == event_id for frame in self._terminal.frames)

    async def wait_acknowledged(self, event_id: str) -> None:
        await self._terminal.until(lambda: self.is_acknowledged(event_id))

    async def settle(self) -> None:
        other = BareTerminal(self._state / "chat.sock")
        await other.open()
        await other.hello("settling")
        await other.close()

    async def record(self, message: OutboundMessage) -> None:
        self.log.add_out(message)

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        await self._terminal.until(lambda: len(self._collect()) >= amount)
        return list(self._seen.items())

    def _collect(self) -> dict[str, str]:
        for frame in self._terminal.shown():
            assert frame["id"] not in self._seen or frame["cursor"] <= (self._cursor or 0), "shown twice"
            if frame["cursor"] > (self._cursor or 0):
                self._seen[frame["id"]] = frame["text"]
                self._cursor = frame["cursor"]
        return self._seen

    async def previewed(self, message_id: str, text: str) -> None:
        wanted = {"type": "preview", "id": message_id, "text": text}
        await self._terminal.first(lambda frame: frame == wanted)

    async def drop_connection(self) -> None:
        self._collect()
        await self._open()

    async def go_down(self) -> None:
        self._state.write_text("a file where the directory should be")

    async def come_up(self) -> None:
        self._state.unlink()

    async def close(self) -> None:
        await self._terminal.close()
