"""`ethos schedules`: what is done at a time."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from gateway.cli.client import connected
from gateway.cli.names import check_names, labels
from gateway.cli.options import AsJson, LimitOption, PersonalityOption, UserFilter, UserOption, asynchronous
from gateway.cli.output import fields, local, print_json, print_table, say
from gateway.services.caller import Malformed, NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.schedules import Occurrence, Schedule

T = TypeVar("T")
app = typer.Typer(
    help="See reminders and jobs that have their time; add, pause, run, remove them.", no_args_is_help=True
)

Mode = Literal["say", "do", "watch"]
Missed = Literal["late", "skip", "newest", "each"]
Number = Annotated[int, typer.Argument(min=1, help="Its number, from the list.")]
ModeOption = Annotated[
    Mode | None, typer.Option(help="`say` the text as it is; let the agent `do` it; or `watch`, and report if need be.")
]
At = Annotated[str | None, typer.Option("--at", help="Once, such as 2026-12-24T18:00.")]
In = Annotated[int | None, typer.Option("--in-minutes", min=0, help="Once, in so many minutes.")]
Every = Annotated[int | None, typer.Option("--every-minutes", min=5, help="Every so many minutes.")]
Cron = Annotated[str | None, typer.Option("--cron", help="Five fields of cron, such as '0 8 * * 1-5'.")]
EveryDays = Annotated[int | None, typer.Option("--every-days", min=1, help="Every so many days, at `--time-of-day`.")]
Time = Annotated[str | None, typer.Option("--time-of-day", help="With `--every-days`: such as 08:00.")]
FirstDay = Annotated[str | None, typer.Option("--first-day", help="With `--every-days`: such as 2026-12-01.")]
Zone = Annotated[
    str | None, typer.Option("--zone", help="Of the clock, such as Europe/Berlin; the person's by default.")
]
MissedOption = Annotated[
    Missed | None, typer.Option(help="What becomes of times at which the gateway was down; what fits by default.")
]
ToOption = Annotated[
    str | None, typer.Option(help="Where it is delivered: a channel of the person's, or `channel:account`.")
]
_NAMES = re.compile(
    r"(?:body\.|`)?\b((?:in|every)Minutes|everyDays|timeOfDay|firstDay|(?<=body\.)\w+|(?<=`)(?:at|zone)(?=`)"
    r"|at(?=, inMinutes)|cron(?=, everyDays))\b`?"
)
"""Fields as the API calls them."""
STATES = {"active": "active", "paused": "paused", "failing": "paused by the gateway", "done": "done"}


@app.command("list")
@asynchronous
async def list_(
    user: UserFilter = None,
    state: Annotated[
        Literal["active", "paused", "failing", "done"] | None,
        typer.Option(help="One state only; all but the done ones by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List schedules of all people, the oldest first."""
    check_names(user=user)
    async with connected() as client:
        found = [one async for one in client.schedules.list(user=user, state=state)]
        names = await labels(client) if found and not as_json else {}
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        none = "There are no schedules; `ethos schedules add` makes one."
        say("There are none of these; `ethos schedules list` shows all but the done ones." if user or state else none)
    else:
        columns = ("number", "person", "when", "next", "state", "mode", "text")
        table = [
            (
                one.id,
                names.get(one.user, one.user),
                one.when,
                _clock(one.next[0], one.zone) if one.next else None,
                STATES[one.state],
                one.mode,
                one.text,
            )
            for one in found
        ]
        print_table(columns, table, flexible=("person", "when", "text"))


@app.command()
@asynchronous
async def show(number: Number, limit: LimitOption = 20, as_json: AsJson = False) -> None:
    """Print one with its next times, and what came of the last ones."""
    async with connected() as client:
        found = await _one(client.schedules.get, number)
        history = [one async for one in client.schedules.history(number, limit=limit)]
        names = await labels(client) if not as_json else {}
    if as_json:
        print_json({**fields(found), "history": [fields(one) for one in history]})
        return
    say(_text(found, names.get(found.user, found.user)))
    if history:
        rows = [_row(one, found.zone) for one in history]
        print_table(("due", "outcome", "note", "turn"), rows, flexible=("note",))


@app.command()
@asynchronous
async def add(
    text: Annotated[str, typer.Argument(help="What is said, or what the agent is to do.")],
    *,
    mode: ModeOption = None,
    at: At = None,
    in_minutes: In = None,
    every_minutes: Every = None,
    cron: Cron = None,
    every_days: EveryDays = None,
    time_of_day: Time = None,
    first_day: FirstDay = None,
    zone: Zone = None,
    missed: MissedOption = None,
    to: ToOption = None,
    user: UserOption = None,
    personality: PersonalityOption = None,
    as_json: AsJson = False,
) -> None:
    """Make one for a person; exactly one option says when."""
    from gateway.sdk.models.schedules import NewSchedule

    check_names(user=user, personality=personality)
    new = NewSchedule(
        text=text,
        mode=mode or "say",
        at=at,
        in_minutes=in_minutes,
        every_minutes=every_minutes,
        cron=cron,
        every_days=every_days,
        time_of_day=time_of_day,
        first_day=first_day,
        zone=zone,
        missed=missed,
        to=to,
        user=user,
        personality=personality,
    )
    async with connected(makes=True, is_whole=True) as client:
        with _as_options():
            made = await client.schedules.create(new)
    print_json(fields(made)) if as_json else say(f"Schedule {made.id}: {_told(made)}")


