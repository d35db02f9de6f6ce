"""The clock: takes up what schedules have due, once, and tells people of schedules that were paused.

It sleeps until the next time, and never for longer than a minute: then it sees that the machine slept, or that the wall
clock was set.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from gateway.domain.channels import Channels
from gateway.domain.command_text import in_form
from gateway.domain.sessions import LOCAL
from gateway.domain.visible import as_name
from gateway.errors import EthosError
from gateway.messages import ConversationRef, OutboundMessage
from gateway.people.reaching import Reaching
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.standing import Standing
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import happened
from gateway.schedules.firing import SCHEDULED, ClockStore, Due, Firing, Happening, Where, message_of
from gateway.schedules.heartbeat import Heartbeats
from gateway.schedules.missed import TakenUp, due_words, is_on_time, moved, take_up
from gateway.schedules.rule import Once
from gateway.schedules.schedule import ON_TIME, Occurrence, Schedule

EACH_S = 1.0
"""The store is not asked more often, but to take up what is due."""
LONGEST_S = 60.0
WHERE_OFF_S = 86_400.0
"""Where schedules are off: then it looks for pauses of hooks, which it is woken for."""
AFTER_FAULT_S = 10.0
_BEYOND_S = 0.002
"""So much behind its time something is looked for: a timer may be a little early."""
UNENDED = "the one before it has not ended yet"
AT_ONCE = 50
"""Schedules that one commit takes up."""

_log = structlog.get_logger(__name__)


class Clock:
    """Takes up what is due, for one process at a time; others may try it, and find that it is done."""

    def __init__(
        self,
        store: ClockStore,
        standing: Standing,
        *,
        heartbeats: Heartbeats,
        dispatcher: Dispatcher,
        outbox: Outbox,
        telling: PausedNotices,
        is_enabled: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Nothing is read yet; `now` is the wall clock. Where it is not enabled, it only tells of paused hooks."""
        self._store = store
        self._standing = standing
        self._heartbeats = heartbeats
        self._dispatcher = dispatcher
        self._outbox = outbox
        self._telling = telling
        self._is_enabled = is_enabled
        self.now = now
        self._woken = asyncio.Event()
        self.tell: Callable[[], object] = lambda: None
        """Called when something was planned or changed here, so that the process whose clock goes looks at it."""

    def wake(self) -> None:
        """Say that something may be due, or is to be told."""
        self.wake_here()
        self.tell()

    def wake_here(self) -> None:
        """The same, where all other processes know it."""
        self._woken.set()

    async def run(self) -> None:
        """Go until cancelled."""
        loop, planned_at = asyncio.get_running_loop(), datetime.max.replace(tzinfo=UTC)
        while True:
            began_s = loop.time()
            self._woken.clear()
            wait_s = LONGEST_S if self._is_enabled else WHERE_OFF_S
            try:
                now = self.now()
                if self._is_enabled and now < planned_at - ON_TIME:  # at the start, and when the clock was set back
                    await self.plan()
                planned_at = now
                next_at = await self.look()
                if next_at is not None:
                    wait_s = min((next_at - self.now()).total_seconds() + _BEYOND_S, LONGEST_S)
            except EthosError as error:
                _log.error("schedules_late", error=str(error), again_s=AFTER_FAULT_S)
                wait_s = AFTER_FAULT_S
            except Exception:  # noqa: BLE001 (a fault of ours must not end the clock)
                _log.exception("clock_fault", again_s=LONGEST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(max(loop.time() + wait_s, began_s + EACH_S)):
                    await self._woken.wait()
            await asyncio.sleep(began_s + EACH_S - loop.time())

    async def plan(self) -> None:
        """Work out all next times once more: the data of time zones, or the wall clock, may have been changed."""
        after, now = 0, self.now()
        while planned := await self._store.planned(after=after, limit=AT_ONCE):
            after = planned[-1].schedule.id
            found = [(due.schedule, replace(due.schedule, next_at=_moved(due, now))) for due in planned]
            changed = [(before, after_it) for before, after_it in found if before.next_at != after_it.next_at]
            if changed:
                await self._store.plan(changed)
                _log.info("schedules_moved", schedules=len(changed))

    async def look(self) -> datetime | None:
        """Take up all that is due, and tell all that is to be told; when to look again.

        Raises:
            EthosError: something of it could not be done now; what was done is on disk.
        """
        while True:
            now = self.now()
            coming = await self._store.look(now, limit=AT_ONCE)
            if not self._is_enabled:
                coming = replace(coming, due=(), next_at=None)
            if coming.due:
                await self._standing.refresh()
            firings = [await self._firing(due, now) for due in coming.due]
            made = await self._fire(firings) if firings else ()
            untold = [*coming.untold, *((one.after, one.tell) for one in made if one.tell is not None)]
            told = [await self._tell(schedule, where) for schedule, where in untold]
            is_full = AT_ONCE in (len(coming.due), len(coming.untold))
            if not is_full or not (made or any(told)):
                again = [one.after.fires_at for one in firings]
                return min((at for at in (coming.next_at, *again) if at is not None), default=None)

    # ---- what is due ------------------------------------------------------------------------------------------------

    async def _firing(self, due: Due, now: datetime) -> Firing:
        schedule, due_at = due.schedule, due.by_hand_at or due.schedule.next_at
        if due_at is None:  # it was paused when it was already to be taken up
            return Firing(due=due, after=schedule)
        obstacle = None if schedule.is_heartbeat else await self._standing.obstacle(schedule, due_at)
        why, tell = (None, None) if obstacle is None else (obstacle.why, obstacle.tell)
        if why is None and (schedule.is_heartbeat or due.by_hand_at is None):
            try:
                taken = None if due.by_hand_at is not None else take_up(schedule, due_at, now)
                if schedule.is_heartbeat:
                    return await self._beat(due, due_at, now, taken)
                if taken is not None:
                    return _regular(due, taken, now)
            except EthosError:
                raise
            except Exception as error:  # noqa: BLE001 (such as a zone that is gone; one must not hold up all others)
                _log.error("schedule_unreadable", schedule=schedule.id, exc_info=error)
                why, tell = f"its times cannot be worked out: {error}", "here"
        if why is None:
            return Firing(due=due, after=schedule, happenings=[_happening(schedule, due_at, now, turn_id=due.turn_id)])
        is_by_hand = due.by_hand_at is not None
        note = _noted(schedule, due_at, now, why, is_by_hand=is_by_hand)
        last_at = None if is_by_hand else due_at
        return Firing(due=due, after=schedule.paused(why), last_at=last_at, happenings=[note], tell=tell)

    async def _beat(self, due: Due, due_at: datetime, now: datetime, taken: TakenUp | None) -> Firing:
        """A heartbeat, which looks only where there is something to look at; else only its time is moved.

        Args:
            taken: None where it is run by hand.
        """
        is_by_hand = taken is None
        next_at = due.schedule.next_at if taken is None else taken.next_at
        if taken is not None and not taken.runs:  # it was missed, which is no news
            return Firing(due=due, after=replace(due.schedule, next_at=next_at), last_at=taken.last_at)
        if taken is not None and due.is_running:  # nor is it known yet what that costs
            note = _noted(due.schedule, due_at, now, UNENDED)
            after = replace(due.schedule, next_at=next_at)
            return Firing(due=due, after=after, last_at=taken.last_at, happenings=[note])
        beat = await self._heartbeats.beat(due.schedule, now, until=next_at or now, is_by_hand=is_by_hand)
        schedule, last_at = beat.schedule, None if taken is None else taken.last_at
        if not is_by_hand and schedule.next_at != due.schedule.next_at:  # it has other times by now
            return Firing(due=replace(due, schedule=schedule), after=schedule)
        due, after = replace(due, schedule=schedule), replace(schedule, next_at=next_at)
        obstacle = None if beat.skips is not None else await self._standing.obstacle(schedule, due_at)
        if obstacle is not None:
            note = _noted(schedule, due_at, now, obstacle.why, is_by_hand=is_by_hand)
            paused = schedule.paused(obstacle.why)
            return Firing(due=due, after=paused, last_at=last_at, happenings=[note], tell=obstacle.tell)
        if beat.skips is not None:
            notes = [_noted(schedule, due_at, now, beat.skips, is_by_hand=is_by_hand)] if beat.skips else []
            return Firing(due=due, after=after, last_at=last_at, happenings=notes)
        happening = _happening(schedule, due_at, now, turn_id=due.turn_id)
        message = message_of(replace(schedule, text=beat.text), due_at)
        return Firing(
            due=due, after=after, last_at=last_at, happenings=[replace(happening, message=message)], beat=beat
        )

    async def _fire(self, firings: Sequence[Firing]) -> Sequence[Firing]:
        replies = [each.reply for one in firings for each in one.happenings if each.reply is not None]
        delivered = self._outbox.delivered_by_commit(replies)
        reach("schedule.firing")
        made = await self._store.fire(firings, delivered=delivered)
        reach("schedule.fired")
        begun = [each for one in made for each in one.happenings]
        if any(each.message is not None for each in begun):
            self._dispatcher.look()
        for one in made:
            for each in one.happenings:
                happened("schedule.fired", mode=one.after.mode, outcome=each.occurrence.outcome)
                if each.reply is not None:
                    await self._send(each.occurrence.turn_id, each.reply, is_delivered=each.reply.id in delivered)
        for one in made:
            if one.beat is not None:
                await self._heartbeats.begun(one.beat)
        return made

    async def _send(self, turn_id: str, message: OutboundMessage, *, is_delivered: bool) -> None:
        if is_delivered:
            await self._outbox.announce(turn_id, message)
        else:
            self._outbox.wake(message.conversation)

    # ---- what is told -----------------------------------------------------------------------------------------------

    async def _tell(self, schedule: Schedule, where: Where) -> bool:
        messages = await self._telling.notices(schedule, where)
        if not messages:
            _log.warning("schedule_paused_untold", schedule=schedule.id)
        delivered = self._outbox.delivered_by_commit(messages)
        reach("schedule.telling")
        is_first = await self._store.told(schedule, messages, delivered=delivered)
        reach("schedule.told")
        for message in messages if is_first else ():
            await self._send(message.id, message, is_delivered=message.id in delivered)
        return is_first


class PausedNotices:
    """What people are told of a schedule that the gateway has paused, and where."""

    def __init__(
        self,
        channels: Channels,
        reaching: Reaching,
        owner_chats: Callable[[], Awaitable[Sequence[ConversationRef]]],
        successors: Callable[[str], Sequence[str]],
    ) -> None:
        """`successors` is `LinkedIdentities.successors`."""
        self._channels = channels
        self._reaching = reaching
        self._owner_chats = owner_chats
        self._successors = successors

    async def notices(self, schedule: Schedule, where: Where) -> Sequence[OutboundMessage]:
        """For its person, in one direct chat of theirs; for the owners where there is none, without its text."""
        if where == "here" and self._channels.capabilities(schedule.conversation.channel) is not None:
            return [self._notice(schedule, schedule.conversation, _told(schedule))]
        elsewhere = [chat for chat in await self._own_chats(schedule) if not _is_same(chat, schedule.conversation)]
        if elsewhere:
            return [self._notice(schedule, elsewhere[0], _told(schedule))]
        told = _told(schedule, has_text=False)
        text = f"{as_name(schedule.display_name)} cannot be told this where it was to arrive. {told}"
        chats = [chat for chat in await self._owner_chats() if not _is_same(chat, schedule.conversation)]
        return [self._notice(schedule, chat, text) for chat in chats]

    async def _own_chats(self, schedule: Schedule) -> Sequence[ConversationRef]:
        """Of its person; those in which people are notified come first."""
        places = await self._reaching.of_person(self._successors(schedule.user_id)[-1])
        return sorted((place.conversation for place in places), key=lambda chat: chat.channel == LOCAL)

    def _notice(self, schedule: Schedule, conversation: ConversationRef, text: str) -> OutboundMessage:
        name = f"{SCHEDULED}{schedule.id}/told/{secrets.token_hex(8)}"
        capabilities = self._channels.capabilities(conversation.channel)
        is_direct = conversation != schedule.conversation or schedule.is_direct
        shown = in_form(text, capabilities, is_direct=is_direct)
        return OutboundMessage(id=name, conversation=conversation, text=shown)


def late_note(due_at: datetime, now: datetime, zone: str) -> str:
    """What stands below what is delivered late; empty for what is on time."""
    return "" if is_on_time(due_at, now) else f"\n\n_This was due {due_words(due_at, now, zone)}._"


def _told(schedule: Schedule, *, has_text: bool = True) -> str:
    """What people are told of a schedule that was paused, or that came to nothing."""
    what = f"number {schedule.id}" + (f" ({as_name(schedule.text)})" if has_text else "")
    number, is_paused = schedule.id, schedule.state == "failing"
    if not is_paused or isinstance(schedule.rule, Once):  # which has no other time
        says = f"\n\nIt says: {schedule.text}" if has_text else ""
        how = f"\n\n`/schedules run {number}` does it now." if is_paused else ""
        return f"What was due of {what} did not arrive: {schedule.why}.{says}{how}"
    how = f"`/schedules resume {number}` starts it again, `/schedules` lists all."
    return f"I have paused {what}: {schedule.why}.\n\n{how}"


def _is_same(one: ConversationRef, other: ConversationRef) -> bool:
    return (one.channel, one.conversation) == (other.channel, other.conversation)


def _moved(due: Due, now: datetime) -> datetime | None:
    try:
        return moved(due.schedule, due.last_at, now)
    except Exception:  # noqa: BLE001 (it is paused when it is due)
        return due.schedule.next_at


def _regular(due: Due, taken: TakenUp, now: datetime) -> Firing:
    schedule = due.schedule
    if due.is_running and schedule.missed != "each":  # else a model that is away for a day has hundreds wait for it
        happenings = [_noted(schedule, due_at, now, UNENDED) for due_at in taken.runs]
    else:
        happenings = [_happening(schedule, due_at, now) for due_at in taken.runs]
    if taken.skipped is not None:
        first, last = taken.skipped
        since = "" if first == last else f", with all since {due_words(first, now, schedule.zone)[3:]}"
        happenings = [_noted(schedule, last, now, f"it was missed{since}"), *happenings]
    state = schedule.state if taken.next_at is not None else "done"
    after = replace(schedule, next_at=taken.next_at, state=state)
    return Firing(due=due, after=after, last_at=taken.last_at, happenings=happenings)


def _happening(schedule: Schedule, due_at: datetime, now: datetime, *, turn_id: str | None = None) -> Happening:
    """One run: of a text that is said there is nothing to wait for.

    Args:
        turn_id: that a run by hand has; None: it is due by its rule.
    """
    is_by_hand, is_said = turn_id is not None, schedule.mode == "say"
    turn_id = turn_id or f"t_{secrets.token_hex(8)}"
    late = "" if is_by_hand else late_note(due_at, now, schedule.zone)
    occurrence = Occurrence(
        schedule_id=schedule.id,
        due_at=due_at,
        outcome="done" if is_said else "begun",
        begun_at=now,
        turn_id=turn_id,
        note=late.strip().strip("_."),
        is_by_hand=is_by_hand,
    )
    if not is_said:
        return Happening(occurrence=occurrence, message=message_of(schedule, due_at))
    reply = OutboundMessage(id=f"{turn_id}.reply", conversation=schedule.conversation, text=schedule.text + late)
    return Happening(occurrence=occurrence, reply=reply)


def _noted(schedule: Schedule, due_at: datetime, now: datetime, note: str, *, is_by_hand: bool = False) -> Happening:
    """A time at which nothing was done."""
    occurrence = Occurrence(
        schedule_id=schedule.id, due_at=due_at, outcome="skipped", begun_at=now, note=note, is_by_hand=is_by_hand
    )
    return Happening(occurrence=occurrence)
