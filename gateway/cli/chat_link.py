"""The person's side of the chat socket: attaches, attaches again, and sends each message until it is kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from adapters.cli import client
from adapters.cli.convert import (
    MAX_LINE_BYTES,
    Accepted,
    BadLine,
    Failure,
    FromGateway,
    Hello,
    LogMessage,
    PersonMessage,
    Refused,
    Welcome,
    clean,
    decode_from_gateway,
    encode,
)
from gateway.errors import AdapterNotReady, EthosError

_FIRST_DELAY_S = 0.05
_MAX_DELAY_S = 2.0
_REFUSED_DELAY_S = 1.0  # before a message is offered again that was refused for now


@dataclass(frozen=True, slots=True)
class Lost:
    """The gateway is away; it is called again until it answers."""

    reason: str


class ChatRefused(EthosError):
    """The gateway will not talk to us; its reason is the text."""


class TextTooLong(EthosError):
    """The message does not fit into a line; nothing was sent."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(
            f"the message has {size_bytes} bytes as it would be sent, and at most {MAX_LINE_BYTES} can be; "
            "split it into several messages"
        )


class ChatLink:
    """One person's end of one conversation.

    Messages are offered one at a time, in order, each with the same id until the gateway has kept or refused it; so
    none is lost when the gateway restarts, and none is doubled.

    Attributes:
        cursor: of the last message that was handed out; None before the first welcome.
        unsent: what the gateway has not kept yet, oldest first.
    """

    def __init__(
        self, socket_path: Path, *, conversation: str, after: int | None = None, patience_s: float = 5.0
    ) -> None:
        self._path, self._conversation = socket_path, conversation
        self._patience_s = patience_s
        self._writer: asyncio.StreamWriter | None = None
        self._was_attached = False
        self.cursor = after
        self.unsent: deque[PersonMessage] = deque()

    def say(self, text: str, *, is_trusted: bool = True) -> str:
        """Queue a message and return its id.

        Raises:
            TextTooLong: it was not queued.
        """
        message = PersonMessage(id=str(uuid4()), text=clean(text), is_trusted=is_trusted)
        size_bytes = len(encode(message))
        if size_bytes > MAX_LINE_BYTES:
            raise TextTooLong(size_bytes)
        self.unsent.append(message)
        if len(self.unsent) == 1:
            self._offer_first()
        return message.id

    async def frames(self) -> AsyncGenerator[FromGateway | Lost, None]:
        """All that the gateway says, without end; `Lost` once for each time that it goes away.

        Raises:
            AdapterNotReady: it did not answer for `patience_s` from the start.
            ChatRefused: it will not talk to us.
        """
        delay_s = _FIRST_DELAY_S
        started_at = asyncio.get_running_loop().time()
        while True:
            try:
                async with contextlib.aclosing(self._attached()) as frames:
                    async for frame in frames:
                        delay_s = _FIRST_DELAY_S
                        yield frame
                reason = "the gateway closed the connection"
            except AdapterNotReady:
                if not self._was_attached and asyncio.get_running_loop().time() - started_at >= self._patience_s:
                    raise
                reason = ""
            except (ConnectionError, BadLine) as error:
                reason = str(error)
            if reason:
                yield Lost(reason)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_DELAY_S)

    async def _attached(self) -> AsyncGenerator[FromGateway, None]:
        """Attach once, and hand out what comes until the connection ends."""
        reader, writer = await client.call(self._path)
        try:
            writer.write(encode(Hello(conversation=self._conversation, after=self.cursor)))
            while (frame := await self._read(reader)) is not None:
                self._act_on(frame, writer)
                yield frame
        finally:
            self._writer = None
            writer.close()

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> FromGateway | None:
        try:
            line = await client.read_line(reader)
        except client.LineTooLong:
            return Failure(reason="an answer is too long to be shown here; it is in the conversation")
        return None if line is None else decode_from_gateway(line)

    def _act_on(self, frame: FromGateway, writer: asyncio.StreamWriter) -> None:
        if isinstance(frame, Welcome):
            self.cursor = frame.cursor
            self._writer, self._was_attached = writer, True
            self._offer_first()
        elif isinstance(frame, Failure) and self._writer is None:
            raise ChatRefused(frame.reason)
        elif isinstance(frame, Refused) and frame.is_temporary:
            asyncio.get_running_loop().call_later(_REFUSED_DELAY_S, self._offer_first)
        elif isinstance(frame, Accepted | Refused):
            self._settle(frame.id)
        elif isinstance(frame, LogMessage):
            self.cursor = frame.cursor
            self._settle(frame.id)

    def _settle(self, message_id: str) -> None:
        """The gateway has kept or refused this message: the next one's turn."""
        if self.unsent and self.unsent[0].id == message_id:
            self.unsent.popleft()
            self._offer_first()

    def _offer_first(self) -> None:
        if self._writer is not None and self.unsent:
            self._writer.write(encode(self.unsent[0]))
