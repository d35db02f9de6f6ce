"""A gateway of one channel for tests of the terminal's person side: the real adapter, a log in memory, and an agent.

Run as a program (`python -m tests.gateway.cli.talking_gateway <directory>`) it serves until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.messages import Action, InboundMessage, OutboundMessage
from tests.adapters.cli.terminal import make_adapter
from tests.conformance.conversation_log import FakeLog

CHOICES = (Action(id="confirm a-b", label="Yes"), Action(id="cancel", label="No\x1b[2J\nway"))


class TalkingGateway:
    """Answers what it is told, as the text says.

    `say X` answers X; `stream X` shows previews of X and waits for `go`; `silence` is never answered; `offer X`
    answers X with two choices; anything else is answered with `You said: ...`.

    Attributes:
        received: what was accepted, each id once.
        failure: what `accept` raises, while it is set.
        go: ends a stream.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = FakeLog()
        self.adapter = make_adapter(directory, self.log)
        self.socket_path = directory / "state" / "chat.sock"
        self.received: dict[str, InboundMessage] = {}
        self.failure: Exception | None = None
        self.go = asyncio.Event()
        self._changed = asyncio.Condition()
        self._turns: set[asyncio.Task[None]] = set()
        self._run: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.adapter.connect()
        self._run = asyncio.create_task(self.adapter.run(self.accept))

    async def stop(self) -> None:
        tasks = [*self._turns, *([self._run] if self._run else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.adapter.close()

    async def accept(self, message: InboundMessage) -> None:
        if self.failure is not None:
            raise self.failure
        self.log.add_in(message)
        if message.id not in self.received:
            self.received[message.id] = message
            task = asyncio.create_task(self._turn(message))
            self._turns.add(task)
            task.add_done_callback(self._turns.discard)
        async with self._changed:
            self._changed.notify_all()

    async def texts(self, amount: int) -> list[str]:
        """What was received, once it is so much."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: len(self.received) >= amount)
        return [message.text for message in self.received.values()]

    async def answer(
        self, message: InboundMessage, text: str, *, number: int = 1, actions: tuple[Action, ...] = ()
    ) -> None:
        """Answer a message, or answer it once more."""
        out = replace(_out(message, text, number), actions=actions)
        self.log.add_out(out)
        await self.adapter.send(out)

    async def _turn(self, message: InboundMessage) -> None:
        word, _, rest = message.text.partition(" ")
        if word == "silence":
            return
        if word == "/stop":
            self.go.set()
        elif word == "stream":
            await self.adapter.show_typing(message.conversation)
            await self.adapter.preview(_out(message, rest))
            await self.go.wait()
            self.go.clear()
        is_text_given = word in {"say", "stream", "offer"}
        actions = CHOICES if word == "offer" else ()
        await self.answer(message, rest if is_text_given else f"You said: {message.text}", actions=actions)


def _out(message: InboundMessage, text: str, number: int = 1) -> OutboundMessage:
    return OutboundMessage(
        id=f"out-{number}-{message.id}", conversation=message.conversation, text=text, reply_to=message.id
    )


@contextlib.asynccontextmanager
async def talking(directory: Path, **attributes: Any) -> AsyncIterator[TalkingGateway]:
    """A gateway that talks, stopped at the end."""
    gateway = TalkingGateway(directory)
    for name, value in attributes.items():
        setattr(gateway, name, value)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


async def _main() -> None:
    async with talking(Path(sys.argv[1])):
        print("ready", flush=True)  # noqa: T201 (whoever started it waits for this)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
