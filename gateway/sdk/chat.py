"""`client.chat`: send messages, follow the answers, stop one."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from gateway.sdk.errors import AnswerTimeoutError
from gateway.sdk.models.chat import (
    AcceptedMessage,
    ChatMessage,
    Choice,
    Command,
    CommandList,
    EditMessage,
    Event,
    File,
    Preview,
    SendMessage,
    StopAnswer,
)
from gateway.sdk.request import Request
from gateway.sdk.request_sender import RequestSender
from gateway.sdk.styles import Namespace, S, listing, operation

ANSWER_WAIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the agent answered; as a text it is `text`.

    Attributes:
        text: empty where the message was stopped before anything was written.
        session: to go on in.
        message: the id of the message that it answers.
        choices: what the answer offers to choose from.
    """

    text: str
    session: str
    message: str
    choices: tuple[Choice, ...] = ()

    def __str__(self) -> str:
        return self.text


class SentMessage(Namespace[S]):
    """A message that is committed, and will be answered.

    Attributes:
        session: the session that it is in.
        message: its id.
        sequence: it is the first one behind this number in the session's events.
        conversation: the name that you gave; None where it went to a session.
    """

    def __init__(self, sender: RequestSender, accepted: AcceptedMessage, conversation: str | None = None) -> None:
        super().__init__(sender)
        self.conversation = conversation
        self.session = accepted.session
        self.message = accepted.message
        self.sequence = accepted.sequence

    @listing
    def events(self, *, wait_s: float = ANSWER_WAIT_S) -> AsyncIterator[Event]:
        """What happens until it is answered: the answer is the last event. The stream reconnects automatically.

        Raises:
            AnswerTimeoutError: it takes longer than `wait_s`.
        """
        return _until_answered(self, wait_s)

    @operation
    async def answer(self, *, wait_s: float = ANSWER_WAIT_S) -> Answer:
        """Wait for the answer.

        While no model is available, it is a notice of the gateway that it will be answered later.

        Raises:
            AnswerTimeoutError: it takes longer than `wait_s`.
        """
        return await _answer(self, wait_s)


