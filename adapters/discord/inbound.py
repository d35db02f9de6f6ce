"""Hands over incoming messages in the order of each channel, and stores how far that has come.

Discord waits for no acknowledgement: it forgets a message that is on the WebSocket. So for each channel a *cursor* is
stored, the id of its last accepted message. With every new session (READY), the messages after the cursor are fetched
and handed over before live ones.
A channel is *known* from the first message there that is for the bot. Discord does not list the direct chats of a bot,
so they are known from these cursors only. A server's unknown channels are searched once for a first mention in the time
since the bot was last connected, which the note `alive` has.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from adapters.discord import convert
from adapters.discord.convert import Payload
from gateway.errors import PermanentSendError, SendError, StoreError
from gateway.messages import InboundMessage
from gateway.protocols import Accept, AdapterNotes

_log = logging.getLogger(__name__)

FIRST_RETRY_S = 1.0
MAX_RETRY_S = 30.0
_MAX_FETCHES = 4  # requests for messages at once, of Discord's 50 requests a second
_PAGE_SIZE = 100
_MAX_QUEUE = 1000  # messages of one channel; more are fetched later, from the cursor
_CURSOR, _ALIVE = "cursor:", "alive"
_CLOCK_MARGIN_S = 120.0  # for the time between two notes, and for clocks that differ
_MAX_SEARCH_S = 86_400.0
_SEARCH_PAGES = 20  # of an unknown channel

Read = Callable[[Payload, str | None], InboundMessage | None]
"""Converts a message of a server (None: of a direct chat); None if it is not for the bot."""
FetchPage = Callable[[int, int], Awaitable[Sequence[Payload]]]
"""The next page of a channel's messages after an id, oldest first."""


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    """A message in a queue; ordered by id, and behind the cursor by arrival.

    Attributes:
        order: its id, or the cursor if that is higher.
        arrival: counts all messages.
        message: None if it is not for the bot.
    """

    order: int
    arrival: int
    id: int
    message: InboundMessage | None = field(compare=False)


@dataclass(slots=True)
class _Channel:
    """The state of one channel.

    Attributes:
        cursor: every message up to this id was accepted, or is not for the bot.
        stored_cursor: the cursor in the notes.
        queue: a heap of live messages.
        needs_backfill: there may be messages between the cursor and the queue.
        is_known: it has a message for the bot.
    """

    id: int
    guild: str | None
    cursor: int
    stored_cursor: int = 0
    queue: list[_Entry] = field(default_factory=list)
    needs_backfill: bool = False
    is_known: bool = True
    task: asyncio.Task[None] | None = None


