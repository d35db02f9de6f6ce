"""The agent's tools for what is done at a time. The model fills a form; what it comes to, the gateway says itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field

from gateway.domain.roles import may
from gateway.domain.visible import as_name
from gateway.messages import Action
from gateway.people.reaching import Reaching
from gateway.schedules.forms import ScheduleError, Wanted
from gateway.schedules.rule import Once, in_words, is_by_its_zone, upcoming
from gateway.schedules.schedule import PLANNED_AFTER_READING, REPORT, Missed, Mode, Schedule
from gateway.schedules.schedules import Owner, Schedules
from gateway.tools.contract import Arguments, Tool, ToolContext, ToolError

SHOWN_TIMES = 3
_SHOWN_CHARS = 300
_UNDO = "Undo"
_NOT_BY_ITSELF = "a schedule made this turn, and makes no other; tell the person what you would plan"
_EXAMPLES = ("Europe/Berlin", "America/New_York")
_IS_SHOWN = "The person sees the times below your answer, with a button to undo it: do not list them."

PersonIds = Callable[[str], Awaitable[Collection[str]]]
At = Annotated[
    str | None,
    Field(description="once: 2026-12-24T18:00 on the clock of the zone; 18:00 alone is the next such time"),
]


class Remind(Arguments):
    """Arguments of `remind`."""

    text: str
    at: At = None
    in_minutes: int | None = None


class Create(Arguments):
    """Arguments of `schedule_create`."""

    mode: Mode
    text: str
    at: At = None
    in_minutes: Annotated[int | None, Field(description="once")] = None
    every_minutes: Annotated[int | None, Field(description="5 or more")] = None
    cron: Annotated[str | None, Field(description='five fields; "0 8 * * 1-5": every weekday at 08:00')] = None
    every_days: Annotated[int | None, Field(description="with time_of_day, and first_day if it matters")] = None
    time_of_day: Annotated[str | None, Field(description="08:00")] = None
    first_day: Annotated[str | None, Field(description="2026-12-24")] = None
    zone: Annotated[str | None, Field(description="an IANA name; the person's own without it")] = None
    missed: Annotated[Missed | None, Field(description="if the gateway was down at the time")] = None
    to: Annotated[str | None, Field(description="another channel of the person; here without it")] = None


class Change(Arguments):
    """Arguments of `schedule_change`; what they mean, the model reads in `schedule_create`."""

    number: int
    paused: bool | None = None
    mode: Mode | None = None
    text: str | None = None
    at: str | None = None
    in_minutes: int | None = None
    every_minutes: int | None = None
    cron: str | None = None
    every_days: int | None = None
    time_of_day: str | None = None
    first_day: str | None = None
    zone: str | None = None
    missed: Missed | None = None
    to: str | None = None


class Numbered(Arguments):
    """Arguments of `schedule_cancel`."""

    number: int


class Nothing(Arguments):
    """Arguments of `schedule_list`."""


class Report(Arguments):
    """Arguments of `report`."""

    text: str


def schedule_tools(schedules: Schedules, person_ids: PersonIds, reaching: Reaching) -> Sequence[Tool]:
    """All but `report`, which only the turns of a watch have.

    Args:
        person_ids: all user ids of the person behind one.
    """
    return _Scheduling(schedules, person_ids, reaching).tools()


class _Scheduling:
    def __init__(self, schedules: Schedules, person_ids: PersonIds, reaching: Reaching) -> None:
        self._schedules = schedules
        self._person_ids = person_ids
        self._reaching = reaching

    def tools(self) -> Sequence[Tool]:
        changing: dict[str, Any] = {
            "effect": "own",
            "is_idempotent": True,
            "needs_member": True,
            "acts_later": True,
            "approver": "asker",
        }
        return (
            Tool(
                name="remind",
                description="Remind the person once: the text is sent to them as it is. Give `at` or `in_minutes`.",
                arguments=Remind,
                call=self._remind,
                **changing,
            ),
            Tool(
                name="schedule_cancel",
                description="Remove a schedule.",
                arguments=Numbered,
                call=self._cancel,
                **changing,
            ),
            Tool(
                name="schedule_change",
                description="Change what is given of a schedule; see schedule_create. A new time replaces the old one.",
                arguments=Change,
                call=self._change,
                **changing,
            ),
            Tool(
                name="schedule_create",
                description=(
                    "Plan something for later, once or again and again. Give exactly one of at, in_minutes, "
                    "every_minutes, cron, every_days. Mode `say` sends the text as it is, `do` has you do it; "
                    "so does `watch`, but the person hears of it only if there is something to report."
                ),
                arguments=Create,
                call=self._create,
                **changing,
            ),
            Tool(
                name="schedule_list",
                description="The person's reminders and schedules, with their numbers.",
                arguments=Nothing,
                call=self._list,
                effect="read",
                needs_member=True,
            ),
        )

    async def _remind(self, arguments: Remind, context: ToolContext) -> str:
        wanted = _wanted(arguments, mode="say")
        if len(wanted.rules) != 1:
            raise ToolError("give `at` or `in_minutes`, one of the two")
        return await self._made(wanted, context)

    async def _create(self, arguments: Create, context: ToolContext) -> str:
        return await self._made(_wanted(arguments), context, arguments.to or None)

    async def _made(self, wanted: Wanted, context: ToolContext, to: str | None = None) -> str:
        _refuse_unattended(context)
        owner = await self._owner(context)
        place = owner if to is None else await self._elsewhere(owner, to)
        try:
            schedule = await self._schedules.create(wanted, place, key=context.idempotency_key)
        except ScheduleError as error:
            raise ToolError(str(error)) from error
        _offer(context, "remove", schedule.id)
        return await self._shown(schedule, context, owner, is_new=wanted.zone is None)

    async def _change(self, arguments: Change, context: ToolContext) -> str:
        _refuse_unattended(context)
        owner = await self._owner(context)
        schedule = await self._theirs(arguments.number, context, owner)
        try:
            wanted, to = _wanted(arguments), await self._elsewhere(owner, arguments.to) if arguments.to else None
            if wanted != Wanted() or to is not None:
                schedule = await self._schedules.change(schedule, wanted, sources=owner.sources, to=to)
            if arguments.paused is not None:
                do = self._schedules.pause if arguments.paused else self._schedules.resume
                schedule = await do(schedule)
                if wanted == Wanted() and to is None:
                    _offer(context, "resume" if arguments.paused else "pause", schedule.id)
        except ScheduleError as error:
            raise ToolError(str(error)) from error
        return await self._shown(schedule, context, owner)

    async def _cancel(self, arguments: Numbered, context: ToolContext) -> str:
        _refuse_unattended(context)
        schedule = await self._theirs(arguments.number, context, await self._owner(context))
        try:
            await self._schedules.cancel(schedule)
        except ScheduleError as error:
            raise ToolError(str(error)) from error
        context.below_for_all[f"schedule {schedule.id}"] = f"_Number {schedule.id}: {as_name(schedule.text)}, removed._"
        return f"Schedule {schedule.id} is removed: {schedule.text}"

    async def _list(self, _arguments: Nothing, context: ToolContext) -> str:
        found = await self._of(context, await self._owner(context))
        if not found:
            return "There is nothing." if context.scope.user_id else "There is nothing for this group."
        if any(one.sources for one in found):
            context.sources.append(PLANNED_AFTER_READING)
        return "\n".join(f"{one.id}: {one.mode}, {_line(one, context.zone)}: {_short(one.text)}" for one in found)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _owner(self, context: ToolContext) -> Owner:
        user_id, place, sender = context.scope.author_id, context.conversation, context.sender
        if not user_id or place is None or sender is None:
            raise ToolError("the person in this conversation is not known, so nothing can be planned for them")
        return Owner(
            user_ids=sorted({user_id, *await self._person_ids(user_id)}),
            user_id=user_id,
            personality_id=context.scope.personality_id,
            conversation=place,
            account=sender.user,
            display_name=sender.display_name,
            is_direct=context.scope.user_id is not None,
            turn_id=context.scope.turn_id or "",
            sources=tuple(dict.fromkeys((*context.read, *context.sources))),
        )

    async def _elsewhere(self, owner: Owner, to: str) -> Owner:
        """The same, delivered in another direct chat of the person."""
        if not owner.is_direct:
            raise ToolError("others read along here, so it is delivered here; ask for it in a direct chat")
        places = [one for one in await self._reaching.of_person(owner.user_id) if may(one.role, "have schedules")]
        found = [one for one in places if to in (one.conversation.channel, one.address)]
        if len(found) != 1:
            there = ", ".join(one.address for one in places) or "none"
            raise ToolError(f"to: this person has no one account {to!r} here; there are: {there}")
        [place] = found
        account = place.address.partition(":")[2]
        return replace(owner, conversation=place.conversation, account=account, display_name=place.name)

    async def _of(self, context: ToolContext, owner: Owner) -> Sequence[Schedule]:
        """The person's; in a group only those of that group, because others read along."""
        found = await self._schedules.of(owner.user_ids)
        if context.scope.user_id is not None:
            return found
        here = (owner.conversation.channel, owner.conversation.conversation)
        return [one for one in found if (one.conversation.channel, one.conversation.conversation) == here]

    async def _theirs(self, number: int, context: ToolContext, owner: Owner) -> Schedule:
        found = await self._of(context, owner)
        schedule = next((one for one in found if one.id == number), None)
        if schedule is None:
            there = ", ".join(str(one.id) for one in found) or "none"
            raise ToolError(f"this person has no schedule {number} here; there are: {there}")
        return schedule

    async def _shown(self, schedule: Schedule, context: ToolContext, owner: Owner, *, is_new: bool = False) -> str:
        """What the model is told; below the answer the person sees the same, from the gateway."""
        said = _line(schedule, context.zone)
        hint = ""
        if is_new and is_by_its_zone(schedule.rule) and await self._zones_told(context, owner):
            other = next(zone for zone in _EXAMPLES if zone != schedule.zone)
            hint = f" That is the clock of {schedule.zone}; if yours is another one, say `/timezone {other}`."
        name = as_name(schedule.text)
        place, here = schedule.conversation, owner.conversation
        to = "" if replace(place, thread=here.thread) == here else f", to {place.channel}"
        context.below_for_all[f"schedule {schedule.id}"] = f"_Number {schedule.id}: {name}, {said}{to}.{hint}_"
        return f"Schedule {schedule.id}: {said}. {_IS_SHOWN}"

    async def _zones_told(self, context: ToolContext, owner: Owner) -> bool:
        return await self._schedules.zones.is_first_told_by(context.idempotency_key, owner.user_id)


