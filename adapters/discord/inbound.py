"""What arrives, handed over in the order of each channel, and how far that has come.

Discord does not wait for us to say that we have a message: it forgets it once it is on the line. So the acknowledgement
is a mark of our own for each conversation, the id of the last message that was accepted; with every new session
(READY), whatever was written after the mark is fetched and handed over before what comes live.
A conversation is known from its first message on that is for us. Discord tells nobody of the direct chats that a bot
has, so those are known from these marks only. In a server's channels that are not known, what was written since we
were last there is looked through once, for a first mention; the note `alive` has when that was.
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
LONGEST_RETRY_S = 30.0
_FETCHES = 4  # histories that are fetched at once, of Discord's 50 requests a second
_FULL_PAGE = 100
_LONGEST_QUEUE = 1000  # messages of one channel; beyond that they are fetched later, from the mark
_MARK, _ALIVE = "mark:", "alive"
_MARGIN_S = 120.0  # between two notes that we are there, and for clocks that differ
_LOOKED_BACK_S = 86_400.0
_LOOKED_THROUGH = 20  # pages of a channel that is not known

Read = Callable[[Payload, str | None], InboundMessage | None]
"""Turns a message of a server (None: of a direct chat) into ours, or into None where it is not for us."""
History = Callable[[int, int], Awaitable[Sequence[Payload]]]
"""The next page of a channel's messages behind an id, oldest first."""


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    """A message in a queue: the oldest first, and what was passed already as it comes.

    Attributes:
        order: its id, or the mark where that is beyond the id.
        arrival: counts all that arrive.
        message: None: it is not for us.
    """

    order: int
    arrival: int
    id: int
    message: InboundMessage | None = field(compare=False)


@dataclass(slots=True)
class _Lane:
    """One channel.

    Attributes:
        mark: up to this id everything was accepted, or is not for us.
        noted: the mark as it is in the notes.
        queue: a heap of what came live.
        is_behind: there may be messages between the mark and the queue.
        is_known: somebody spoke to us there.
    """

    channel: int
    guild: str | None
    mark: int
    noted: int = 0
    queue: list[_Entry] = field(default_factory=list)
    is_behind: bool = False
    is_known: bool = True
    task: asyncio.Task[None] | None = None