class Chat(Namespace[S]):
    """Talk to the agent. Scopes: `chat:read`, `chat:write`.

    With the operator's token you talk as the owner, with a person's key as that person, with any other key as a program
    of its own.
    """

    @operation
    async def send(
        self,
        text: str,
        *,
        session: str | None = None,
        conversation: str | None = None,
        personality: str | None = None,
        attachments: Sequence[File] = (),
        idempotency_key: str | None = None,
    ) -> SentMessage[S]:
        """Send a message; when this returns it is committed, and cannot be lost any more.

        Args:
            text: may be a command, such as `/memory`.
            session: to go on in; without it a new one begins.
            conversation: in place of `session`, a name of your own; it goes on where it was, or begins.
            personality: who answers in a new session; the configured default without it.
            attachments: see `file`; together 4 MiB at most.
            idempotency_key: send again with the same key, after a crash of your program, and it is sent once.

        Raises:
            NotFoundError: there is no such session or personality.
            ConflictError: the session belongs to another channel; fork it.
        """
        return await self._sent(text, session, conversation, personality, attachments, key=idempotency_key)

    @operation
    async def ask(
        self,
        text: str,
        *,
        session: str | None = None,
        conversation: str | None = None,
        personality: str | None = None,
        attachments: Sequence[File] = (),
        wait_s: float = ANSWER_WAIT_S,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Send a message and wait for the answer; raises as `send` and `SentMessage.answer`."""
        sent = await self._sent(text, session, conversation, personality, attachments, key=idempotency_key)
        return await _answer(sent, wait_s)

    @listing
    async def stream(
        self,
        text: str,
        *,
        session: str | None = None,
        conversation: str | None = None,
        personality: str | None = None,
        attachments: Sequence[File] = (),
        wait_s: float = ANSWER_WAIT_S,
        idempotency_key: str | None = None,
    ) -> AsyncIterator[str]:
        """Send a message and give the text of the answer piece by piece, while it is written; raises as `ask`.

        Put together, the pieces are the answer. Where the agent discards what it has written, such as before it uses a
        tool, the new text follows after a blank line.
        """
        sent = await self._sent(text, session, conversation, personality, attachments, key=idempotency_key)
        async with aclosing(_until_answered(sent, wait_s)) as events:
            async for piece in _pieces(events, sent.message):
                yield piece

    @listing
    def events(
        self,
        session: str | None = None,
        *,
        conversation: str | None = None,
        after: int | None = 0,
        last: int | None = None,
    ) -> AsyncIterator[Event]:
        """All messages of a session behind a sequence number, then what happens, without end.

        A `ChatMessage` has its `sequence`: keep it, and go on behind it when your program starts again. The stream
        reconnects automatically; each message comes once and in order.

        Args:
            conversation: in place of `session`, the name that you gave it in `send`; it need not have begun yet.
            after: the sequence number; None: begin with the newest messages, see `last`.
            last: with how many of the newest messages to begin where `after` does not say where.

        Raises:
            NotFoundError: there is no such session.
            ConflictError: the session belongs to another channel.
            APIConnectionError: the gateway was not reached `max_retries` times in a row.
        """
        return self.sender.events(_events(session, conversation, last), after)

    @operation
    async def edit(
        self, session: str, turn: str, text: str | None = None, *, idempotency_key: str | None = None
    ) -> SentMessage[S]:
        """Send a message again, edited or as it was, in a new session that has all that was said before it.

        The session that it was in stays as it is; `client.sessions.versions` knows both.

        Args:
            turn: that of the message, from an event or the session's messages.
            text: the new one; without it the same message is answered again.

        Raises:
            NotFoundError: there is no such session, or no answered message of that turn in it.
            ConflictError: the session belongs to another channel; fork it.
        """
        body = EditMessage(session=session, turn=turn, text=text)
        accepted = await self.sender.write("POST", "/chat/edit", AcceptedMessage, idempotency_key, body)
        return SentMessage(self.sender, accepted)

    @operation
    async def stop(
        self, session: str | None = None, *, conversation: str | None = None, idempotency_key: str | None = None
    ) -> None:
        """End the answer that is being written; what there is of it stays. Raises as `send`."""
        body = StopAnswer(session=session, conversation=conversation)
        await self.sender.write("POST", "/chat/stop", AcceptedMessage, idempotency_key, body)

    @operation
    async def commands(self) -> tuple[Command, ...]:
        """The commands that a message may be."""
        return (await self.sender.get("/chat/commands", CommandList)).root

    async def _sent(
        self,
        text: str,
        session: str | None,
        conversation: str | None,
        personality: str | None,
        attachments: Sequence[File],
        *,
        key: str | None,
    ) -> SentMessage[S]:
        body = SendMessage(
            session=session,
            conversation=conversation,
            personality=personality,
            text=text,
            attachments=tuple(attachments),
        )
        accepted = await self.sender.write("POST", "/chat/messages", AcceptedMessage, key, body)
        return SentMessage(self.sender, accepted, conversation)


def file(path: Path) -> File:
    """A file of this machine, to go with a message."""
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return File(filename=path.name, media_type=media_type, data=base64.b64encode(path.read_bytes()).decode())


def _events(session: str | None, conversation: str | None = None, last: int | None = None) -> Request[str]:
    return Request("GET", "/chat/events", str, query={"session": session, "conversation": conversation, "last": last})


async def _until_answered(sent: SentMessage[S], wait_s: float) -> AsyncGenerator[Event, None]:
    # A session that a person goes on with in several places was perhaps begun in another one than this.
    asked = _events(sent.session) if sent.conversation is None else _events(None, sent.conversation)
    async with aclosing(sent.sender.events(asked, sent.sequence, wait_s=wait_s)) as events:
        async for event in events:
            yield event
            if isinstance(event, ChatMessage) and event.author == "agent" and event.reply_to == sent.message:
                return
    raise AnswerTimeoutError(sent.session, sent.message, wait_s)


async def _answer(sent: SentMessage[S], wait_s: float) -> Answer:
    last: Event | None = None
    async with aclosing(_until_answered(sent, wait_s)) as events:
        async for event in events:
            last = event
    if not isinstance(last, ChatMessage):  # pragma: no cover (the stream ends with the answer, or raises)
        raise AnswerTimeoutError(sent.session, sent.message, wait_s)
    return Answer(text=last.text, session=sent.session, message=sent.message, choices=last.choices)


async def _pieces(events: AsyncIterator[Event], message: str) -> AsyncIterator[str]:
    """What is new in the text of an answer; `stream` says what becomes of text that is discarded."""
    shown: dict[str, str] = {}
    given = ""
    async for event in events:
        if isinstance(event, Preview) and event.reply_to == message:
            text = shown[event.id] = event.shown(shown.get(event.id, ""))
        elif isinstance(event, ChatMessage) and event.reply_to == message:
            text = event.text
        else:
            continue
        if not given.startswith(text):
            yield text[len(given) :] if text.startswith(given) else f"\n\n{text}"
            given = text
