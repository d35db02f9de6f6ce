"""Long polling: fetch updates, hand them over, and only then fetch more, which confirms them.

https://core.telegram.org/bots/api#getupdates: an update is confirmed by asking for a higher one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from adapters.telegram.client import TelegramClient
from adapters.telegram.convert import Json, chat_id_of
from gateway.errors import AdapterNotReady

HandleUpdate = Callable[[Json], Awaitable[None]]
"""Returns when the update's message is committed, or needs none."""
OnCaughtUp = Callable[[], Awaitable[None]]
"""Called whenever Telegram has no updates that we do not have."""

_INSTANT_S = 0.5
_MAX_INSTANT_POLLS = 10


class Polling:
    """Fetches updates in a loop of our own; the library's loop confirms them too early."""

    def __init__(self, client: TelegramClient) -> None:
        self._client = client
        # Sent once to confirm a batch, and not again: after a quiet week Telegram numbers updates from a random start,
        # and an offset above that would confirm updates that were not read.
        self._offset: int | None = None

    async def prepare(self) -> None:
        """Remove the webhook; Telegram keeps the waiting updates."""
        await self._client.remove_webhook()

    async def run(self, handle: HandleUpdate, caught_up: OnCaughtUp) -> None:
        """Hand over every update until cancelled, until the connection breaks twice in a row, or one is not taken."""
        clock = asyncio.get_running_loop().time
        has_failed, instant_polls = False, 0
        while True:
            asked_at_s = clock()
            try:
                updates = await self._client.get_updates(self._offset)
            except AdapterNotReady as error:
                if has_failed or error.retry_after_s is not None:
                    raise
                has_failed = True  # a proxy may drop an idle connection; one failure is not reported
                continue
            has_failed, self._offset = False, None
            if updates:
                instant_polls = 0
                await self._handle_all(updates, handle)
                continue
            await caught_up()
            # Telegram answers an empty long poll late; a server that answers at once is something else.
            instant_polls = instant_polls + 1 if clock() - asked_at_s < _INSTANT_S else 0
            if instant_polls > _MAX_INSTANT_POLLS:
                raise AdapterNotReady("long polls come back empty at once; is a proxy in between?")

    async def _handle_all(self, updates: Sequence[Json], handle: HandleUpdate) -> None:
        """In order within a chat; chats in parallel, so that they share commits."""
        by_chat: defaultdict[int | None, list[Json]] = defaultdict(list)
        for update in updates:
            by_chat[chat_id_of(update)].append(update)
        left = len(updates)

        async def handle_each(of_chat: Sequence[Json]) -> None:
            nonlocal left
            for update in of_chat:
                await handle(update)
                left -= 1

        try:
            async with asyncio.TaskGroup() as tasks:
                for of_chat in by_chat.values():
                    tasks.create_task(handle_each(of_chat))
        except ExceptionGroup as errors:
            first = errors.exceptions[0]
            raise AdapterNotReady(f"a message was not taken, and will come again: {first}") from first
        finally:
            if not left:  # also when cancelled just now: what was handled need not come again
                self._offset = (
                    max((number for number in map(_update_id, updates) if number is not None), default=-1) + 1
                )


def _update_id(update: Json) -> int | None:
    number = update.get("update_id")
    return number if isinstance(number, int) else None
