"""Long polling: fetch, hand over, and only then fetch on, which is what tells Telegram that we have it.

https://core.telegram.org/bots/api#getupdates: an update is confirmed by asking for a higher one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from adapters.telegram.client import TelegramClient
from adapters.telegram.convert import Json, chat_of
from gateway.errors import AdapterNotReady

Take = Callable[[Json], Awaitable[None]]
"""Returns after the update's message is committed, or is found to be nobody's."""
Seen = Callable[[], Awaitable[None]]
"""Told whenever Telegram has nothing more that we have not."""

_QUICK_S = 0.5
_MOST_QUICK = 10

_log = logging.getLogger(__name__)


class Polling:
    """Fetches updates in a loop of our own."""

    def __init__(self, client: TelegramClient) -> None:
        self._client = client
        # Sent once to confirm a batch, and not again: after a quiet week Telegram begins to count anew, at random, and
        # a higher number than that would confirm what nobody has read.
        self._offset: int | None = None

    async def prepare(self) -> None:
        """A webhook must go first; Telegram keeps what waits."""
        await self._client.remove_webhook()

    async def run(self, take: Take, seen: Seen) -> None:
        """Hand over every update until cancelled.

        Raises:
            AdapterNotReady: the connection broke twice in a row, or an update was not taken; it will come again.
            AdapterAuthFailed: the token is not known any more.
        """
        clock = asyncio.get_running_loop().time
        is_broken, quick = False, 0
        while True:
            asked_at_s = clock()
            try:
                updates = await self._client.updates(self._offset)
            except AdapterNotReady as error:
                if is_broken or error.retry_after_s is not None:
                    raise
                is_broken = True  # a connection that was dropped while it was silent is worth no word
                continue
            is_broken, self._offset = False, None
            if updates:
                quick = 0
                await self._take_all(updates, take)
                continue
            await seen()
            # A long poll that brings nothing takes its time; something that answers at once is no Telegram.
            quick = quick + 1 if clock() - asked_at_s < _QUICK_S else 0
            if quick > _MOST_QUICK:
                raise AdapterNotReady("long polls come back empty at once; is a proxy in between?")

    async def _take_all(self, updates: Sequence[Json], take: Take) -> None:
        """In order within a chat; chats beside each other, so that their commits go together."""
        by_chat: defaultdict[int | None, list[Json]] = defaultdict(list)
        for update in updates:
            by_chat[chat_of(update)].append(update)
        left = len(updates)

        async def take_each(of_chat: Sequence[Json]) -> None:
            nonlocal left
            for update in of_chat:
                await take(update)
                left -= 1

        try:
            async with asyncio.TaskGroup() as tasks:
                for of_chat in by_chat.values():
                    tasks.create_task(take_each(of_chat))
        except ExceptionGroup as errors:
            first = errors.exceptions[0]
            raise AdapterNotReady(f"a message was not taken, and will come again: {first}") from first
        finally:
            if not left:  # also where we are stopped just now: what was taken need not come again
                self._offset = max((number for number in map(_number, updates) if number is not None), default=-1) + 1


def _number(update: Json) -> int | None:
    number = update.get("update_id")
    return number if isinstance(number, int) else None