@app.command()
@asynchronous
async def change(
    number: Number,
    *,
    text: Annotated[str | None, typer.Option(help="Another text.")] = None,
    mode: ModeOption = None,
    at: At = None,
    in_minutes: In = None,
    every_minutes: Every = None,
    cron: Cron = None,
    every_days: EveryDays = None,
    time_of_day: Time = None,
    first_day: FirstDay = None,
    zone: Zone = None,
    missed: MissedOption = None,
    to: ToOption = None,
    as_json: AsJson = False,
) -> None:
    """Change what the options name; the rest stays."""
    from gateway.sdk.models.schedules import ChangeSchedule

    changes = ChangeSchedule(
        text=text,
        mode=mode,
        at=at,
        in_minutes=in_minutes,
        every_minutes=every_minutes,
        cron=cron,
        every_days=every_days,
        time_of_day=time_of_day,
        first_day=first_day,
        zone=zone,
        missed=missed,
        to=to,
    )
    if changes == ChangeSchedule():
        raise Malformed("say what is to be different; `ethos schedules change --help` lists the options")
    async with connected() as client:
        with _as_options():
            changed = await _one(lambda number: client.schedules.change(number, changes), number)
    print_json(fields(changed)) if as_json else say(f"Schedule {number}: {_told(changed)}")


@app.command()
@asynchronous
async def pause(number: Number, as_json: AsJson = False) -> None:
    """Let nothing be due until it is resumed."""
    await _do(number, lambda client: client.schedules.pause, "Schedule {} is paused.", as_json=as_json)


@app.command()
@asynchronous
async def resume(number: Number, as_json: AsJson = False) -> None:
    """Go on from now; what was due meanwhile is left out."""
    await _do(number, lambda client: client.schedules.resume, "Schedule {} goes on.", as_json=as_json)


@app.command()
@asynchronous
async def run(number: Number, as_json: AsJson = False) -> None:
    """Do it once now, besides its times."""
    told = "Schedule {} is done once: now, or when the gateway runs again."
    await _do(number, lambda client: client.schedules.run, told, as_json=as_json)


@app.command()
@asynchronous
async def remove(number: Number, as_json: AsJson = False) -> None:
    """Remove it with its history and what waits of it."""
    async with connected() as client:
        await _one(client.schedules.remove, number)
    print_json({"removed": number}) if as_json else say(f"Schedule {number} is removed.")


async def _do(
    number: int, method: Callable[[AsyncEthos], Callable[[int], Awaitable[Schedule]]], told: str, *, as_json: bool
) -> None:
    async with connected() as client:
        found = await _one(method(client), number)
    print_json(fields(found)) if as_json else say(f"{told.format(number)}{_next(found)}")


async def _one(ask: Callable[[int], Awaitable[T]], number: int) -> T:
    """What the SDK says of a schedule.

    Raises:
        NotNamed: there is none under that number.
    """
    from gateway.sdk.errors import NotFoundError

    try:
        return await ask(number)
    except NotFoundError as error:
        raise NotNamed(f"there is no schedule {number}; `ethos schedules list` shows those that there are") from error


@contextmanager
def _as_options() -> Iterator[None]:
    """What is wrong with fields, as it is called on the command line."""
    from gateway.sdk.errors import UnprocessableEntityError

    try:
        yield
    except UnprocessableEntityError as error:
        if not error.fields:
            raise
        wrong = (f"{_NAMES.sub(_option, one.where)}: {_NAMES.sub(_option, one.problem)}" for one in error.fields)
        raise Malformed("; ".join(wrong)) from error


def _option(name: re.Match[str]) -> str:
    return "--" + re.sub("[A-Z]", lambda found: f"-{found[0].lower()}", name[1])


def _told(schedule: Schedule) -> str:
    return f"{schedule.when}, to {schedule.channel}.{_next(schedule)}"


def _next(schedule: Schedule) -> str:
    times = ", ".join(_clock(at, schedule.zone) for at in schedule.next)
    return f" Next: {times}." if times else ""


def _clock(at: datetime, zone: str) -> str:
    """On the clock of the schedule, which the rule speaks of, and not on that of this machine."""
    from gateway.config.values import zone_of

    try:
        return f"{at.astimezone(zone_of(zone)):%Y-%m-%d %H:%M %Z}"
    except ValueError:  # this machine does not know the zone
        return f"{at:%Y-%m-%d %H:%M} UTC"


def _text(schedule: Schedule, who: str) -> str:
    made = "by the agent, " if schedule.turn else ""
    lines = [
        f"Schedule {schedule.id} of {who}: {schedule.when}",
        f"mode: {schedule.mode}, by {schedule.personality}; text: {schedule.text}",
        f"to: {schedule.channel}, {schedule.conversation}; missed: {schedule.missed}",
        f"state: {STATES[schedule.state]}{'' if schedule.why is None else f': {schedule.why}'}.{_next(schedule)}",
        f"made: {made}{local(schedule.created_at)}",
    ]
    return "\n".join(lines)


def _row(one: Occurrence, zone: str) -> tuple[object, ...]:
    return _clock(one.due_at, zone), f"{one.outcome}, by hand" if one.is_by_hand else one.outcome, one.note, one.turn
