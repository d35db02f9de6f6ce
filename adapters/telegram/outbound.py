"""Sending, so that a message which is sent twice is shown once.

Telegram has no idempotency key, and a bot cannot read back what it has sent. So each piece goes in two steps: its first
words, as a message whose number is noted durably, and then the whole text, as an edit of that message. Editing twice
shows nothing twice. If the line breaks at the first step, the text is never doubled; at worst its first words stay.

While the answer is written, a private chat shows a draft, which goes by itself after 30 s or with the answer
(https://core.telegram.org/bots/api#sendmessagedraft). Elsewhere a message is edited, and becomes the first piece.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from adapters.telegram.buttons import Keyboard
from adapters.telegram.chat_migration import Chats
from adapters.telegram.client import TelegramClient
from adapters.telegram.convert import message_id, number_in
from adapters.telegram.errors import ChatMoved, MarkupRefused, MessageGone
from adapters.telegram.rate_limit import Pace
from adapters.telegram.render import FilePiece, Piece, TextPiece, as_text, beginning, plain
from gateway.errors import PermanentSendError, SendError, TransientSendError
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


_log = logging.getLogger(__name__)


class Previews:
    """Shows what there is of an answer; a failure is one line in the log.

    Args:
        edit_s: the shortest time between two edits of one message.
    """

    def __init__(self, client: TelegramClient, ledger: Ledger, chats: Chats, pace: Pace, *, edit_s: float) -> None:
        self._client = client
        self._ledger = ledger
        self._chats = chats
        self._pace = pace
        self._edit_s = edit_s
        self._edited_at_s: dict[str, float] = {}
        self._newest: dict[str, TextPiece] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._showing: dict[str, asyncio.Task[None]] = {}
        self._has_drafts = True

    async def show(self, message: OutboundMessage, piece: TextPiece) -> None:
        """Show the text so far, at once or when the next edit is due; then it is the newest that is shown.

        What was sent once is waited for, even where the caller is cancelled: else its number would be lost, or an old
        draft come after the answer.
        """
        chat = self._chats.now(message.conversation)
        if self._pace.blocked_s(chat) > 0:
            return
        if chat > 0 and self._has_drafts:
            await self._run(message.id, self._draft(message, chat, piece))
            return
        self._newest[message.id] = piece
        if message.id in self._waiting:
            return
        if self._due_in_s(message) <= 0:
            await self._show_newest(message, chat)
            return
        waiting = asyncio.create_task(self._wait(message, chat), name="telegram preview is due")
        self._waiting[message.id] = waiting
        waiting.add_done_callback(lambda _: self._waiting.pop(message.id, None))

    def _due_in_s(self, message: OutboundMessage) -> float:
        edited_at_s = self._edited_at_s.get(message.id)
        return 0.0 if edited_at_s is None else edited_at_s + self._edit_s - asyncio.get_running_loop().time()

    async def _wait(self, message: OutboundMessage, chat: int) -> None:
        while message.id in self._newest:
            await asyncio.sleep(self._due_in_s(message))
            await self._show_newest(message, chat)

    async def _show_newest(self, message: OutboundMessage, chat: int) -> None:
        await self._run(message.id, self._edit(message, chat, self._newest.pop(message.id)))
        self._edited_at_s[message.id] = asyncio.get_running_loop().time()

    async def withdraw(self, message: OutboundMessage) -> None:
        """Take back what was shown; a draft goes by itself."""
        await self.settle(message)
        shown = await self._ledger.get(message)
        if shown is not None and shown.numbers and shown.done == 0:
            await self._run(message.id, self._delete(message, shown))

    async def settle(self, message: OutboundMessage) -> None:
        """Wait for what is on its way; nothing of this message is shown here after that."""
        if (waiting := self._waiting.pop(message.id, None)) is not None:
            waiting.cancel()
            await asyncio.wait([waiting])
        self._newest.pop(message.id, None)
        self._edited_at_s.pop(message.id, None)
        task = self._showing.get(message.id)
        if task is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        """Give up what is on its way."""
        tasks = [*self._waiting.values(), *self._showing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, message_id: str, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except (SendError, ChatMoved, MarkupRefused, MessageGone) as error:
                _log.debug("a preview was dropped: %s", error)

        task = asyncio.create_task(guarded(), name="telegram preview")
        self._showing[message_id] = task
        task.add_done_callback(lambda _: self._showing.pop(message_id, None))
        await asyncio.shield(task)

    async def _draft(self, message: OutboundMessage, chat: int, piece: TextPiece) -> None:
        draft = int.from_bytes(hashlib.sha256(message.id.encode()).digest()[:4], "big") >> 1 or 1
        thread = _thread(message)
        try:
            await shown_somehow(lambda styled: self._client.draft(chat, draft, styled, thread=thread), piece)
        except TransientSendError as error:
            self._pause(chat, error)
            raise
        except PermanentSendError:
            self._has_drafts = False  # a server older than Bot API 9.5, or a bot that may not: edits from now on
            raise

    async def _edit(self, message: OutboundMessage, chat: int, piece: TextPiece) -> None:
        shown = await self._ledger.get(message) or Shown(chat=chat)
        if shown.done:
            return  # the answer itself is there already
        try:
            if shown.numbers:
                await shown_somehow(lambda styled: self._client.edit(shown.chat, shown.numbers[0], styled), piece)
                return
            thread, reply_to = _thread(message), number_in(chat, message.reply_to) if chat < 0 else None
            number = await shown_somehow(
                lambda styled: self._client.place(chat, styled, thread=thread, reply_to=reply_to), piece
            )
        except TransientSendError as error:
            self._pause(chat, error)
            raise
        await self._ledger.put(message, Shown(chat=chat, numbers=[number]), is_durable=False)

    async def _delete(self, message: OutboundMessage, shown: Shown) -> None:
        await self._client.delete(shown.chat, shown.numbers[0])
        await self._ledger.remove(message)

    def _pause(self, chat: int, error: TransientSendError) -> None:
        if error.retry_after_s is not None:
            self._pace.block(chat, error.retry_after_s)


def _thread(message: OutboundMessage) -> int | None:
    return None if message.conversation.thread is None else int(message.conversation.thread)
