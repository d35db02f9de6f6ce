"""A channel whose platform is the driver, in another process: lines of JSON over a Unix socket.

It is as simple as an adapter can be, and keeps the contract. What the platform can do for an uncertain send is
configured: nothing (`plain`), tell whether it arrived (`lookup`), or show one id once (`idempotent`).
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gateway.errors import AdapterNotReady, PermanentSendError, TransientSendError, UncertainSendError
from gateway.messages import Attachment, Capabilities, ConversationRef, InboundMessage, OutboundMessage, Receipt, Sender
from gateway.protocols import Accept, AdapterServices

ACCESS_DEFAULT = "open"
LINE_BYTES = 1 << 24

Sends = Literal["plain", "lookup", "idempotent"]


class Config(BaseModel):
    """Where the driver listens, and what its platform can do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    sends: Sends = "plain"
    has_voice: bool = False


class WireChannel:
    """The adapter."""

    kind = "wire"

    def __init__(self, config: Config, services: AdapterServices) -> None:
        self.name = services.name
        self.capabilities = Capabilities(
            max_text_chars=100_000,
            is_idempotent_send=config.sends == "idempotent",
            voice="message" if config.has_voice else None,
        )
        self._path = config.path
        self._notes = services.notes
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        await self.close()
        try:
            reader, self._writer = await asyncio.open_unix_connection(str(self._path), limit=LINE_BYTES)
        except OSError as error:
            raise AdapterNotReady(str(error)) from error
        self._said = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(reader, self._said))

    async def run(self, accept: Accept) -> None:
        """One task for each conversation, so that its order is kept and others do not wait."""
        queues: dict[str, asyncio.Queue[dict[str, Any]]] = defaultdict(asyncio.Queue)
        async with asyncio.TaskGroup() as tasks:
            self._say(type="ready")
            while (frame := await self._said.get()) is not None:
                if frame["conversation"] not in queues:
                    tasks.create_task(self._take(queues[frame["conversation"]], accept))
                queues[frame["conversation"]].put_nowait(frame)
            raise AdapterNotReady("the platform hung up")

    async def _read(self, reader: asyncio.StreamReader, said: asyncio.Queue[dict[str, Any] | None]) -> None:
        """Until the line breaks; the answers to our sends come in after `run` has ended, too."""
        try:
            while line := await reader.readline():
                frame = json.loads(line)
                if frame["type"] == "answer":
                    asked = self._asked.pop(frame["number"], None)
                    if asked is not None and not asked.done():
                        asked.set_result(frame)
                else:
                    said.put_nowait(frame)
        finally:
            said.put_nowait(None)
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(UncertainSendError("the line broke"))

    async def _take(self, queue: asyncio.Queue[dict[str, Any]], accept: Accept) -> None:
        while True:
            frame = await queue.get()
            await accept(self._message(frame))
            await self._notes.put(f"last/{frame['conversation']}", frame["id"], is_durable=False)
            self._say(type="acknowledged", id=frame["id"])

    def _message(self, frame: dict[str, Any]) -> InboundMessage:
        return InboundMessage(
            id=frame["id"],
            event_id=frame["id"],
            conversation=ConversationRef(channel=self.name, conversation=frame["conversation"]),
            sender=Sender(
                channel=self.name, user=frame["conversation"], display_name=frame["conversation"], is_verified=True
            ),
            text=frame["text"],
            sent_at=datetime.now(UTC),
            attachments=_voices(frame),
        )

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """A recording is its own handle."""
        data = base64.b64decode(attachment.ref)
        if len(data) > max_bytes:
            raise PermanentSendError("it is too large")
        return data

    async def send(self, message: OutboundMessage) -> Receipt:
        answer = await self._ask(
            type="send", id=message.id, conversation=message.conversation.conversation, text=message.text
        )
        failure = answer.get("failure")
        if failure is not None:
            kinds = {"transient": TransientSendError, "uncertain": UncertainSendError, "permanent": PermanentSendError}
            raise kinds[failure](f"the platform says {failure}")
        return Receipt(message_ids=(answer["receipt"],))

    async def _ask(self, **frame: Any) -> dict[str, Any]:
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self._say(**frame, number=number)
        return await asked

    def _say(self, **frame: Any) -> None:
        if self._writer is None or self._writer.is_closing():
            raise TransientSendError("there is no line")
        self._writer.write(json.dumps(frame).encode() + b"\n")

    async def close(self) -> None:
        if self._writer is not None:
            self._reading.cancel()
            self._writer.close()
            self._writer = None


def _voices(frame: dict[str, Any]) -> tuple[Attachment, ...]:
    voice = frame.get("voice")
    if voice is None:
        return ()
    return (Attachment(media_type="audio/ogg", filename="voice", size_bytes=0, ref=voice, is_voice=True),)


class AskableWireChannel(WireChannel):
    """Its platform can be asked."""

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        answer = await self._ask(type="find", id=message.id, conversation=message.conversation.conversation)
        return None if answer["receipt"] is None else Receipt(message_ids=(answer["receipt"],))


def build(config: Config, services: AdapterServices) -> WireChannel:
    return (AskableWireChannel if config.sends == "lookup" else WireChannel)(config, services)