async def _report(arguments: Report, context: ToolContext) -> str:
    context.reports.append(arguments.text.strip())
    return "The person is told. End your answer now; nothing else of it is sent."


REPORT_TOOL = Tool(
    name=REPORT,
    description="Tell the person something. Whatever else you say in this turn is not sent.",
    arguments=Report,
    call=_report,
    effect="own",
    is_idempotent=True,
)
"""For the turns of a watch, and no others."""


def _refuse_unattended(context: ToolContext) -> None:
    if not context.is_attended:
        raise ToolError(_NOT_BY_ITSELF)


def _offer(context: ToolContext, verb: str, number: int) -> None:
    """A button that takes it back; where there are several of a turn, each says which."""
    undos = {one.id: one for one in context.buttons if one.label.startswith(_UNDO)}
    undo = Action(id=f"schedules {verb} {number}", label=_UNDO)
    undos.setdefault(undo.id, undo)
    if len(undos) > 1:
        undos = {of: replace(one, label=f"{_UNDO} {of.rpartition(' ')[2]}") for of, one in undos.items()}
    context.buttons[:] = [*(one for one in context.buttons if one.id not in undos), *undos.values()]


def _wanted(arguments: Arguments, **given: Any) -> Wanted:
    """The form; some models fill in what they leave out with empty texts."""
    values = arguments.model_dump(exclude={"number", "paused", "to"})
    return Wanted(**{name: value for name, value in values.items() if name == "text" or value != ""}, **given)


def _short(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}…"


def _line(schedule: Schedule, zone: str) -> str:
    """The rule in words, and the next times on the person's clock."""
    words = in_words(schedule.rule, schedule.zone)
    if schedule.next_at is None:
        return f"{words}; {'done' if schedule.state == 'done' else 'paused'}"
    if isinstance(schedule.rule, Once) and schedule.zone == zone:
        return words
    times = [schedule.next_at, *upcoming(schedule.rule, schedule.zone, schedule.next_at, SHOWN_TIMES - 1)]
    is_named = f"({zone})" not in words
    return f"{words}; next {_times(times, zone)}{f' ({zone})' if is_named else ''}"


def _times(times: Sequence[datetime], zone: str) -> str:
    local = [at.astimezone(ZoneInfo(zone)) for at in times]
    return ", ".join(f"{at:%a} {at.day} {at:%b} {at:%H:%M}" for at in local)
