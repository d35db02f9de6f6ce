"""What is done at a time: seen and steered by people, programs and the operator."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime

from gateway.config import LiveConfig
from gateway.domain.personalities import Personalities
from gateway.domain.roles import may, needs
from gateway.domain.sessions import LOCAL
from gateway.messages import ConversationRef
from gateway.people.reaching import Place, Reaching
from gateway.schedules.rule import Called, Cron, Days, Every, Once, Rule, Within, in_words, upcoming
from gateway.schedules.schedule import Occurrence, Schedule
from gateway.schedules.schedules import ALL, Owner, ScheduleError, Schedules, Wanted
from gateway.sdk.models import schedules as wire
from gateway.services.caller import Ambiguous, Caller, Malformed, NotAllowed, NotFound, NotNamed, Refused
from gateway.services.naming import Naming

SHOWN_TIMES = 3
_AT_ONCE = 50


class ScheduleService:
    """A caller who sees one person only sees that person's; in a group all see what is delivered there.

    Args:
        reaching: where people are reached.
        sessions_of: in which session each of some turns was.
    """

    def __init__(
        self,
        schedules: Schedules,
        naming: Naming,
        person_ids: Callable[[str], Awaitable[Collection[str]]],
        *,
        reaching: Reaching,
        personalities: Personalities,
        config: LiveConfig,
        sessions_of: Callable[[Collection[str]], Awaitable[Mapping[str, str]]],
    ) -> None:
        self._schedules = schedules
        self._naming = naming
        self._person_ids = person_ids
        self._reaching = reaching
        self._personalities = personalities
        self._config = config
        self._sessions_of = sessions_of

    # ---- seeing -----------------------------------------------------------------------------------------------------

    @property
    def are_on(self) -> bool:
        """Whether anything is done at its time here; where not, none is made or run."""
        return self._schedules.is_enabled

    async def listed(
        self,
        caller: Caller,
        *,
        user: str | None = None,
        state: wire.ScheduleState | None = None,
        group: ConversationRef | None = None,
        after: int = 0,
        limit: int = ALL,
    ) -> Sequence[wire.Schedule]:
        """Those that something is still due of, or those in a state; oldest first.

        Args:
            group: in which is asked: then what is delivered there.
            after: only those with greater numbers.
            limit: so many at most.

        Raises:
            NotNamed: no user has that name.
            NotAllowed: the caller may not see that person.
        """
        whose = None if group is not None else await self._whose(caller, user)
        shown = []
        for one in await self._schedules.of(whose, state=state, delivered_in=group, after=after, limit=limit):
            shown.append(_shown(one))
            if len(shown) % _AT_ONCE == 0:
                await asyncio.sleep(0)  # the next times of thousands take seconds
        return shown

    async def shown(self, caller: Caller, schedule_id: int, *, group: ConversationRef | None = None) -> wire.Schedule:
        """One.

        Raises:
            NotFound: there is none, or it is not for them, or not here.
        """
        return _shown(await self._get(caller, schedule_id, group))

    async def history(
        self,
        caller: Caller,
        schedule_id: int,
        *,
        limit: int,
        group: ConversationRef | None = None,
        before_ms: int | None = None,
    ) -> Sequence[wire.Occurrence]:
        """What came of its last times, newest first; of those before a time, where one is given. Raises as `shown`."""
        schedule = await self._get(caller, schedule_id, group)
        found = await self._schedules.history(schedule.id, limit, before_ms=before_ms)
        sessions = await self._sessions_of({one.turn_id for one in found if one.turn_id})
        return [occurrence_on_the_wire(one, sessions.get(one.turn_id)) for one in found]

    async def zone(self, user_id: str) -> str:
        """Where the person's clock is."""
        return await self._schedules.zones.of(user_id)

    async def session_of(self, schedule: wire.Schedule) -> str | None:
        """In which the agent made it, as far as that is still known."""
        return None if schedule.turn is None else (await self._sessions_of({schedule.turn})).get(schedule.turn)

    # ---- steering ---------------------------------------------------------------------------------------------------

    async def created(self, caller: Caller, new: wire.NewSchedule, *, seed: str | None = None) -> wire.Schedule:
        """Make one for a person, delivered to a direct chat of that person.

        Args:
            seed: the same for a repetition, which makes no second one.

        Raises:
            NotNamed: it is not clear who is meant, or where it is delivered.
            NotAllowed: the caller may not name that person, or the person is a guest.
            Malformed: the form makes no sense; says of each field why.
            Refused: the person has too many, or has not written anywhere, or the seed made another one.
            PersonalityError: there is no such personality.
        """
        named = await self._naming.user_for(caller, new.user)
        user_id = named or caller.speaks_as or await self._naming.only_user(caller)
        if user_id is None:
            raise NotNamed("there are no users yet; the first person who writes becomes a user")
        personality = self._personalities.get(new.personality or self._config.current.personality)
        owner = await self._owner(user_id, personality.id, new.to)
        key = _key(caller, seed or secrets.token_hex(16))
        with _explained():
            return _shown(await self._schedules.create(_wanted(new), owner, key=key))

    async def changed(self, caller: Caller, schedule_id: int, changes: wire.ChangeSchedule) -> wire.Schedule:
        """Change what is named; a new rule takes the place of the old one. Raises as `shown` and `created`."""
        schedule = await self._steered(caller, schedule_id, None)
        of = schedule.user_id, schedule.personality_id
        to = None if changes.to is None else await self._owner(*of, changes.to)
        with _explained():
            ids = sorted(await self._person_ids(schedule.user_id))
            return _shown(await self._schedules.change(schedule, _wanted(changes), user_ids=ids, to=to))

    async def _owner(self, user_id: str, personality_id: str, to: str | None) -> Owner:
        """Whose it is, and where it is delivered. Raises as `created`."""
        place = await self._place(user_id, to)
        return Owner(
            user_ids=sorted(await self._person_ids(user_id)),
            user_id=user_id,
            personality_id=personality_id,
            conversation=place.conversation,
            account=place.address.partition(":")[2],
            display_name=place.name,
            is_direct=True,
        )

    async def paused(self, caller: Caller, schedule_id: int, *, group: ConversationRef | None = None) -> wire.Schedule:
        """Let nothing be due until it is resumed.

        Raises:
            Refused: its state does not allow that.
            NotAllowed: it belongs to somebody else in the group.
            NotFound: as `shown`.
        """
        schedule = await self._steered(caller, schedule_id, group)
        with _explained():
            return _shown(await self._schedules.pause(schedule))

    async def resumed(self, caller: Caller, schedule_id: int, *, group: ConversationRef | None = None) -> wire.Schedule:
        """Go on from now. Raises as `paused`."""
        schedule = await self._steered(caller, schedule_id, group)
        with _explained():
            return _shown(await self._schedules.resume(schedule))

    async def ran(
        self,
        caller: Caller,
        schedule_id: int,
        *,
        group: ConversationRef | None = None,
        seed: str | None = None,
    ) -> wire.Schedule:
        """Do it once now, besides its times.

        Args:
            seed: the same for a repetition, which does nothing more; None where the call is not repeated.

        Raises:
            as `paused`.
        """
        schedule = await self._steered(caller, schedule_id, group)
        with _explained():
            return _shown(await self._schedules.run_now(schedule, key=seed and _key(caller, seed)))

    async def removed(self, caller: Caller, schedule_id: int, *, group: ConversationRef | None = None) -> wire.Schedule:
        """Remove it with its history and what waits of it. Raises as `paused`."""
        schedule = await self._steered(caller, schedule_id, group)
        with _explained():
            await self._schedules.cancel(schedule)
        return _shown(schedule)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _whose(self, caller: Caller, user: str | None) -> Sequence[str] | None:
        user_id = await self._naming.user_for(caller, user)
        return None if user_id is None else sorted(await self._person_ids(user_id))

    async def _get(self, caller: Caller, schedule_id: int, group: ConversationRef | None) -> Schedule:
        whose = None if group is not None else await self._whose(caller, None)
        found = await self._schedules.get(schedule_id, whose)
        if found is None or (group is not None and not _is_in(found, group)):
            how = "`/schedules` lists" if caller.chat else "`ethos schedules list` shows"
            raise NotFound(f"there is no schedule {schedule_id}; {how} those that there are")
        return found

    async def _steered(self, caller: Caller, schedule_id: int, group: ConversationRef | None) -> Schedule:
        """One that the caller may change: their own, and in a group for an owner that of others."""
        schedule = await self._get(caller, schedule_id, group)
        if group is not None and schedule.user_id not in await self._person_ids(caller.user_id or ""):
            caller.require("let people in")
        return schedule

    async def _place(self, user_id: str, wanted: str | None) -> Place:
        places = await self._reaching.of_person(user_id)
        fitting = [one for one in places if wanted in (None, one.conversation.channel, one.address)]
        if wanted is None:
            fitting = [one for one in fitting if one.conversation.channel != LOCAL] or fitting
        if len(fitting) == 1:
            if not may(fitting[0].role, "have schedules"):
                raise NotAllowed(
                    f"schedules are for an {needs('have schedules')} only, and this person is a guest there"
                )
            return fitting[0]
        there = ", ".join(one.address for one in places)
        if not places:
            raise Refused("this person has not written to the agent directly anywhere, so nothing could be delivered")
        if not fitting:
            raise NotNamed(f"this person has no direct chat {wanted!r} here, only {there}")
        raise Ambiguous(f"this person is reached on several channels; say where with `to`: {there}")


