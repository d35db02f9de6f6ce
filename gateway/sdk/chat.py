"""`client.chat`: say something, follow what happens, stop it."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from gateway.sdk.errors import NoAnswer
from gateway.sdk.models.chat import ChatMessage, Choice, Event, File, SendMessage, SentMessage, StopAnswer
from gateway.sdk.request import Request
from gateway.sdk.request_sender import Courier
from gateway.sdk.styles import Namespace, S, listing, operation

ANSWER_WAIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the agent answered; as a text it is `text`.

    Attributes:
        text: empty where the message was stopped before anything was written.
        session: to go on in.
        message: the id of what was said.
        choices: what the answer offers to choose from.
    """

    text: str
    session: str
    message: str
    choices: tuple[Choice, ...] = ()

    def __str__(self) -> str:
        return self.text


class Said(Namespace[S]):
    """Something that was said: it is committed, and will be answered.

    Attributes:
        session: in which it was said.
        message: its id.
        place: it is the first one behind it in the session's events.
    """

    def __init__(self, courier: Courier, sent: SentMessage) -> None:
        super().__init__(courier)
        self.session = sent.session
        self.message = sent.message
        self.place = sent.place

    @listing
    def events(self, *, wait_s: float = ANSWER_WAIT_S) -> AsyncIterator[Event]:
        """What happens until it is answered: the answer is the last one. Broken connections are taken up again.

        Raises:
            NoAnswer: it takes longer than `wait_s`.
        """
        return _until_answered(self.courier, self.session, self.message, self.place, wait_s)

    @operation
    async def answer(self, *, wait_s: float = ANSWER_WAIT_S) -> Answer:
        """Wait for the answer.

        While no model can be asked, it is the gateway's word that it will be answered later.

        Raises:
            NoAnswer: it takes longer than `wait_s`.
        """
        return await _answer(self.courier, self.session, self.message, self.place, wait_s)


class Chat(Namespace[S]):
    """Talking to the agent. Scopes: `chat:read`, `chat:write`.

    With the operator's token you talk as the owner, with a person's key as that person, with any other key as a program
    of its own.
    """

    @operation
    async def send(
        self,
        text: str,
        *,
        session: str | None = None,
        personality: str | None = None,
        attachments: Sequence[File] = (),
        idempotency_key: str | None = None,
    ) -> Said[S]:
        """Say something; when this returns it is committed, and cannot be lost any more.

        Args:
            text: may be a command, such as `/memory`.
            session: to go on in; without it a new one begins.
            personality: who answers in a new session; the configured default one without it.
            attachments: see `file`; together 4 MiB at most.
            idempotency_key: say the same again with it, after a crash of your program, and it is said once.

        Raises:
            NotFound: there is no such session or personality.
            NotPossible: the session belongs to another channel; fork it.
        """
        return Said(self.courier, await self._send(text, session, personality, attachments, idempotency_key))

    @operation
    async def ask(
        self,
        text: str,
        *,
        session: str | None = None,
        personality: str | None = None,
        attachments: Sequence[File] = (),
        wait_s: float = ANSWER_WAIT_S,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Say something and wait for the answer; raises as `send` and `Said.answer`."""
        sent = await self._send(text, session, personality, attachments, idempotency_key)
        return await _answer(self.courier, sent.session, sent.message, sent.place, wait_s)

    @listing
    def events(self, session: str, *, after: int = 0) -> AsyncIterator[Event]:
        """All that was said in a session behind a place, then what happens, without end.

        A `ChatMessage` has its `place`: keep it, and go on behind it when your program begins again. Broken connections
        are taken up by themselves; each message comes once and in order.

        Raises:
            NotFound: there is no such session.
            NotPossible: the session belongs to another channel.
            NotReached: the gateway was away for longer than the client's patience.
        """
        return self.courier.events(_events(session), after)

    @operation
    async def stop(self, session: str, *, idempotency_key: str | None = None) -> None:
        """End the answer that is being written; what there is of it stays. Raises as `send`."""
        body = StopAnswer(session=session)
        await self.courier.ask(Request("POST", "/chat/stop", SentMessage, body=body, idempotency_key=idempotency_key))

    async def _send(
        self,
        text: str,
        session: str | None,
        personality: str | None,
        attachments: Sequence[File],
        idempotency_key: str | None,
    ) -> SentMessage:
        body = SendMessage(session=session, personality=personality, text=text, attachments=tuple(attachments))
        return await self.courier.ask(
            Request("POST", "/chat/messages", SentMessage, body=body, idempotency_key=idempotency_key)
        )


def file(path: Path) -> File:
    """A file of this machine, to go with a message."""
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return File(filename=path.name, media_type=media_type, data=base64.b64encode(path.read_bytes()).decode())


def _events(session: str) -> Request[str]:
    return Request("GET", "/chat/events", str, query={"session": session})


async def _until_answered(
    courier: Courier, session: str, message: str, place: int, wait_s: float
) -> AsyncGenerator[Event, None]:
    async with aclosing(courier.events(_events(session), place, wait_s=wait_s)) as events:
        async for event in events:
            yield event
            if isinstance(event, ChatMessage) and event.author == "agent" and event.reply_to == message:
                return
    raise NoAnswer(session, message, wait_s)


async def _answer(courier: Courier, session: str, message: str, place: int, wait_s: float) -> Answer:
    last: Event | None = None
    async with aclosing(_until_answered(courier, session, message, place, wait_s)) as events:
        async for event in events:
            last = event
    if not isinstance(last, ChatMessage):  # pragma: no cover (the stream ends with the answer, or raises)
        raise NoAnswer(session, message, wait_s)
    return Answer(text=last.text, session=session, message=message, choices=last.choices)