class Receiver:
    """One task for each channel in which there is something to do; so one that fails or is slow delays no other."""

    def __init__(
        self,
        notes: AdapterNotes,
        read: Read,
        history: History,
        *,
        retry_s: float = FIRST_RETRY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._notes, self._read, self._history, self._retry_s = notes, read, history, retry_s
        self._clock = clock
        self._alive_s: float | None = None
        self._lanes: dict[int, _Lane] = {}
        self._fetches = asyncio.Semaphore(_FETCHES)
        self._accept: Accept | None = None
        self._arrivals = itertools.count()

    async def load(self) -> None:
        """Learn from the notes what is known; what is known already counts more."""
        for key in await self._notes.keys(_MARK):
            channel = convert.snowflake(key.removeprefix(_MARK))
            if channel is None or channel in self._lanes:
                continue
            note = json.loads(await self._notes.get(key) or "{}")
            mark = int(note.get("after", 0))
            self._lanes[channel] = _Lane(channel, note.get("guild"), mark, mark)
        alive = await self._notes.get(_ALIVE)
        self._alive_s = None if alive is None else float(alive)

    def newest(self, channel: int) -> int:
        """The id of the newest message that was seen in a channel; 0 where there is none."""
        lane = self._lanes.get(channel)
        return 0 if lane is None else max(lane.mark, *(entry.id for entry in lane.queue), 0)

    def is_guild(self, channel: int) -> bool:
        """Whether a channel is known to belong to a server."""
        lane = self._lanes.get(channel)
        return lane is not None and lane.guild is not None

    def start(self, accept: Accept) -> None:
        """Hand over from now on."""
        self._accept = accept
        for lane in self._lanes.values():
            self._wake(lane)

    async def stop(self) -> None:
        """Hand over no more. What waits is fetched again at the next READY, since no mark has passed it."""
        self._accept = None
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for lane in self._lanes.values():
            lane.task = None
            lane.queue.clear()  # it would overtake the message that was being taken; both are fetched again

    def catch_up(self, guild: str | None) -> None:
        """Fetch what was missed in the known channels of a server, or, with None, in the direct chats."""
        for lane in self._lanes.values():
            if lane.guild == guild:
                lane.is_behind = True
                self._wake(lane)

    @property
    def away_since(self) -> int | None:
        """Before this message id we were there; None where we never were."""
        if self._alive_s is None:
            return None
        return convert.snowflake_at(max(self._alive_s - _MARGIN_S, self._clock() - _LOOKED_BACK_S))

    def look_into(self, guild: str, channels: Iterable[int], since: int) -> None:
        """Look for a first mention in the channels of a server that are not known."""
        for channel in channels:
            if channel not in self._lanes:
                lane = self._lanes[channel] = _Lane(channel, guild, since, is_behind=True, is_known=False)
                self._wake(lane)

    async def note_alive(self) -> None:
        """We are there; but as long as we look for what we missed, the time that counts is the earlier one."""
        if all(lane.is_known for lane in self._lanes.values()):
            self._alive_s = self._clock()
            with contextlib.suppress(StoreError):  # the next one is soon
                await self._notes.put(_ALIVE, f"{self._alive_s:.3f}", is_durable=False)

    def received(self, payload: Payload, guild: str | None) -> None:
        """Take a message from the line."""
        channel, identifier = int(payload["channel_id"]), int(payload["id"])
        message = self._readable(payload, guild)
        lane = self._lanes.get(channel)
        if lane is None:
            if message is None:
                return
            lane = self._lanes[channel] = _Lane(channel, guild, identifier - 1)
        if len(lane.queue) < _LONGEST_QUEUE:
            order = max(identifier, lane.mark)
            heapq.heappush(lane.queue, _Entry(order, next(self._arrivals), identifier, message))
        else:
            lane.is_behind = True
        self._wake(lane)

    # ---- one channel -----------------------------------------------------------------------------------------------

    def _wake(self, lane: _Lane) -> None:
        if self._accept is not None and lane.task is None and (lane.is_behind or lane.queue):
            lane.task = asyncio.create_task(self._work(lane, self._accept), name=f"discord channel {lane.channel}")

    async def _work(self, lane: _Lane, accept: Accept) -> None:
        try:
            while lane.is_behind or lane.queue:
                if lane.is_behind:
                    lane.is_behind = False
                    await self._fetch(lane, accept)
                else:
                    entry = heapq.heappop(lane.queue)
                    await self._take(lane, accept, entry.id, entry.message)
            await self._note(lane)
            if not lane.is_known:
                del self._lanes[lane.channel]
        finally:
            lane.task = None
        self._wake(lane)

    async def _fetch(self, lane: _Lane, accept: Accept) -> None:
        """Hand over everything behind the mark, and take what came live meanwhile only once."""
        fetched: set[int] = set()
        page: Sequence[Payload] = ()
        pages = itertools.count()
        while not fetched or len(page) >= _FULL_PAGE:
            if not lane.is_known and next(pages) >= _LOOKED_THROUGH:
                _log.info("so much was written in the channel %s that only its beginning was read", lane.channel)
                break
            behind = max(fetched, default=lane.mark)
            try:
                page = await self._page(lane, behind)
            except PermanentSendError as error:
                _log.info("what was missed in the channel %s cannot be fetched: %s", lane.channel, error)
                break
            for payload in page:
                identifier = int(payload["id"])
                fetched.add(identifier)
                await self._take(lane, accept, identifier, self._readable(payload, lane.guild))
            if not page:
                break
        lane.queue = [entry for entry in lane.queue if entry.id not in fetched]
        heapq.heapify(lane.queue)

    async def _page(self, lane: _Lane, after: int) -> Sequence[Payload]:
        wait_s = self._retry_s
        while True:
            try:
                async with self._fetches:
                    return await self._history(lane.channel, after)
            except PermanentSendError:
                raise
            except SendError as error:
                _log.debug("the history of the channel %s is fetched again: %s", lane.channel, error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_RETRY_S)

    async def _take(self, lane: _Lane, accept: Accept, identifier: int, message: InboundMessage | None) -> None:
        """Hand one message over until it is kept: nobody but us can deliver it again."""
        if message is not None:
            lane.is_known = True
            if not lane.noted:  # known before it is accepted, so that it is fetched if that fails
                await self._note(lane)
            wait_s = self._retry_s
            while not await self._is_accepted(accept, message):
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, LONGEST_RETRY_S)
        lane.mark = max(lane.mark, identifier)
        if message is not None:
            await self._note(lane)

    async def _is_accepted(self, accept: Accept, message: InboundMessage) -> bool:
        try:
            await accept(message)
        except Exception as error:  # noqa: BLE001 (whatever it is, the message was not kept)
            _log.warning("a message was not taken, and is offered again: %s", error)
            return False
        return True

    async def _note(self, lane: _Lane) -> None:
        """Keep the mark. One that is lost costs a fetch; the gateway knows what it has."""
        if lane.noted == lane.mark or not lane.is_known:
            return
        try:
            note = json.dumps({"after": str(lane.mark), "guild": lane.guild})
            await self._notes.put(f"{_MARK}{lane.channel}", note, is_durable=not lane.noted)
            lane.noted = lane.mark
        except StoreError as error:
            _log.debug("a mark was not kept: %s", error)

    def _readable(self, payload: Payload, guild: str | None) -> InboundMessage | None:
        try:
            return self._read(payload, guild)
        except convert.UNREADABLE as error:
            _log.warning("a message of Discord's was passed over: it cannot be read (%r)", error)
            return None