@contextmanager
def _explained() -> Iterator[None]:
    """What cannot be done, as all services say it: by a mistake in the form, or as things are now."""
    try:
        yield
    except ScheduleError as error:
        raise (Malformed(str(error), error.problems) if error.problems else Refused(str(error))) from error


def _key(caller: Caller, seed: str) -> str:
    return f"{caller.key_id or caller.speaks_as or caller.name}:{seed}"


def _wanted(form: wire.NewSchedule | wire.ChangeSchedule) -> Wanted:
    return Wanted(**form.model_dump(include={field.name for field in fields(Wanted)}, by_alias=False))


def _is_in(schedule: Schedule, group: ConversationRef) -> bool:
    place = schedule.conversation
    return (place.channel, place.conversation) == (group.channel, group.conversation)


def _shown(schedule: Schedule) -> wire.Schedule:
    place = schedule.conversation
    return wire.Schedule(
        id=schedule.id,
        user=schedule.user_id,
        personality=schedule.personality_id,
        channel=place.channel,
        conversation=place.conversation,
        thread=place.thread,
        is_direct=schedule.is_direct,
        mode=schedule.mode,
        text=schedule.text,
        when=in_words(schedule.rule, schedule.zone),
        rule=_rule(schedule.rule),
        is_configured=schedule.is_configured and not schedule.is_taken_out,
        zone=schedule.zone,
        missed=schedule.missed,
        state=schedule.state,
        why=schedule.why,
        failures=schedule.failures,
        next=tuple(_times(schedule)),
        turn=schedule.turn_id or None,
        created_at=schedule.created_at,
    )