class Inbound:
    """Runs one task for each channel with something to do, so that a slow or failing one delays no other."""

    def __init__(
        self,
        notes: AdapterNotes,
        read: Read,
        fetch_page: FetchPage,
        *,
        retry_s: float = FIRST_RETRY_S,
    ) -> None:
        self._notes, self._read, self._fetch_page, self._retry_s = notes, read, fetch_page, retry_s
        self._alive_s: float | None = None
        self._channels: dict[int, _Channel] = {}
        self._fetches = asyncio.Semaphore(_MAX_FETCHES)
        self._accept: Accept | None = None
        self._arrivals = itertools.count()

    async def load(self) -> None:
        """Read the notes, except for channels that are in memory already."""
        for key in await self._notes.keys(_CURSOR):
            channel_id = convert.snowflake(key.removeprefix(_CURSOR))
            if channel_id is None or channel_id in self._channels:
                continue
            note = json.loads(await self._notes.get(key) or "{}")
            cursor = int(note.get("after", 0))
            self._channels[channel_id] = _Channel(channel_id, note.get("guild"), cursor, cursor)
        alive = await self._notes.get(_ALIVE)
        self._alive_s = None if alive is None else float(alive)

    def newest(self, channel_id: int) -> int:
        """The highest message id that was seen in a channel; 0 without one."""
        channel = self._channels.get(channel_id)
        return 0 if channel is None else max(channel.cursor, *(entry.id for entry in channel.queue), 0)

    def is_guild(self, channel_id: int) -> bool:
        """Whether a channel is known to belong to a server."""
        channel = self._channels.get(channel_id)
        return channel is not None and channel.guild is not None

    def start(self, accept: Accept) -> None:
        """Hand over from now on."""
        self._accept = accept
        for channel in self._channels.values():
            self._wake(channel)

    async def stop(self) -> None:
        """Hand over no more. The next READY fetches what is left, since it is after the cursor."""
        self._accept = None
        tasks = [channel.task for channel in self._channels.values() if channel.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for channel in self._channels.values():
            channel.task = None
            channel.queue.clear()  # it would overtake the message that was being handed over; both are fetched again

    def backfill(self, guild: str | None) -> None:
        """Fetch the missed messages in the known channels of a server; None: in the direct chats."""
        for channel in self._channels.values():
            if channel.guild == guild:
                channel.needs_backfill = True
                self._wake(channel)

    @property
    def offline_since(self) -> int | None:
        """The bot was connected before this message id; None if it never was."""
        if self._alive_s is None:
            return None
        return convert.snowflake_at(max(self._alive_s - _CLOCK_MARGIN_S, time.time() - _MAX_SEARCH_S))

    def search(self, guild: str, channel_ids: Iterable[int], since: int) -> None:
        """Search the unknown channels of a server for a first mention."""
        for channel_id in channel_ids:
            if channel_id not in self._channels:
                channel = _Channel(channel_id, guild, since, needs_backfill=True, is_known=False)
                self._channels[channel_id] = channel
                self._wake(channel)

    async def store_alive(self) -> None:
        """Store that the bot is connected now; not during a search, which may have to be repeated."""
        if all(channel.is_known for channel in self._channels.values()):
            self._alive_s = time.time()
            with contextlib.suppress(StoreError):  # the next one is soon
                await self._notes.put(_ALIVE, f"{self._alive_s:.3f}", is_durable=False)

    def receive(self, payload: Payload, guild: str | None) -> None:
        """Queue a live message."""
        channel_id, message_id = int(payload["channel_id"]), int(payload["id"])
        message = self._try_read(payload, guild)
        channel = self._channels.get(channel_id)
        if channel is None:
            if message is None:
                return
            channel = self._channels[channel_id] = _Channel(channel_id, guild, message_id - 1)
        if len(channel.queue) < _MAX_QUEUE:
            order = max(message_id, channel.cursor)
            heapq.heappush(channel.queue, _Entry(order, next(self._arrivals), message_id, message))
        else:
            channel.needs_backfill = True
        self._wake(channel)

    # ---- one channel -----------------------------------------------------------------------------------------------

    def _wake(self, channel: _Channel) -> None:
        if self._accept is not None and channel.task is None and (channel.needs_backfill or channel.queue):
            work = self._work(channel, self._accept)
            channel.task = asyncio.create_task(work, name=f"discord channel {channel.id}")

    async def _work(self, channel: _Channel, accept: Accept) -> None:
        try:
            while channel.needs_backfill or channel.queue:
                if channel.needs_backfill:
                    channel.needs_backfill = False
                    await self._backfill(channel, accept)
                else:
                    entry = heapq.heappop(channel.queue)
                    await self._hand_over(channel, accept, entry.id, entry.message)
            await self._store_cursor(channel)
            if not channel.is_known:
                del self._channels[channel.id]
        finally:
            channel.task = None
        self._wake(channel)

    async def _backfill(self, channel: _Channel, accept: Accept) -> None:
        """Hand over everything after the cursor, and remove it from the queue."""
        fetched: set[int] = set()
        page: Sequence[Payload] = ()
        pages = itertools.count()
        while not fetched or len(page) >= _PAGE_SIZE:
            if not channel.is_known and next(pages) >= _SEARCH_PAGES:
                _log.info("so much was written in the channel %s that only its beginning was read", channel.id)
                break
            after = max(fetched, default=channel.cursor)
            try:
                page = await self._fetch(channel, after)
            except PermanentSendError as error:
                _log.info("what was missed in the channel %s cannot be fetched: %s", channel.id, error)
                break
            for payload in page:
                message_id = int(payload["id"])
                fetched.add(message_id)
                await self._hand_over(channel, accept, message_id, self._try_read(payload, channel.guild))
            if not page:
                break
        channel.queue = [entry for entry in channel.queue if entry.id not in fetched]
        heapq.heapify(channel.queue)

    async def _fetch(self, channel: _Channel, after: int) -> Sequence[Payload]:
        wait_s = self._retry_s
        while True:
            try:
                async with self._fetches:
                    return await self._fetch_page(channel.id, after)
            except PermanentSendError:
                raise
            except SendError as error:
                _log.debug("the history of the channel %s is fetched again: %s", channel.id, error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_RETRY_S)

    async def _hand_over(
        self, channel: _Channel, accept: Accept, message_id: int, message: InboundMessage | None
    ) -> None:
        """Try until the message is accepted: Discord does not deliver it again."""
        if message is not None:
            channel.is_known = True
            if not channel.stored_cursor:  # before it is accepted, so that it is fetched again if that fails
                await self._store_cursor(channel)
            wait_s = self._retry_s
            while not await self._is_accepted(accept, message):
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, MAX_RETRY_S)
        channel.cursor = max(channel.cursor, message_id)
        if message is not None:
            await self._store_cursor(channel)

    async def _is_accepted(self, accept: Accept, message: InboundMessage) -> bool:
        try:
            await accept(message)
        except Exception as error:  # noqa: BLE001 (whatever it is, the message was not kept)
            _log.warning("a message was not taken, and is offered again: %s", error)
            return False
        return True

    async def _store_cursor(self, channel: _Channel) -> None:
        """A lost cursor costs a fetch; the gateway takes each message once."""
        if channel.stored_cursor == channel.cursor or not channel.is_known:
            return
        try:
            note = json.dumps({"after": str(channel.cursor), "guild": channel.guild})
            await self._notes.put(f"{_CURSOR}{channel.id}", note, is_durable=not channel.stored_cursor)
            channel.stored_cursor = channel.cursor
        except StoreError as error:
            _log.debug("a cursor was not stored: %s", error)

    def _try_read(self, payload: Payload, guild: str | None) -> InboundMessage | None:
        try:
            return self._read(payload, guild)
        except convert.UNREADABLE as error:
            _log.warning("a message of Discord's was passed over: it cannot be read (%r)", error)
            return None
