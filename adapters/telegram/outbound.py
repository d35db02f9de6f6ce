"""Sending, so that a message which is sent twice is shown once.

Telegram has no idempotency key, and a bot cannot read back what it has sent. So each piece is sent in two steps. First
comes a placeholder with its first words, whose message id is stored durably. Then the placeholder is edited into the
whole piece, and an edit may be repeated. If the connection breaks at the first step, at worst a placeholder stays.

No message becomes a voice message by an edit (https://core.telegram.org/bots/api#inputmedia). So it is noted before one
is sent, and one that may have arrived is not sent again: its answer is there in writing.

While the answer is written, a private chat shows a draft, which Telegram removes after 30 s or with the answer
(https://core.telegram.org/bots/api#sendmessagedraft). Elsewhere a message is edited, which becomes the first piece.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from adapters.telegram.buttons import Keyboard
from adapters.telegram.chat_migration import ChatMigrations
from adapters.telegram.client import TelegramClient
from adapters.telegram.convert import message_id_in, qualified_id
from adapters.telegram.errors import ChatMoved, MarkupRefused, MessageGone
from adapters.telegram.rate_limit import RateLimit
from adapters.telegram.render import FilePiece, Piece, TextPiece, VoicePiece, file_as_text, placeholder, without_styles
from gateway.errors import PermanentSendError, SendError, TransientSendError, UncertainSendError
from gateway.messages import ConversationRef, OutboundMessage, Receipt
from gateway.protocols import AdapterNotes

_PREFIX = "out/"
_TRIES = 4

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """How much of a message its chat shows.

    Attributes:
        message_ids: one for each piece that is there, as a placeholder or in full.
        final_count: how many of them show their final text.
        is_complete: all pieces do.
        refused_files: the files of the message that Telegram refused, counted from 0.
        is_speaking: a voice message is on its way, and perhaps there.
    """

    chat_id: int
    message_ids: list[int] = field(default_factory=list)
    final_count: int = 0
    is_complete: bool = False
    refused_files: list[int] = field(default_factory=list)
    is_speaking: bool = False


class ProgressStore:
    """The progress of each message, in the channel's notes.

    A complete entry is removed when a later message of its conversation is complete too. The gateway sends one at a
    time, so by then it has stored the earlier receipt.
    """

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._keys: dict[str, set[str]] = {}

    async def load(self) -> None:
        """Read which entries there are."""
        for key in await self._notes.keys(_PREFIX):
            self._keys.setdefault(key.rpartition("/")[0], set()).add(key)

    async def get(self, message: OutboundMessage) -> Progress | None:
        """The message's entry."""
        return await self._read(_key(message))

    async def put(self, message: OutboundMessage, progress: Progress, *, is_durable: bool) -> None:
        """Store the message's entry."""
        key = _key(message)
        self._keys.setdefault(_group(message.conversation), set()).add(key)
        await self._notes.put(key, json.dumps(asdict(progress)), is_durable=is_durable)

    async def remove(self, message: OutboundMessage) -> None:
        """Remove the message's entry."""
        await self._remove(_group(message.conversation), _key(message))

    async def remove_earlier(self, message: OutboundMessage) -> None:
        """Remove the complete entries before this one."""
        group, own = _group(message.conversation), _key(message)
        for key in self._keys.get(group, set()) - {own}:
            progress = await self._read(key)
            if progress is None or progress.is_complete:
                await self._remove(group, key)

    async def _read(self, key: str) -> Progress | None:
        stored = await self._notes.get(key)
        return None if stored is None else Progress(**json.loads(stored))

    async def _remove(self, group: str, key: str) -> None:
        await self._notes.remove(key)
        keys = self._keys.get(group, set())
        keys.discard(key)
        if not keys:
            self._keys.pop(group, None)


