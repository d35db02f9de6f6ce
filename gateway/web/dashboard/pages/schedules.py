"""Schedules: when each is due next and how it stands; one with its history; made, changed, paused, run, removed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any, TypeVar, get_args
from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.config.values import zone_of
from gateway.errors import EthosError
from gateway.schedules.forms import named
from gateway.sdk.models.schedules import ChangeSchedule, NewSchedule, Schedule, ScheduleState
from gateway.sdk.models.schema import said_of
from gateway.services.caller import Malformed, NotFound
from gateway.services.schedules import due_ms
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import Form, whole_number

Model = TypeVar("Model", NewSchedule, ChangeSchedule)
PAGE = Page(name="schedules", title="Schedules", icon="clock", position=16, least="member")

HISTORY_ROWS, ROWS = 50, 50
STATES: Mapping[str, tuple[str, str]] = {
    "active": ("Active", "ok"),
    "paused": ("Paused", ""),
    "failing": ("Paused by the gateway", "bad"),
    "done": ("Done", ""),
}
MODES: Mapping[str, str] = {
    "say": "Say the text as it is",
    "do": "Let the agent do it",
    "watch": "Let the agent look, and report if need be",
}
MISSED: Mapping[str, str] = {
    "late": "Make up for it, and say so",
    "skip": "Leave it out",
    "newest": "Make up for the last one, if it is not long ago",
    "each": "Make up for each",
}
OUTCOMES: Mapping[str, tuple[str, str]] = {
    "begun": ("Begun", ""),
    "done": ("Done", "ok"),
    "silent": ("Nothing to report", "ok"),
    "skipped": ("Left out", "warn"),
    "failed": ("Failed", "bad"),
}
RULES: Mapping[str, str] = {
    "at": "Once, at a time",
    "in_minutes": "Once, after some minutes",
    "every_minutes": "Every so many minutes",
    "every_days": "Every so many days",
    "cron": "By five fields of cron",
}
FIELDS: Mapping[str, tuple[str, ...]] = {
    **{kind: (kind,) for kind in RULES},
    "every_days": ("every_days", "time_of_day", "first_day"),
}
"""What each rule is made of; the form sends all fields, and those of the chosen rule count."""
LABELS: Mapping[str, str] = {
    "text": "Text",
    "at": "Date and time",
    "in_minutes": "Minutes from now",
    "every_minutes": "Minutes",
    "every_days": "Days",
    "time_of_day": "Time of day",
    "first_day": "First day",
    "cron": "Cron",
    "zone": "Time zone",
    "to": "Where",
}
"""What the form calls a field, by its key."""


# ---- showing --------------------------------------------------------------------------------------------------------


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All that something is still due of, or those of a person or in a state; oldest first."""
    asked = request.query_params
    user = asked.get("user", "").strip() or None
    state: ScheduleState | None = next((one for one in get_args(ScheduleState) if one == asked.get("state")), None)
    after = whole_number(asked.get("after", ""))
    found, problem = [], None
    try:
        found = [
            *await context.services.schedules.listed(
                context.caller, user=user, state=state, after=after or 0, limit=ROWS + 1
            )
        ]
    except EthosError as error:  # such as an unknown user: what was typed stays in the form
        problem = str(error)
    return context.render(
        request,
        "schedules/index.html",
        title=PAGE.title,
        schedules=found[:ROWS],
        problem=problem,
        are_on=context.services.schedules.are_on,
        user=user,
        state=state,
        names=await context.names(),
        here=_address(user=user, state=state, after=asked.get("after") if after else None),
        first=_address(user=user, state=state) if after else None,
        more=_address(user=user, state=state, after=f"{found[ROWS - 1].id}") if len(found) > ROWS else None,
        **_words(),
    )


