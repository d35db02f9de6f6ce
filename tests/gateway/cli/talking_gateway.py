"""A gateway for tests of the terminal: a real one, whose model says what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage, TextDelta
from gateway.app.gateway import Gateway
from gateway.config import Config
from gateway.messages import Action, ConversationRef, InboundMessage, OutboundMessage
from gateway.pipeline.commands import CommandCall, CommandResult
from gateway.pipeline.local_channel import named_place
from gateway.store.outbox import insert_replies

CHOICES = (Action(id="whoami x-y", label="Yes"), Action(id="usage", label="No\x1b[2J\nway"))


def place(name: str = "main") -> ConversationRef:
    """The operator's conversation of that name."""
    return named_place("operator", name)


class TalkingModel:
    """`say X` answers X; `stream X` shows X and waits for `go`, `silence` for `words`; all else is said again."""

    name = "talking"

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.words: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        asked = next(said.text for said in reversed(request.messages) if said.role == "user")
        word, _, rest = asked.partition(" ")
        text = rest if word in ("say", "stream") else f"You said: {asked}"
        if word == "silence":
            text = await asyncio.shield(self.words)
        yield TextDelta(text=text)
        if word == "stream":
            await self.go.wait()
            self.go.clear()
        usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1)
        yield ModelReply(message=ChatMessage(role="assistant", text=text), usage=usage)


class TalkingGateway:
    """A gateway with the local channel only, which can be stopped and started again.

    Attributes:
        received: what was kept, each message once.
        offered: the id of each message that came, as often as it came.
        failure: what is raised in place of keeping a message, while it is set.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.model = TalkingModel()
        self.received: dict[str, InboundMessage] = {}
        self.offered: asyncio.Queue[str] = asyncio.Queue()
        self.failure: Exception | None = None
        self._changed = asyncio.Condition()
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._gateway: Gateway | None = None

    async def start(self) -> None:
        self._stop.clear()
        config = Config(shutdown_s=0)
        self._gateway = Gateway(self.home, config, only=(), is_served=False, model=lambda _name: self.model)
        await self._gateway.__aenter__()
        self._gateway.commands._add("offer", "/offer", "offers something", _offer)
        keep = self._gateway.inbox.accept

        async def watched(message: InboundMessage) -> Any:
            self.offered.put_nowait(message.id)
            await self.before_keeping(message)
            if self.failure is not None:
                raise self.failure
            added = await keep(message)
            async with self._changed:
                self.received[message.id] = message
                self._changed.notify_all()
            await self.after_keeping(message)
            return added

        self._gateway.inbox.accept = watched  # type: ignore[method-assign]
        self._running = asyncio.create_task(self._gateway.run(self._stop))

    async def before_keeping(self, message: InboundMessage) -> None:
        """Nothing; a test may put something in its place."""

    async def after_keeping(self, message: InboundMessage) -> None:
        """Nothing, as above."""

    async def stop(self) -> None:
        """End as SIGTERM ends it."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None and self._running is not None:
            self._stop.set()
            await asyncio.wait_for(self._running, 60)
            await gateway.__aexit__()

    async def texts(self, amount: int) -> list[str]:
        """What was kept, once it is so much."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: len(self.received) >= amount)
        return [message.text for message in self.received.values()]

    async def post(self, text: str, *, reply_to: str | None = None, name: str = "main") -> None:
        """Say something that no turn waits for."""
        assert self._gateway is not None
        reply = OutboundMessage(id=secrets.token_hex(8), conversation=place(name), text=text, reply_to=reply_to)
        await self._gateway.store.engine.write(
            lambda connection: insert_replies(connection, "t_posted", [reply], delivered=[reply.id])
        )
        self._gateway.local_channel.told(reply.conversation)


async def _offer(call: CommandCall) -> CommandResult:
    return CommandResult(text=call.arguments, actions=CHOICES)


@contextlib.asynccontextmanager
async def talking(home: Path) -> AsyncIterator[TalkingGateway]:
    """A gateway that talks, stopped at the end."""
    gateway = TalkingGateway(home)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()