class Outbound:
    """Sends the pieces of a message that an earlier try has not sent, and shows unfinished answers."""

    def __init__(
        self,
        client: TelegramClient,
        notes: AdapterNotes,
        migrations: ChatMigrations,
        rate_limit: RateLimit,
        *,
        edit_interval_s: float,
    ) -> None:
        self._client = client
        self._progress = ProgressStore(notes)
        self._migrations = migrations
        self._rate_limit = rate_limit
        self._edit_interval_s = edit_interval_s
        self._edited_at_s: dict[str, float] = {}
        self._newest: dict[str, TextPiece] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._has_drafts = True

    async def load(self) -> None:
        """Read the notes."""
        await self._progress.load()

    async def close(self) -> None:
        """Cancel the previews in progress."""
        tasks = [*self._waiting.values(), *self._sending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- messages ---------------------------------------------------------------------------------------------------

    async def send(self, message: OutboundMessage, pieces: Sequence[Piece], keyboard: Keyboard = ()) -> Receipt:
        """Show all pieces in order, the last one with the keyboard. A refused file is replaced by a text.

        Raises as `ChannelAdapter.send` does.
        """
        progress = await self._progress.get(message)
        progress = progress or Progress(chat_id=self._migrations.current_id(message.conversation))
        planned = _without(pieces, progress.refused_files)
        while progress.final_count < len(planned):
            piece, file_number = planned[progress.final_count]
            is_last = progress.final_count == len(planned) - 1
            try:
                await self._show(message, progress, piece, keyboard if is_last else ())
            except PermanentSendError as error:
                if file_number is None or progress.is_speaking:
                    raise
                _log.warning("a file was refused, and the answer goes on without it: %s", error)
                progress.refused_files.append(file_number)
                await self._progress.put(message, progress, is_durable=True)
                planned = _without(pieces, progress.refused_files)
        progress.is_complete = True
        await self._progress.put(message, progress, is_durable=False)
        await self._progress.remove_earlier(message)
        return Receipt(message_ids=tuple(qualified_id(progress.chat_id, each) for each in progress.message_ids))

    async def _show(self, message: OutboundMessage, progress: Progress, piece: Piece, keyboard: Keyboard) -> None:
        """Show the next piece; try again after the chat has moved, or the placeholder was deleted."""
        index = progress.final_count
        for _ in range(_TRIES):
            try:
                if isinstance(piece, VoicePiece):
                    await self._say(message, progress, piece)
                    progress.final_count = index + 1
                    return
                if index >= len(progress.message_ids):
                    await self._send_placeholder(message, progress, piece)
                await self._fill(progress.chat_id, progress.message_ids[index], piece, keyboard)
            except ChatMoved as moved:
                await self._migrations.record(int(message.conversation.conversation), moved.new_chat_id)
                progress.chat_id = moved.new_chat_id
                del progress.message_ids[index:]
            except MessageGone:
                del progress.message_ids[index:]
            except TransientSendError as error:
                self._rate_limit.pause(progress.chat_id, error)
                raise
            else:
                progress.final_count = index + 1
                return
        raise PermanentSendError("Telegram takes messages of this chat, and then has them no more")

    async def _send_placeholder(self, message: OutboundMessage, progress: Progress, piece: Piece) -> None:
        await self._rate_limit.wait(progress.chat_id)
        is_first = progress.final_count == 0
        sent = await _send_text(self._client, progress.chat_id, message, placeholder(piece), is_reply=is_first)
        progress.message_ids.append(sent)
        await self._progress.put(message, progress, is_durable=True)

    async def _say(self, message: OutboundMessage, progress: Progress, piece: VoicePiece) -> None:
        if progress.is_speaking:
            raise PermanentSendError("it is not known whether Telegram has the voice message, and it is not sent twice")
        await self._rate_limit.wait(progress.chat_id)
        progress.is_speaking = True
        await self._progress.put(message, progress, is_durable=True)
        is_first = progress.final_count == 0
        try:
            sent = await self._client.send_voice(
                progress.chat_id,
                piece,
                thread_id=_thread_id(message),
                reply_to=_reply_to(progress.chat_id, message, is_reply=is_first),
            )
        except UncertainSendError:
            raise
        except SendError:  # certainly not there
            progress.is_speaking = False
            await self._progress.put(message, progress, is_durable=True)
            raise
        progress.is_speaking = False
        progress.message_ids.append(sent)
        await self._progress.put(message, progress, is_durable=True)

    async def _fill(self, chat_id: int, message_id: int, piece: TextPiece | FilePiece, keyboard: Keyboard) -> None:
        if isinstance(piece, FilePiece):
            await self._client.replace_with_file(chat_id, message_id, piece.filename, piece.content, keyboard)
            return
        await _or_plain(lambda styled: self._client.edit_text(chat_id, message_id, styled, keyboard), piece)

    # ---- previews: a failure is one line in the log ----------------------------------------------------------------

    async def preview(self, message: OutboundMessage, piece: TextPiece) -> None:
        """Show the text so far, at once or when the next edit is due; only the newest text is shown then.

        A request that was sent is waited for, even if the caller is cancelled. Otherwise its message id would be lost,
        or an old draft could come after the answer.
        """
        chat_id = self._migrations.current_id(message.conversation)
        if self._rate_limit.pause_left_s(chat_id) > 0:
            return
        if chat_id > 0 and self._has_drafts:
            await self._run(message.id, self._send_draft(message, chat_id, piece))
            return
        self._newest[message.id] = piece
        if message.id in self._waiting:
            return
        if self._due_in_s(message) <= 0:
            await self._show_newest(message, chat_id)
            return
        waiting = asyncio.create_task(self._wait(message, chat_id), name="telegram preview is due")
        self._waiting[message.id] = waiting
        waiting.add_done_callback(lambda _: self._waiting.pop(message.id, None))

    def _due_in_s(self, message: OutboundMessage) -> float:
        edited_at_s = self._edited_at_s.get(message.id)
        return 0.0 if edited_at_s is None else edited_at_s + self._edit_interval_s - asyncio.get_running_loop().time()

    async def _wait(self, message: OutboundMessage, chat_id: int) -> None:
        while message.id in self._newest:
            await asyncio.sleep(self._due_in_s(message))
            await self._show_newest(message, chat_id)

    async def _show_newest(self, message: OutboundMessage, chat_id: int) -> None:
        await self._run(message.id, self._edit(message, chat_id, self._newest.pop(message.id)))
        self._edited_at_s[message.id] = asyncio.get_running_loop().time()

    async def withdraw(self, message: OutboundMessage) -> None:
        """Delete the preview; a draft is removed by Telegram."""
        await self.settle(message)
        progress = await self._progress.get(message)
        if progress is not None and progress.message_ids and progress.final_count == 0:
            await self._run(message.id, self._delete(message, progress))

    async def settle(self, message: OutboundMessage) -> None:
        """Wait for the request in progress, and send no other one for this message."""
        if (waiting := self._waiting.pop(message.id, None)) is not None:
            waiting.cancel()
            await asyncio.wait([waiting])
        self._newest.pop(message.id, None)
        self._edited_at_s.pop(message.id, None)
        task = self._sending.get(message.id)
        if task is not None:
            await asyncio.wait([task])

    async def _run(self, message_id: str, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except SendError as error:
                _log.debug("a preview was dropped: %s", error)

        task = asyncio.create_task(guarded(), name="telegram preview")
        self._sending[message_id] = task
        task.add_done_callback(lambda _: self._sending.pop(message_id, None))
        await asyncio.shield(task)

    async def _send_draft(self, message: OutboundMessage, chat_id: int, piece: TextPiece) -> None:
        draft_id = int.from_bytes(hashlib.sha256(message.id.encode()).digest()[:4], "big") >> 1 or 1
        thread_id = _thread_id(message)
        try:
            await _or_plain(
                lambda styled: self._client.send_draft(chat_id, draft_id, styled, thread_id=thread_id), piece
            )
        except TransientSendError as error:
            self._rate_limit.pause(chat_id, error)
            raise
        except (ChatMoved, MarkupRefused, MessageGone):
            raise  # what is refused is this chat or this text, and not the drafts
        except PermanentSendError:
            self._has_drafts = False  # a server before Bot API 9.5, or a bot without the right: edits from now on
            raise

    async def _edit(self, message: OutboundMessage, chat_id: int, piece: TextPiece) -> None:
        progress = await self._progress.get(message) or Progress(chat_id=chat_id)
        if progress.final_count:
            return  # the answer itself is there already
        try:
            if progress.message_ids:
                first = progress.message_ids[0]
                await _or_plain(lambda styled: self._client.edit_text(progress.chat_id, first, styled), piece)
                return
            sent = await _send_text(self._client, chat_id, message, piece, is_reply=True)
        except TransientSendError as error:
            self._rate_limit.pause(chat_id, error)
            raise
        await self._progress.put(message, Progress(chat_id=chat_id, message_ids=[sent]), is_durable=False)

    async def _delete(self, message: OutboundMessage, progress: Progress) -> None:
        await self._client.delete_message(progress.chat_id, progress.message_ids[0])
        await self._progress.remove(message)


async def _send_text(
    client: TelegramClient, chat_id: int, message: OutboundMessage, piece: TextPiece, *, is_reply: bool
) -> int:
    """Send a new message. In a group it shows whose message it answers; in a private chat that is clear."""
    reply_to = _reply_to(chat_id, message, is_reply=is_reply)
    thread_id = _thread_id(message)
    return await _or_plain(
        lambda styled: client.send_message(chat_id, styled, thread_id=thread_id, reply_to=reply_to), piece
    )


def _reply_to(chat_id: int, message: OutboundMessage, *, is_reply: bool) -> int | None:
    return message_id_in(chat_id, message.reply_to) if chat_id < 0 and is_reply else None


async def _or_plain(show: Callable[[TextPiece], Awaitable[_T]], piece: TextPiece) -> _T:
    """Show it without styles if Telegram refuses them."""
    try:
        return await show(piece)
    except MarkupRefused:
        return await show(without_styles(piece))


def _without(pieces: Sequence[Piece], refused_files: Sequence[int]) -> list[tuple[Piece, int | None]]:
    """The pieces, each file with its number; text in place of refused files, a file in place of a voice message."""
    planned: list[tuple[Piece, int | None]] = []
    number = 0
    for piece in pieces:
        if isinstance(piece, TextPiece):
            planned.append((piece, None))
            continue
        if isinstance(piece, VoicePiece):
            planned.append((piece.as_file, None) if number in refused_files else (piece, number))
            number += 1
            continue
        planned += [(text, None) for text in file_as_text(piece)] if number in refused_files else [(piece, number)]
        number += 1
    return planned


def _thread_id(message: OutboundMessage) -> int | None:
    return None if message.conversation.thread is None else int(message.conversation.thread)


def _group(conversation: ConversationRef) -> str:
    return f"{_PREFIX}{conversation.conversation}/{conversation.thread or ''}"


def _key(message: OutboundMessage) -> str:
    return f"{_group(message.conversation)}/{message.id}"