@PAGE.route("/of/{schedule}")
async def one(context: PageContext, request: Request) -> Response:
    """One, with what came of its last times."""
    schedule = await _schedule(context, request)
    service = context.services.schedules
    before_ms = whole_number(request.query_params.get("before", ""))
    history = await service.history(context.caller, schedule.id, limit=HISTORY_ROWS + 1, before_ms=before_ms)
    return context.render(
        request,
        "schedules/one.html",
        title=f"Schedule {schedule.id}",
        trail=[(PAGE.title, PAGE.path)],
        schedule=schedule,
        history=history[:HISTORY_ROWS],
        here=_of(schedule.id, before_ms),
        newest=None if before_ms is None else _of(schedule.id),
        older=_of(schedule.id, due_ms(history[HISTORY_ROWS - 1])) if len(history) > HISTORY_ROWS else None,
        made_in=await service.session_of(schedule),
        names=await context.names(),
        outcomes=OUTCOMES,
        **_words(),
    )


@PAGE.route("/new")
async def new(context: PageContext, request: Request) -> Response:
    """The form for another one."""
    return await _form(context, request, {"user": request.query_params.get("user", "")})


@PAGE.route("/of/{schedule}/change")
async def edit(context: PageContext, request: Request) -> Response:
    """The form of one, as it is."""
    schedule = await _schedule(context, request)
    rule = _rule(schedule)
    kind = next((kind for kind in RULES if kind in rule), None)
    if schedule.is_configured or kind is None:
        raise HTTPException(409, "It stands in config.yaml; change it there.")
    typed = {**rule, "rule": kind, "text": schedule.text, "mode": schedule.mode}
    return await _form(context, request, {**typed, "zone": schedule.zone, "missed": schedule.missed}, schedule)


# ---- changing -------------------------------------------------------------------------------------------------------


@PAGE.form("/new")
async def create(context: PageContext, request: Request, form: Form) -> Response:
    """Make one."""
    try:
        new = _checked(NewSchedule, _typed(form, "user", "personality", "to"))
        made = await context.services.schedules.created(context.caller, new)
    except EthosError as error:
        return await _form(context, request, dict(form.fields), error=error)
    context.live.changed("messages")
    return context.go(request, _of(made.id), f"Schedule {made.id} is made: {made.when}.")


@PAGE.form("/change")
async def change(context: PageContext, request: Request, form: Form) -> Response:
    """Change one."""
    number = whole_number(form.get("schedule")) or 0
    service = context.services.schedules
    before = await service.shown(context.caller, number)
    try:
        typed, rule = _typed(form, "to"), _rule(before)
        if rule.items() <= typed.items():  # as it was, so it goes on in its rhythm
            typed = {name: value for name, value in typed.items() if name not in rule}
        changed = await service.changed(context.caller, number, _checked(ChangeSchedule, typed))
    except EthosError as error:
        return await _form(context, request, dict(form.fields), before, error=error)
    context.live.changed("messages")
    return context.go(request, _of(number), f"Schedule {number} is changed: {changed.when}.")


@PAGE.form("/pause", back=PAGE.path)
async def pause(context: PageContext, request: Request, form: Form) -> Response:
    """Let nothing be due."""
    paused = await context.services.schedules.paused(context.caller, whole_number(form.get("schedule")) or 0)
    return _changed(context, request, paused, f"Schedule {paused.id} is paused.")


@PAGE.form("/resume", back=PAGE.path)
async def resume(context: PageContext, request: Request, form: Form) -> Response:
    """Go on from now."""
    resumed = await context.services.schedules.resumed(context.caller, whole_number(form.get("schedule")) or 0)
    return _changed(context, request, resumed, f"Schedule {resumed.id} goes on.")


@PAGE.form("/run", back=PAGE.path)
async def run(context: PageContext, request: Request, form: Form) -> Response:
    """Do it once, now."""
    ran = await context.services.schedules.ran(context.caller, whole_number(form.get("schedule")) or 0)
    return _changed(context, request, ran, f"Schedule {ran.id} is done once, now.")


@PAGE.form("/remove", back=PAGE.path)
async def remove(context: PageContext, request: Request, form: Form) -> Response:
    """Remove one, after a question."""
    number = whole_number(form.get("schedule")) or 0
    schedule = await context.services.schedules.shown(context.caller, number)
    if not form.is_confirmed:
        text = f"“{schedule.text[:300]}” is forgotten with its history, and what waits of it is not done."
        return context.ask(request, form, title=f"Remove schedule {number}?", text=text, yes="Remove", back=_of(number))
    await context.services.schedules.removed(context.caller, number)
    context.live.changed("messages")
    return context.go(request, PAGE.path, f"Schedule {number} is removed.")


