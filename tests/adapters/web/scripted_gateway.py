"""A gateway in one object: keeps messages in memory, shows them as the durable queues would, and answers by script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

from adapters.web import Config, build
from adapters.web.adapter import WebAdapter
from gateway.messages import Action, ConversationRef, InboundMessage, OutboundMessage
from gateway.protocols import AdapterServices, CommandInfo
from tests.conformance.conversation_log import FakeLog
from tests.conformance.notes import FakeNotes

COMMANDS = (
    CommandInfo(name="help", usage="/help", description="what can be said here"),
    CommandInfo(name="memory", usage="/memory", description="show what is remembered"),
    CommandInfo(name="new", usage="/new", description="begin a fresh session; memory stays"),
    CommandInfo(name="personality", usage="/personality [name]", description="show or switch who answers"),
    CommandInfo(name="search", usage="/search <words>", description="search what was said"),
    CommandInfo(name="stop", usage="/stop", description="stop the answer that is being written"),
)


Answer = Callable[["ScriptedGateway", InboundMessage], Awaitable[None]]


class ScriptedGateway:
    """Runs the adapter against a `FakeLog`. `answer` is called after each commit, as a turn would be."""

    def __init__(
        self, state_dir: Path, *, answer: Answer | None = None, config: Config | None = None, log: FakeLog | None = None
    ) -> None:
        self.log = log or FakeLog()
        self.adapter: WebAdapter = build(
            config or Config(),
            AdapterServices(name="web", state_dir=state_dir, log=self.log, notes=FakeNotes(), commands=COMMANDS),
        )
        self.accepted: list[InboundMessage] = []
        self.failure: Exception | None = None
        self._answer = answer
        self._seen: set[str] = set()
        self._turns: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.adapter.connect()
        self._running = asyncio.create_task(self.adapter.run(self.accept))
        await asyncio.sleep(0)

    async def stop(self) -> None:
        for task in (*self._turns, self._running):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self.adapter.close()

    async def accept(self, message: InboundMessage) -> None:
        if self.failure is not None:
            raise self.failure
        if message.event_id in self._seen:
            return
        self._seen.add(message.event_id)
        self.accepted.append(message)
        self.log.add_in(message)
        if self._answer is not None:
            turn = asyncio.create_task(self._answer(self, message))
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)

    def next_id(self) -> str:
        return f"out-{uuid4()}"

    async def say(
        self,
        conversation: ConversationRef,
        text: str,
        *,
        message_id: str | None = None,
        actions: tuple[Action, ...] = (),
    ) -> str:
        """Commit a reply, then send it."""
        message = OutboundMessage(
            id=message_id or self.next_id(), conversation=conversation, text=text, actions=actions
        )
        self.log.add_out(message)
        await self.adapter.send(message)
        return message.id


async def stream_echo(gateway: ScriptedGateway, message: InboundMessage) -> None:
    """Show the answer as it is written, then send it under the same id."""
    message_id = gateway.next_id()
    text = f"You said: **{message.text}**"
    await gateway.adapter.show_typing(message.conversation)
    for end in range(4, len(text), 4):
        await gateway.adapter.preview(
            OutboundMessage(id=message_id, conversation=message.conversation, text=text[:end])
        )
        await asyncio.sleep(0)
    await gateway.say(message.conversation, text, message_id=message_id)
