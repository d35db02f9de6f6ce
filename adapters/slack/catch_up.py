"""Fetches what was written while we were away: in known conversations, and first mentions in the others."""

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
from adapters.slack.convert import (
    UNREADABLE,
    Conversation,
    Installation,
    conversation_in_list,
    message_from_history,
    time_of,
)
from adapters.slack.rate_limit import RateLimit
from gateway.errors import PermanentSendError
from gateway.messages import InboundMessage
from gateway.protocols import AdapterNotes

_MAX_MESSAGES = 2_000
_MAX_THREADS = 50
_HISTORY_INTERVAL_S = 1.3  # conversations.history is Tier 3, 50 calls a minute for the whole workspace
_MARGIN = timedelta(minutes=2)  # for the time between two `alive` notes, and for clocks that differ
_ALIVE, _SEARCHING = "alive", "searching"

_log = logging.getLogger(__name__)

HandOver = Callable[[InboundMessage, Conversation], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One catch-up.

    Attributes:
        oldest: `ts` before which nothing is fetched.
        unfinished_since: since when an earlier process was away that died during its search; None without one.
        away_since: since when we were away; None at the first start.
    """

    app: Installation
    hand_over: HandOver
    oldest: str
    unfinished_since: str | None
    away_since: str | None


class CatchUp:
    """Remembers how far each conversation was read, and reads on from there after a break.

    Notes: `conversation/<channel>` has a conversation and the `ts` up to which it was read, as JSON;
    `thread/<channel>/<ts>` has the `ts` up to which one of its threads was read. A power cut may lose them: what is
    fetched twice is accepted once. New messages must not move them before the catch-up is done.

    A conversation in which no one spoke to us yet has no such note. So `alive` has the time when we were last
    connected, and every other conversation that we are a member of is searched for mentions from then on. During the
    search the note `searching` has that time, so that a process that dies is followed by one that searches again.

    Messages that arrive meanwhile wait until their conversation was read (`wait_until_caught_up`): the order stays.

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
        self._failed: dict[str, set[str]] = defaultdict(set)
        self._is_caught_up = False
        self._is_complete = False
        self._is_noting = False
        self._unsaved: dict[tuple[str, str | None], tuple[Conversation, str]] = {}
        self._history_limit = RateLimit(_HISTORY_INTERVAL_S)
        self._current: asyncio.Future[_Run] | None = None
        self._readings: dict[str, asyncio.Task[int]] = {}

    def begin(self) -> None:
        """There was a break; what was written in it is not known yet."""
        self._is_caught_up = self._is_complete = False
        self._is_noting = True
        self._unsaved.clear()
        self._current = asyncio.get_running_loop().create_future() if self._reach else None

    def leave(self) -> None:
        """Note nothing: another worker has the channel, and fetches after a break what this one accepts, once more."""
        self._is_noting = False

    async def wait_until_caught_up(self, conversation: Conversation, wait_s: float) -> None:
        """Return once the conversation's missed messages are handed over or cannot be fetched, or after `wait_s`."""
        current = self._current
        if current is None:
            return
        try:
            async with asyncio.timeout(wait_s):
                run = await asyncio.shield(current)
                if self._current is current:
                    await asyncio.wait({self._reading(run, conversation)})
        except TimeoutError:
            _log.warning("%s: a message did not wait for those that were missed before it", self._name)

    def mark_failed(self, conversation: Conversation, ts: str) -> None:
        """A message was not accepted; later ones must not move the position past it."""
        self._failed[conversation.channel].add(ts)

    async def mark_accepted(self, conversation: Conversation, thread: str | None, ts: str) -> None:
        """A message was accepted, so its conversation was read up to it."""
        failed = self._failed[conversation.channel]
        failed.discard(ts)
        if not self._reach or not self._is_noting or any(each < ts for each in failed):
            return
        if self._is_caught_up:
            await self._save_position(conversation, thread, ts)
        else:
            _, newest = self._unsaved.get((conversation.channel, thread), (conversation, ts))
            self._unsaved[conversation.channel, thread] = (conversation, max(ts, newest))

    async def read_to(self, message: InboundMessage) -> str:
        """The `ts` up to which the message's thread was read; empty where it was not."""
        where = message.conversation
        _, unsaved = self._unsaved.get((where.conversation, where.thread), (None, ""))
        return max(unsaved, await self._notes.get(f"thread/{where.conversation}/{where.thread}") or "")

    async def run(self, app: Installation, hand_over: HandOver) -> int:
        """Hand over what is new in every conversation; returns how many messages.

        Raises:
            TransientSendError: Slack cannot be asked now; call it again.
        """
        if not self._reach:
            self._is_caught_up = self._is_complete = True
            await self.note_alive()
            return 0
        unfinished_since = await self._notes.get(_SEARCHING)
        run = _Run(
            app=app,
            hand_over=hand_over,
            oldest=_ts(datetime.now(UTC) - self._reach),
            unfinished_since=unfinished_since,
            away_since=unfinished_since or await self._notes.get(_ALIVE),
        )
        if self._current is None or self._current.done():  # an earlier try failed
            self._current = asyncio.get_running_loop().create_future()
        self._current.set_result(run)
        try:
            await self._catch_up(run)
            return sum(reading.result() for reading in self._readings.values())
        finally:
            readings, self._current, self._readings = self._readings, None, {}
            for reading in readings.values():
                reading.cancel()
            await asyncio.gather(*readings.values(), return_exceptions=True)

    async def _catch_up(self, run: _Run) -> None:
        for channel in await self._known_channels():
            await self._reading(run, _conversation(channel, await self._position(channel)))
        for key in await self._notes.keys("thread/"):
            if (await self._notes.get(key) or "") < run.oldest:
                await self._notes.remove(key)
        for reading in list(self._readings.values()):  # those that `wait_until_caught_up` began meanwhile
            await reading
        self._is_caught_up = True
        while self._unsaved:
            (_, thread), (conversation, ts) = self._unsaved.popitem()
            await self._save_position(conversation, thread, ts)
        if run.away_since is not None:
            await self._search(run, run.away_since)
        self._is_complete = True
        await self.note_alive()

    async def note_alive(self) -> None:
        """Note that we are connected now; only when the catch-up is complete, for the next one begins at this time."""
        if self._is_complete:
            await self._notes.put(_ALIVE, _ts(datetime.now(UTC)), is_durable=False)

    async def _search(self, run: _Run, away_since: str) -> None:
        """Look for first mentions in unknown conversations."""
        await self._notes.put(_SEARCHING, away_since, is_durable=False)
        for conversation in await self._unknown_conversations():
            await self._history_limit.wait()
            await self._reading(run, conversation)
        for reading in list(self._readings.values()):
            await reading
        await self._notes.remove(_SEARCHING)

    def _reading(self, run: _Run, conversation: Conversation) -> asyncio.Task[int]:
        """The one task that hands over what is new in a conversation; the first that needs it starts it."""
        reading = self._readings.get(conversation.channel)
        if reading is None:
            name = f"catch-up with {conversation.channel}"
            reading = asyncio.create_task(self._read(run, conversation), name=name)
            self._readings[conversation.channel] = reading
        return reading

    async def _read(self, run: _Run, conversation: Conversation) -> int:
        channel = conversation.channel
        known = await self._position(channel)
        if known:
            conversation, since = _conversation(channel, known), str(known["ts"])
            since = min(since, run.unfinished_since or since)
        elif run.away_since is None:
            return 0
        else:
            since = _ts(time_of(run.away_since) - _MARGIN)
        try:
            return await self._hand_over_since(max(since, run.oldest), run, conversation)
        except PermanentSendError as error:
            if known:
                _log.warning("%s: %s cannot be caught up with, and is forgotten: %s", self._name, channel, error)
                await self._notes.remove(f"conversation/{channel}")
            else:
                _log.info("%s: %s cannot be looked through for mentions: %s", self._name, channel, error)
            return 0

    async def _known_channels(self) -> list[str]:
        return [key.removeprefix("conversation/") for key in await self._notes.keys("conversation/")]

    async def _unknown_conversations(self) -> list[Conversation]:
        known = set(await self._known_channels())
        try:
            async with aclosing(self._client.conversations()) as listed:
                return [conversation_in_list(each) async for each in listed if each.get("id") not in known]
        except (PermanentSendError, KeyError) as error:
            _log.warning("%s: first mentions while we were away are not found: %s", self._name, error)
            return []

    async def _position(self, channel: str) -> dict[str, Any]:
        """What is noted of a conversation; empty where nothing is."""
        return dict(json.loads(await self._notes.get(f"conversation/{channel}") or "{}"))

    async def _save_position(self, conversation: Conversation, thread: str | None, ts: str) -> None:
        channel = conversation.channel
        if ts > (await self._position(channel)).get("ts", ""):
            text = json.dumps({"ts": ts, "kind": conversation.kind, "is_shared": conversation.is_shared})
            await self._notes.put(f"conversation/{channel}", text, is_durable=False)
        if thread is not None:
            key = f"thread/{channel}/{thread}"
            if ts > (await self._notes.get(key) or ""):
                await self._notes.put(key, ts, is_durable=False)

    async def _hand_over_since(self, oldest: str, run: _Run, conversation: Conversation) -> int:
        found = await self._fetch(conversation.channel, None, oldest)
        threads = {str(each["ts"]): oldest for each in found if str(each.get("latest_reply", "")) > oldest}
        prefix = f"thread/{conversation.channel}/"
        for key in await self._notes.keys(prefix):
            threads[key.removeprefix(prefix)] = max(await self._notes.get(key) or "", oldest)
        newest = sorted(threads.items(), key=lambda each: each[1])[-_MAX_THREADS:]
        for thread, since in newest:
            try:
                found += await self._fetch(conversation.channel, thread, since)
            except PermanentSendError as error:  # somebody deleted it
                _log.info("%s: a thread in %s is forgotten: %s", self._name, conversation.channel, error)
                await self._notes.remove(f"{prefix}{thread}")
        count = 0
        for ts, entry in sorted({str(each.get("ts")): each for each in found}.items()):
            if ts <= oldest:
                continue
            try:
                message = message_from_history(
                    self._name, run.app, conversation, entry, slack_connect=self._slack_connect
                )
            except UNREADABLE:
                _log.warning("%s: an entry of the history that is no message was passed over", self._name)
                continue
            if message is not None:
                await run.hand_over(message, conversation)
                count += 1
        return count

    async def _fetch(self, channel: str, thread: str | None, oldest: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        async with aclosing(self._client.history(channel, thread, oldest)) as messages:
            async for message in messages:
                found.append(message)
                if len(found) >= _MAX_MESSAGES:
                    _log.warning("%s: more than %d messages in %s; older ones are left out",
                                 self._name, _MAX_MESSAGES, channel)  # fmt: skip
                    break
        return found


def _conversation(channel: str, known: Mapping[str, Any]) -> Conversation:
    return Conversation(channel=channel, kind=known["kind"], is_shared=known["is_shared"])


def _ts(time: datetime) -> str:
    return f"{time.timestamp():.6f}"
