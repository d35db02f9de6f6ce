"""The answer while it is written: a draft in private chats, elsewhere a message that is edited.

A message that is edited becomes the first piece of the answer: `Delivery` finds it in the ledger. A draft goes by
itself, after 30 s or with the answer (https://core.telegram.org/bots/api#sendmessagedraft).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable

from adapters.telegram.chat_migration import Chats
from adapters.telegram.client import TelegramClient
from adapters.telegram.convert import number_in
from adapters.telegram.outbound import Ledger, Shown, shown_somehow
from adapters.telegram.outcomes import ChatMoved, MarkupRefused, MessageGone
from adapters.telegram.rate_limit import Pace
from adapters.telegram.render import TextPiece
from gateway.errors import PermanentSendError, SendError, TransientSendError
from gateway.messages import OutboundMessage

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