def _times(schedule: Schedule) -> Sequence[datetime]:
    if schedule.next_at is None:
        return ()
    return (schedule.next_at, *upcoming(schedule.rule, schedule.zone, schedule.next_at, SHOWN_TIMES - 1))


def _rule(rule: Rule) -> wire.ScheduleRule:
    match rule:
        case Once(at=at):
            return wire.ScheduleRule(at=at)
        case Every(minutes=minutes):
            return wire.ScheduleRule(every_minutes=minutes)
        case Cron(fields=fields):
            return wire.ScheduleRule(cron=fields)
        case Within(minutes=minutes, begins=begins, ends=ends):
            hours = None if begins == ends else f"{begins:%H:%M}-{ends:%H:%M}"
            return wire.ScheduleRule(every_minutes=minutes, hours=hours)
        case Called(hook=hook):
            return wire.ScheduleRule(hook=hook)
        case Days(days=days, at=time, since=since):
            return wire.ScheduleRule(every_days=days, time_of_day=f"{time:%H:%M}", first_day=f"{since:%Y-%m-%d}")


def due_ms(one: wire.Occurrence) -> int:
    """By which one time is known among those of its schedule (Unix time): `before_ms` of the page behind it."""
    return round(one.due_at.timestamp() * 1_000)


def occurrence_on_the_wire(one: Occurrence, session: str | None) -> wire.Occurrence:
    """What came of one time; `session` is that of its turn."""
    return wire.Occurrence(
        due_at=one.due_at,
        begun_at=one.begun_at,
        outcome=one.outcome,
        note=one.note,
        is_by_hand=one.is_by_hand,
        turn=one.turn_id or None,
        session=session,
    )
