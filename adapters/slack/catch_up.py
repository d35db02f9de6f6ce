"""What was written while we were away: in the conversations that we know, and by first mentions elsewhere."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

from adapters.slack.client import SlackClient
from adapters.slack.convert import UNREADABLE, Home, Place, message_from_history, place_in_list, time_of
from adapters.slack.pace import Pace
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


class CatchUp:
    """Remembers how far each conversation was read, and reads on from there after a break.

    Notes: `place/<channel>` has a conversation as JSON, `thread/<channel>/<ts>` the `ts` up to which one of its threads
    was read. They need no power-cut durability: what is fetched twice is taken once. As long as we have not caught up,
    what is new must not move them.

    Where nobody has spoken to us yet there is nothing to go on from; so `alive` has when we were last there, and what
    was written since in every other conversation that we are a member of is looked through for a first mention. It is
    `searching` as long as that goes on, so that a process that dies over it is followed by one that begins again.

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

    def begin(self) -> None:
        """There was a break, of which we do not know yet what was written in it."""
        self._is_level = self._is_complete = False
        self._ahead.clear()

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

    async def run(self, home: Home, keep: Keep) -> int:
        """Hand over what is new in every conversation that we know; returns how many messages.

        Raises:
            TransientSendError: Slack cannot be asked now; call it again.
        """
        floor = _ts(datetime.now(UTC) - self._reach)
        searched = await self._notes.get(_SEARCHING)
        count = 0
        for key in await self._notes.keys("place/") if self._reach else ():
            channel, known = key.removeprefix("place/"), _read(await self._notes.get(key))
            place = Place(channel=channel, kind=known.get("kind", "im"), is_shared=bool(known.get("is_shared")))
            try:
                since = min(known.get("ts", ""), searched or known.get("ts", ""))
                count += await self._read_on(home, place, max(since, floor), keep)
            except PermanentSendError as error:
                _log.warning("%s: %s cannot be caught up with, and is forgotten: %s", self._name, channel, error)
                await self._notes.remove(key)
        for key in await self._notes.keys("thread/"):
            if (await self._notes.get(key) or "") < floor:
                await self._notes.remove(key)
        self._is_level = True
        while self._ahead:
            (_, thread), (place, ts) = self._ahead.popitem()
            await self._note(place, thread, ts)
        count += await self._search(home, keep, searched, floor) if self._reach else 0
        self._is_complete = True
        await self.note_alive()
        return count

    async def note_alive(self) -> None:
        """We are there. What we have not looked through yet is looked through from the earlier time."""
        if self._is_complete:
            await self._notes.put(_ALIVE, _ts(datetime.now(UTC)), is_durable=False)

    async def _search(self, home: Home, keep: Keep, searched: str | None, floor: str) -> int:
        """Look for first mentions in the conversations that we do not know."""
        since = searched or await self._notes.get(_ALIVE)
        if since is None:  # we never were there
            return 0
        await self._notes.put(_SEARCHING, since, is_durable=False)
        oldest, count = max(_ts(time_of(since) - _MARGIN), floor), 0
        for place in await self._unknown():
            await self._pace.wait()
            try:
                count += await self._read_on(home, place, oldest, keep)
            except PermanentSendError as error:
                _log.info("%s: %s cannot be looked through for mentions: %s", self._name, place.channel, error)
        await self._notes.remove(_SEARCHING)
        return count

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
            found += await self._fetch(place.channel, thread, since)
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


def _ts(time: datetime) -> str:
    return f"{time.timestamp():.6f}"


def _read(text: str | None) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
