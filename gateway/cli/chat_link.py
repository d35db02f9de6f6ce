"""The person's end of a conversation: follows it, attaches again, and sends each message until it is kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from gateway.cli.chat_text import clean
from gateway.errors import EthosError
from gateway.sdk.address import address_source
from gateway.sdk.chat import Chat
from gateway.sdk.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    RequestInProgressError,
    ServiceUnavailableError,
)
from gateway.sdk.in_process import App, sender_to_app
from gateway.sdk.models.chat import MAX_TEXT_CHARS, ChatMessage, Command, Event, Live, Reset
from gateway.sdk.request_sender import RequestSender
from gateway.sdk.styles import Async
from gateway.sdk.transport import AsyncTransport

_TIMEOUT_S = 30.0
_FIRST_DELAY_S = 0.05
_MAX_DELAY_S = 2.0
_REFUSED_DELAY_S = 1.0  # before a message is offered again that was refused for now
_MAX_FRAMES = 100  # of which the reader knows nothing yet


@dataclass(eq=False, slots=True)
class Said:
    """Something that the person wrote.

    Attributes:
        key: the same in every try, so that the message is kept once.
        message: its id, once the gateway has kept it; the answer has it as `reply_to`.
    """

    text: str
    key: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """The gateway answers; what was said and what happens follows."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The gateway is away; it is called again until it answers."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The gateway has kept a message, and will answer it."""

    said: Said


@dataclass(frozen=True, slots=True)
class Refused:
    """The gateway does not keep a message; if that is temporary, it is offered again."""

    said: Said
    reason: str
    is_temporary: bool


Frame = Attached | Lost | Kept | Refused | Event


class NotReached(EthosError):
    """No gateway answered; says why."""


class ChatRefused(EthosError):
    """The gateway will not talk to us; its reason is the text."""


class TextTooLong(EthosError):
    """The message is too long for the gateway; nothing was sent."""

    def __init__(self, chars: int) -> None:
        super().__init__(
            f"the message has {chars} characters, and at most {MAX_TEXT_CHARS} can be sent; "
            "split it into several messages"
        )


def sender_to(home: Path, app: App | None) -> RequestSender:
    """The way to the gateway that runs on a data directory; or to its application, where that is of this process."""
    if app is not None:
        return sender_to_app(app, timeout_s=_TIMEOUT_S)
    return RequestSender(AsyncTransport(), address_source(None, None, home), timeout_s=_TIMEOUT_S, max_retries=0)


class ChatLink:
    """One person's end of one conversation.

    Messages are offered one at a time, in order, each with the same key until the gateway has kept or refused it; so
    none is lost when the gateway restarts, and none is doubled.

    Attributes:
        cursor: of the last message that was handed out; None before the conversation was seen.
        unsent: what the gateway has not kept yet, oldest first.
    """

    def __init__(self, sender: RequestSender, *, conversation: str, after: int | None, patience_s: float) -> None:
        self._sender = sender
        self._chat: Chat[Async] = Chat(self._sender)
        self._conversation = conversation
        self._patience_s = patience_s
        self._frames: asyncio.Queue[Frame | Exception] = asyncio.Queue(_MAX_FRAMES)
        self._is_attached = asyncio.Event()
        self._has_unsent = asyncio.Event()
        self._is_certain = asyncio.Event()  # clear while the gateway may have kept the first unsent message
        self._is_certain.set()
        self._may_be_kept = False  # what became of an earlier try is not known
        self.cursor = after
        self.unsent: deque[Said] = deque()

    def say(self, text: str) -> Said:
        """Queue a message.

        Raises:
            TextTooLong: it was not queued.
        """
        said = Said(clean(text), key=str(uuid4()))
        if len(said.text) > MAX_TEXT_CHARS:
            raise TextTooLong(len(said.text))
        self.unsent.append(said)
        self._has_unsent.set()
        return said

    async def commands(self) -> tuple[Command, ...]:
        """What a message may begin with after a `/`.

        Raises:
            APIError: the gateway does not say.
        """
        return await self._chat.commands()

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """All that the gateway says, without end; `Lost` once for each time that it goes away.

        Raises:
            NotReached: it did not answer for `patience_s` from the start.
            ChatRefused: it will not talk to us.
        """
        tasks = [asyncio.create_task(self._reported(work)) for work in (self._follow(), self._send())]
        try:
            while True:
                frame = await self._frames.get()
                if isinstance(frame, Exception):
                    raise frame
                yield frame
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._sender.close()

    async def _reported(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, and tell the reader of the frames how it failed."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 (the reader raises it)
            await self._frames.put(error)

    async def _follow(self) -> None:
        """Hand out what the gateway says, and attach again when it was away."""
        clock = asyncio.get_running_loop().time
        give_up_at, was_attached, delay_s = clock() + self._patience_s, False, _FIRST_DELAY_S
        while True:
            try:
                async with self._chat.events(conversation=self._conversation, after=self.cursor, last=0) as events:
                    async for event in events:
                        if not self._is_attached.is_set():
                            self._is_attached.set()
                            was_attached, delay_s = True, _FIRST_DELAY_S
                            await self._frames.put(Attached())
                        await self._hand_out(event)
            except APIError as error:
                if not error.is_retryable:
                    raise ChatRefused(str(error)) from error
                if not was_attached and clock() >= give_up_at:
                    raise NotReached(str(error)) from error
            if self._is_attached.is_set():
                self._is_attached.clear()
                await self._frames.put(Lost())
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_DELAY_S)

    async def _hand_out(self, event: Event) -> None:
        if isinstance(event, Reset):  # an older database was restored: `Live` says where its conversation ends
            self.cursor = None
        elif isinstance(event, Live):
            self.cursor = event.sequence
        elif isinstance(event, ChatMessage):
            if event.author == "person":  # it may be the one that is being sent, whose id is known after `Kept` only
                await self._is_certain.wait()
            self.cursor = event.sequence
        await self._frames.put(event)

    async def _send(self) -> None:
        """Offer the first unsent message until the gateway has kept or refused it, then the next one."""
        delay_s = _FIRST_DELAY_S
        while True:
            await self._has_unsent.wait()
            await self._is_attached.wait()
            outcome = await self._offer(self.unsent[0])
            if outcome is None:
                if not self._may_be_kept:
                    self._is_certain.set()
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _MAX_DELAY_S)
                continue
            delay_s = _FIRST_DELAY_S
            is_settled = isinstance(outcome, Kept) or not outcome.is_temporary
            if is_settled:
                self.unsent.popleft()
                if not self.unsent:
                    self._has_unsent.clear()
            await self._frames.put(outcome)
            if is_settled or not self._may_be_kept:
                self._may_be_kept = False
                self._is_certain.set()
            if not is_settled:
                await asyncio.sleep(_REFUSED_DELAY_S)

    async def _offer(self, said: Said) -> Kept | Refused | None:
        """Try once; None where the gateway did not answer."""
        self._is_certain.clear()
        try:
            kept = await self._chat.send(said.text, conversation=self._conversation, idempotency_key=said.key)
        except APIConnectionError as error:
            self._may_be_kept = self._may_be_kept or error.may_have_arrived
            return None
        except RequestInProgressError:
            self._may_be_kept = True
            return None
        except ServiceUnavailableError as error:
            return Refused(said, str(error), is_temporary=True)
        except APIError as error:
            is_final = isinstance(error, APIStatusError) and error.status_code < 500
            self._may_be_kept = self._may_be_kept or not is_final  # such as when it was ended in the middle of it
            return Refused(said, str(error), is_temporary=not is_final)
        said.message = kept.message
        return Kept(said)
