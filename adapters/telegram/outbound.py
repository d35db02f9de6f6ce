"""Sending, so that a message which is sent twice is shown once.

Telegram has no idempotency key, and a bot cannot read back what it has sent. So each piece goes in two steps: its first
words, as a message whose number is noted durably, and then the whole text, as an edit of that message. Editing twice
shows nothing twice. If the line breaks at the first step, the text is never doubled; at worst its first words stay.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from adapters.telegram.buttons import Keyboard
from adapters.telegram.chat_migration import Chats
from adapters.telegram.client import TelegramClient
from adapters.telegram.convert import message_id, number_in
from adapters.telegram.outcomes import ChatMoved, MarkupRefused, MessageGone
from adapters.telegram.rate_limit import Pace
from adapters.telegram.render import FilePiece, Piece, TextPiece, as_text, beginning, plain
from gateway.errors import PermanentSendError, TransientSendError
from gateway.messages import ConversationRef, OutboundMessage, Receipt
from gateway.protocols import AdapterNotes

_PREFIX = "out/"
_TRIES = 4

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Shown:
    """What of a message stands in its chat.

    Attributes:
        numbers: of the messages that are there, one for each piece so far.
        done: how many of them show their final text.
        is_whole: all of them do, and there are no more.
        refused: which files of the message Telegram did not take, counted from 0.
    """

    chat: int
    numbers: list[int] = field(default_factory=list)
    done: int = 0
    is_whole: bool = False
    refused: list[int] = field(default_factory=list)


class Ledger:
    """What is shown of which message, by the message's id; it survives a restart.

    An entry that is whole may go as soon as a later message of its conversation is whole too: the gateway sends one at
    a time, so by then it has recorded the earlier one.
    """

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._keys: dict[str, set[str]] = {}

    async def load(self) -> None:
        """Learn what is there."""
        for key in await self._notes.keys(_PREFIX):
            self._keys.setdefault(key.rpartition("/")[0], set()).add(key)

    async def get(self, message: OutboundMessage) -> Shown | None:
        """What is shown of the message."""
        return _parsed(await self._notes.get(_key(message)))

    async def put(self, message: OutboundMessage, shown: Shown, *, is_durable: bool) -> None:
        """Keep it."""
        key = _key(message)
        text = json.dumps([shown.chat, shown.numbers, shown.done, shown.is_whole, shown.refused])
        self._keys.setdefault(_place(message.conversation), set()).add(key)
        await self._notes.put(key, text, is_durable=is_durable)

    async def remove(self, message: OutboundMessage) -> None:
        """Forget it."""
        await self._forget(_place(message.conversation), _key(message))

    async def remove_earlier(self, message: OutboundMessage) -> None:
        """Forget the whole ones before this one."""
        place, own = _place(message.conversation), _key(message)
        for key in self._keys.get(place, set()) - {own}:
            shown = _parsed(await self._notes.get(key))
            if shown is None or shown.is_whole:
                await self._forget(place, key)

    async def _forget(self, place: str, key: str) -> None:
        await self._notes.remove(key)
        keys = self._keys.get(place, set())
        keys.discard(key)
        if not keys:
            self._keys.pop(place, None)


class Delivery:
    """Sends the pieces of one message; what an earlier try has shown is not shown again."""

    def __init__(self, client: TelegramClient, ledger: Ledger, chats: Chats, pace: Pace) -> None:
        self._client = client
        self._ledger = ledger
        self._chats = chats
        self._pace = pace

    async def send(self, message: OutboundMessage, pieces: Sequence[Piece], keyboard: Keyboard = ()) -> Receipt:
        """Show all pieces, in order, the last one with the buttons. Without a file that is refused it goes on.

        Raises:
            TransientSendError, UncertainSendError, PermanentSendError: see `gateway.protocols.ChannelAdapter.send`;
                after the first two the same message may be sent again.
        """
        shown = await self._ledger.get(message) or Shown(chat=self._chats.now(message.conversation))
        planned = _without(pieces, shown.refused)
        while shown.done < len(planned):
            piece, file = planned[shown.done]
            is_last = shown.done == len(planned) - 1
            try:
                await self._show(message, shown, shown.done, piece, keyboard if is_last else ())
            except PermanentSendError as error:
                if file is None:
                    raise
                _log.warning("a file was refused, and the answer goes on without it: %s", error)
                shown.refused.append(file)
                await self._ledger.put(message, shown, is_durable=True)
                planned = _without(pieces, shown.refused)
        shown.is_whole = True
        await self._ledger.put(message, shown, is_durable=False)
        await self._ledger.remove_earlier(message)
        return Receipt(message_ids=tuple(message_id(shown.chat, number) for number in shown.numbers))

    async def _show(self, message: OutboundMessage, shown: Shown, index: int, piece: Piece, keyboard: Keyboard) -> None:
        """Place and fill one piece; again where its chat has moved, or somebody has taken the placeholder away."""
        for _ in range(_TRIES):
            try:
                if index >= len(shown.numbers):
                    await self._place(message, shown, index, piece)
                await self._fill(shown.chat, shown.numbers[index], piece, keyboard)
            except ChatMoved as moved:
                await self._chats.moved(int(message.conversation.conversation), moved.new_chat_id)
                shown.chat = moved.new_chat_id
                del shown.numbers[index:]
            except MessageGone:
                del shown.numbers[index:]
            except TransientSendError as error:
                if error.retry_after_s is not None:
                    self._pace.block(shown.chat, error.retry_after_s)
                raise
            else:
                shown.done = index + 1
                return
        raise PermanentSendError("Telegram takes messages of this chat, and then has them no more")

    async def _place(self, message: OutboundMessage, shown: Shown, index: int, piece: Piece) -> None:
        await self._pace.wait(shown.chat)
        thread = None if message.conversation.thread is None else int(message.conversation.thread)
        # In a group it must be seen who is answered; in a private chat that is plain.
        reply_to = number_in(shown.chat, message.reply_to) if shown.chat < 0 and index == 0 else None
        number = await shown_somehow(
            lambda styled: self._client.place(shown.chat, styled, thread=thread, reply_to=reply_to), beginning(piece)
        )
        shown.numbers.append(number)
        await self._ledger.put(message, shown, is_durable=True)

    async def _fill(self, chat: int, number: int, piece: Piece, keyboard: Keyboard) -> None:
        if not isinstance(piece, TextPiece):
            await self._client.attach(chat, number, piece.filename, piece.content, keyboard)
            return
        await shown_somehow(lambda styled: self._client.edit(chat, number, styled, keyboard), piece)


def _without(pieces: Sequence[Piece], refused: Sequence[int]) -> list[tuple[Piece, int | None]]:
    """The pieces, each file with its number, and text in place of those that were refused."""
    planned: list[tuple[Piece, int | None]] = []
    number = 0
    for piece in pieces:
        if not isinstance(piece, FilePiece):
            planned.append((piece, None))
            continue
        planned += [(text, None) for text in as_text(piece)] if number in refused else [(piece, number)]
        number += 1
    return planned


async def shown_somehow(show: Callable[[TextPiece], Awaitable[_T]], piece: TextPiece) -> _T:
    """Show it without styles where Telegram refuses them: better plain than not at all."""
    try:
        return await show(piece)
    except MarkupRefused:
        return await show(plain(piece))


def _place(conversation: ConversationRef) -> str:
    return f"{_PREFIX}{conversation.conversation}/{conversation.thread or ''}"


def _key(message: OutboundMessage) -> str:
    return f"{_place(message.conversation)}/{message.id}"


def _parsed(text: str | None) -> Shown | None:
    if text is None:
        return None
    chat, numbers, done, is_whole, *more = json.loads(text)
    return Shown(chat=chat, numbers=numbers, done=done, is_whole=is_whole, refused=more[0] if more else [])