# ---- pieces ---------------------------------------------------------------------------------------------------------


async def _schedule(context: PageContext, request: Request) -> Schedule:
    """The one in the address.

    Raises:
        HTTPException: 404, there is none.
    """
    try:
        number = whole_number(request.path_params["schedule"]) or 0
        return await context.services.schedules.shown(context.caller, number)
    except NotFound as error:
        raise HTTPException(404) from error


async def _form(
    context: PageContext,
    request: Request,
    typed: Mapping[str, Any],
    schedule: Schedule | None = None,
    *,
    error: EthosError | None = None,
) -> Response:
    """To make one, or to change this one; with what was typed before, and what is wrong with it."""
    problems = _problems(error)
    trail = [(PAGE.title, PAGE.path)]
    if schedule is not None:
        trail.append((f"Schedule {schedule.id}", _of(schedule.id)))
    return context.render(
        request,
        "schedules/form.html",
        title="New schedule" if schedule is None else f"Change schedule {schedule.id}",
        trail=trail,
        status=200 if error is None else 409,
        schedule=schedule,
        typed={"rule": "at", "mode": "say", **typed},
        problem="; ".join(f"{_label(name)}: {why}" for name, why in problems.items()) or (error and str(error)),
        problems=problems,
        rules=RULES,
        labels=LABELS,
        names=await context.names(),
        personalities=[one.id for one in context.sources.personalities.list()],
        channels=sorted(context.sources.config.current.channels),
        **_words(),
    )


def _rule(schedule: Schedule) -> dict[str, str]:
    """The fields of its rule, as the form has them."""
    rule = schedule.rule
    if rule.at is None:
        return {name: str(value) for name, value in rule.model_dump(exclude_none=True, by_alias=False).items()}
    try:
        zone = zone_of(schedule.zone)
    except ValueError:  # its data is gone from this machine, so the form asks for another one
        zone = UTC
    return {"at": f"{rule.at.astimezone(zone):%Y-%m-%dT%H:%M}"}


def _typed(form: Form, *more: str) -> dict[str, str]:
    """What was filled in, of the chosen rule and beside it.

    Raises:
        Malformed: the text or the chosen rule is empty.
    """
    rule = form.get("rule")
    names = ("text", "mode", "zone", "missed", *FIELDS.get(rule, ()), *more)
    typed = {name: value for name in names if (value := form.get(name).strip())}
    if empty := {name: "it is empty" for name in ("text", *FIELDS.get(rule, ())[:1]) if name not in typed}:
        raise Malformed("the form is not filled in", empty)
    return typed


def _checked(model: type[Model], typed: Mapping[str, str]) -> Model:
    try:
        return model.model_validate(typed)
    except ValidationError as error:
        raise Malformed(str(error), {str(one["loc"][0]): said_of(one) for one in error.errors()}) from error


def _problems(error: EthosError | None) -> dict[str, str]:
    """What is wrong with each field, in the words of the form."""
    wrong = error.problems if isinstance(error, Malformed) else {}
    return dict(zip(wrong, named(wrong, _label).values(), strict=True))


def _label(name: str) -> str:
    return LABELS.get(name, name)


def _changed(context: PageContext, request: Request, schedule: Schedule, text: str) -> Response:
    context.live.changed("messages")
    return context.go(request, _of(schedule.id), text)


def _words() -> Mapping[str, Any]:
    return {"states": STATES, "modes": MODES, "missed": MISSED}


def _of(number: int, before_ms: int | None = None) -> str:
    return f"{PAGE.path}/of/{number}" + ("" if before_ms is None else f"?before={before_ms}")


def _address(**chosen: str | None) -> str:
    pairs = {name: value for name, value in chosen.items() if value}
    return f"{PAGE.path}?{urlencode(pairs)}" if pairs else PAGE.path
