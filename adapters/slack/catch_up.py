"""What was written while we were away: in the conversations that we know, and by first mentions elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from adapters.slack.client import SlackClient
from adapters.slack.convert import UNREADABLE, Home, Place, message_from_history, place_in_list, time_of
from adapters.slack.rate_limit import Pace
from gateway.errors import PermanentSendError
from gateway.messages import InboundMessage
from gateway.protocols import AdapterNotes

_MOST_MESSAGES = 2_000
_MOST_THREADS = 50
_HISTORY_GAP_S = 1.3  # conversations.history is Tier 3, 50 calls a minute for the whole workspace
_MARGIN = timedelta(minutes=2)  # between two notes that we are there, and for clocks that differ
_ALIVE, _SEARCHING = "alive", "searching"

_log = logging.getLogger(__name__)

Keep = Callable[[InboundMessage, Place], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """One time that we catch up.

    Attributes:
        floor: `ts` before which nothing is fetched.
        searched: since when an earlier process, which did not come to the end, was away; None without one.
        away_since: since when we were away; None where we never were there.
    """

    home: Home
    keep: Keep
    floor: str
    searched: str | None
    away_since: str | None


class CatchUp:
    """Remembers how far each conversation was read, and reads on from there after a break.

    Notes: `place/<channel>` has a conversation as JSON, `thread/<channel>/<ts>` the `ts` up to which one of its threads
    was read. They need no power-cut durability: what is fetched twice is taken once. As long as we have not caught up,
    what is new must not move them.

    Where nobody has spoken to us yet there is nothing to go on from; so `alive` has when we were last there, and what
    was written since in every other conversation that we are a member of is looked through for a first mention. It is
    `searching` as long as that goes on, so that a process that dies over it is followed by one that begins again.

    What comes in meanwhile waits until its conversation was caught up with (`level`), so that the order stays.

    Args:
        reach: how far back; zero switches it off.
    """

    def __init__(
        self, name: str, client: SlackClient, notes: AdapterNotes, *, reach: timedelta, slack_connect: bool
    ) -> None:
        self._name = name
        self._client = client
        self._notes = notes
        self._reach = reach
        self._slack_connect = slack_connect
        self._missed: dict[str, set[str]] = defaultdict(set)
        self._is_level = False
        self._is_complete = False
        self._ahead: dict[tuple[str, str | None], tuple[Place, str]] = {}
        self._pace = Pace(_HISTORY_GAP_S)
        self._round: asyncio.Future[_Round] | None = None
        self._readings: dict[str, asyncio.Task[int]] = {}

    def begin(self) -> None:
        """There was a break, of which we do not know yet what was written in it."""
        self._is_level = self._is_complete = False
        self._ahead.clear()
        self._round = asyncio.get_running_loop().create_future() if self._reach else None

    async def level(self, place: Place, wait_s: float) -> None:
        """Return once what was missed in the conversation is handed over, or cannot be had now, or after `wait_s`."""
        waited_for = self._round
        if waited_for is None:
            return
        try:
            async with asyncio.timeout(wait_s):
                now = await asyncio.shield(waited_for)
                if self._round is waited_for:
                    await asyncio.wait({self._reading(now, place)})
        except TimeoutError:
            _log.warning("%s: a message did not wait for those that were missed before it", self._name)

    def missed(self, place: Place, ts: str) -> None:
        """A message was not kept: what follows it must not make us forget it."""
        self._missed[place.channel].add(ts)

    async def kept(self, place: Place, thread: str | None, ts: str) -> None:
        """A message was kept, so its conversation was read that far."""
        missed = self._missed[place.channel]
        missed.discard(ts)
        if not self._reach or any(each < ts for each in missed):
            return
        if self._is_level:
            await self._note(place, thread, ts)
        else:
            _, newest = self._ahead.get((place.channel, thread), (place, ts))
            self._ahead[place.channel, thread] = (place, max(ts, newest))

    async def read_to(self, message: InboundMessage) -> str:
        """The `ts` up to which the message's thread was read; empty where it was not."""
        where = message.conversation
        _, ahead = self._ahead.get((where.conversation, where.thread), (None, ""))
        return max(ahead, await self._notes.get(f"thread/{where.conversation}/{where.thread}") or "")

    async def run(self, home: Home, keep: Keep) -> int:
        """Hand over what is new in every conversation that we know; returns how many messages.

        Raises:
            TransientSendError: Slack cannot be asked now; call it again.
        """
        if not self._reach:
            self._is_level = self._is_complete = True
            await self.note_alive()
            return 0
        searched = await self._notes.get(_SEARCHING)
        now = _Round(
            home=home,
            keep=keep,
            floor=_ts(datetime.now(UTC) - self._reach),
            searched=searched,
            away_since=searched or await self._notes.get(_ALIVE),
        )
        if self._round is None or self._round.done():  # a try before this one failed
            self._round = asyncio.get_running_loop().create_future()
        self._round.set_result(now)
        try:
            await self._catch_up(now)
            return sum(reading.result() for reading in self._readings.values())
        finally:
            readings, self._round, self._readings = self._readings, None, {}
            for reading in readings.values():
                reading.cancel()
            await asyncio.gather(*readings.values(), return_exceptions=True)

    async def _catch_up(self, now: _Round) -> None:
        for key in await self._notes.keys("place/"):
            channel, known = key.removeprefix("place/"), _read(await self._notes.get(key))
            await self._reading(now, _place(channel, known))
        for key in await self._notes.keys("thread/"):
            if (await self._notes.get(key) or "") < now.floor:
                await self._notes.remove(key)
        for reading in list(self._readings.values()):  # of what came in meanwhile
            await reading
        self._is_level = True
        while self._ahead:
            (_, thread), (place, ts) = self._ahead.popitem()
            await self._note(place, thread, ts)
        if now.away_since is not None:
            await self._search(now, now.away_since)
        self._is_complete = True
        await self.note_alive()

    async def note_alive(self) -> None:
        """We are there. What we have not looked through yet is looked through from the earlier time."""
        if self._is_complete:
            await self._notes.put(_ALIVE, _ts(datetime.now(UTC)), is_durable=False)

    async def _search(self, now: _Round, away_since: str) -> None:
        """Look for first mentions in the conversations that we do not know."""
        await self._notes.put(_SEARCHING, away_since, is_durable=False)
        for place in await self._unknown():
            await self._pace.wait()
            await self._reading(now, place)
        for reading in list(self._readings.values()):
            await reading
        await self._notes.remove(_SEARCHING)

    def _reading(self, now: _Round, place: Place) -> asyncio.Task[int]:
        """What is new in a conversation is handed over by one task, the first that needs it."""
        reading = self._readings.get(place.channel)
        if reading is None:
            work = self._read_place(now, place)
            reading = self._readings[place.channel] = asyncio.create_task(work, name=f"catch-up with {place.channel}")
        return reading

    async def _read_place(self, now: _Round, place: Place) -> int:
        key = f"place/{place.channel}"
        note = await self._notes.get(key)
        if note is None:
            if now.away_since is None:
                return 0
            since = _ts(time_of(now.away_since) - _MARGIN)
        else:
            known = _read(note)
            place, since = _place(place.channel, known), known.get("ts", "")
            since = min(since, now.searched or since)
        try:
            return await self._read_on(now.home, place, max(since, now.floor), now.keep)
        except PermanentSendError as error:
            if note is None:
                _log.info("%s: %s cannot be looked through for mentions: %s", self._name, place.channel, error)
            else:
                _log.warning("%s: %s cannot be caught up with, and is forgotten: %s", self._name, place.channel, error)
                await self._notes.remove(key)
            return 0

    async def _unknown(self) -> list[Place]:
        known = {key.removeprefix("place/") for key in await self._notes.keys("place/")}
        try:
            async with aclosing(self._client.conversations()) as listed:
                return [place_in_list(each) async for each in listed if each.get("id") not in known]
        except (PermanentSendError, KeyError) as error:
            _log.warning("%s: first mentions while we were away are not found: %s", self._name, error)
            return []

    async def _note(self, place: Place, thread: str | None, ts: str) -> None:
        key = f"place/{place.channel}"
        if ts > _read(await self._notes.get(key)).get("ts", ""):
            text = json.dumps({"ts": ts, "kind": place.kind, "is_shared": place.is_shared})
            await self._notes.put(key, text, is_durable=False)
        if thread is not None:
            key = f"thread/{place.channel}/{thread}"
            if ts > (await self._notes.get(key) or ""):
                await self._notes.put(key, ts, is_durable=False)

    async def _read_on(self, home: Home, place: Place, oldest: str, keep: Keep) -> int:
        found = await self._fetch(place.channel, None, oldest)
        threads = {}
        for message in found:
            if str(message.get("latest_reply", "")) > oldest:
                threads[str(message["ts"])] = oldest
        prefix = f"thread/{place.channel}/"
        for key in await self._notes.keys(prefix):
            threads[key.removeprefix(prefix)] = max(await self._notes.get(key) or "", oldest)
        newest = sorted(threads.items(), key=lambda each: each[1])[-_MOST_THREADS:]
        for thread, since in newest:
            try:
                found += await self._fetch(place.channel, thread, since)
            except PermanentSendError as error:  # somebody deleted it
                _log.info("%s: a thread in %s is forgotten: %s", self._name, place.channel, error)
                await self._notes.remove(f"{prefix}{thread}")
        count = 0
        for ts, message in sorted({str(each.get("ts")): each for each in found}.items()):
            if ts <= oldest:
                continue
            try:
                written = message_from_history(self._name, home, place, message, slack_connect=self._slack_connect)
            except UNREADABLE:
                _log.warning("%s: an entry of the history that is no message was passed over", self._name)
                continue
            if written is not None:
                await keep(written, place)
                count += 1
        return count

    async def _fetch(self, channel: str, thread: str | None, oldest: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        async with aclosing(self._client.history(channel, thread, oldest)) as messages:
            async for message in messages:
                found.append(message)
                if len(found) >= _MOST_MESSAGES:
                    _log.warning("%s: more than %d messages in %s; older ones are left out",
                                 self._name, _MOST_MESSAGES, channel)  # fmt: skip
                    break
        return found


def _place(channel: str, known: Mapping[str, Any]) -> Place:
    return Place(channel=channel, kind=known.get("kind", "im"), is_shared=bool(known.get("is_shared")))


def _ts(time: datetime) -> str:
    return f"{time.timestamp():.6f}"


def _read(text: str | None) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
