"""Set up: from nothing to a model, a channel, an owner and a backup, in steps that can be left and come back to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gateway.domain.visible import visible
from gateway.schedules.zones import zone_names
from gateway.services.backups import KEPT
from gateway.services.caller import Malformed, NotFound
from gateway.services.setup import Setup, Step
from gateway.web.dashboard.channel_forms import ACCESS, DRAFT_FIELD, ChannelForm
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.channels import channel_rows, empty_form, steps_of, taken
from gateway.web.dashboard.pages.models import FIRST_NAME, LABELS, SERVERS, ModelForm, NotSaved, added, said_of
from gateway.web.forms import Form

PAGE = Page(name="setup", title="Set up", icon="setup", position=5)

TITLES: Mapping[Step, str] = {
    "you": "Who you are",
    "model": "A model",
    "channel": "A channel",
    "message": "The first message",
    "backup": "A backup",
}


@PAGE.route()
async def show(context: PageContext, _request: Request) -> Response:
    """On to the first step that is open."""
    setup = await context.services.setup.show(context.caller)
    return RedirectResponse(_place(setup.next_step), status_code=303)


@PAGE.route("/you")
async def you(context: PageContext, request: Request) -> Response:
    """Who runs the gateway, and whose clock is meant."""
    name = await context.services.setup.operator_name(context.caller)
    return await _you(context, request, {"name": name or "", "zone": context.services.setup.zone()})


@PAGE.form("/you")
async def be(context: PageContext, request: Request, form: Form) -> Response:
    """Keep both."""
    typed = {"name": form.get("name").strip(), "zone": form.get("zone").strip()}
    await context.services.setup.begin(context.caller)
    try:
        await context.services.setup.choose_zone(context.caller, typed["zone"])
        await context.services.people.name_operator(context.caller, typed["name"])
    except Malformed as error:
        return await _you(context, request, typed, error.problems)
    context.live.changed("people")
    return await _on(context, request, "you")


async def _you(
    context: PageContext, request: Request, typed: Mapping[str, str], problems: Mapping[str, str] | None = None
) -> Response:
    return await _step(
        context, request, "you", typed=typed, problems=problems or {}, zones=await asyncio.to_thread(zone_names)
    )


@PAGE.route("/model")
async def model(context: PageContext, request: Request) -> Response:
    """Which model answers."""
    return await _model(context, request, ModelForm(typed={"server": "openai"}))


@PAGE.form("/model")
async def use(context: PageContext, request: Request, form: Form) -> Response:
    """Ask a model for a word, and have it answer from now on."""
    await context.services.setup.begin(context.caller)
    taken = {one.name for one in await context.services.models.listed(context.caller)}
    name = next(name for number in count(1) if (name := f"{FIRST_NAME}-{number}".removesuffix("-1")) not in taken)
    try:
        told = await added(context, form, is_default=True, name=name)
    except NotSaved as error:
        return await _model(context, request, error.form)
    return context.go(request, _place("model"), told)


@PAGE.form("/model/test", back=PAGE.path)
async def test(context: PageContext, request: Request, form: Form) -> Response:
    """Ask the default model for a word."""
    name = form.get("model")
    trial = await context.services.models.tested(context.caller, name)
    text = f"{name} {said_of(trial)}" if trial.is_answered else f"{name} did not answer: {trial.error}"
    return context.go(request, _place("model"), text, is_problem=not trial.is_answered)


async def _model(context: PageContext, request: Request, form: ModelForm) -> Response:
    models = await context.services.models.listed(context.caller)
    default = next(one for one in models if one.is_default)
    return await _step(context, request, "model", form=form, labels=LABELS, servers=SERVERS, default=default)


@PAGE.route("/channel")
async def channel(context: PageContext, request: Request) -> Response:
    """Which channels there are, and the kinds of one more."""
    return await _step(
        context,
        request,
        "channel",
        channels=channel_rows(await context.services.system.health(context.caller)),
        kinds=await context.services.channels.kinds(context.caller),
    )


@PAGE.route("/channel/{kind}")
async def login(context: PageContext, request: Request) -> Response:
    """The way to a login of one kind, and its form."""
    kind = await context.services.channels.kind(context.caller, request.path_params["kind"])
    return await _login(context, request, await empty_form(context, kind))


@PAGE.form("/channel/{kind}")
async def connect(context: PageContext, request: Request, form: Form) -> Response:
    """Try the login where that can be tried, and connect it; or connect it all the same."""
    await context.services.setup.begin(context.caller)
    kind = await context.services.channels.kind(context.caller, request.path_params["kind"])
    said = ""
    if kind.can_try and form.get("do") == "try":
        shown, _ = await taken(context, kind, form)
        if shown.trial is None or not shown.trial.is_taken or shown.trial.problems:
            return await _login(context, request, shown)
        said = f"This is {visible(shown.trial.account or '')}. "
        form = Form([*form.without(DRAFT_FIELD, "do").fields, (DRAFT_FIELD, shown.draft)])
    shown, done = await taken(context, kind, form.without("do"))
    if done is None:
        return await _login(context, request, shown)
    return context.go(request, _place("message"), f"{said}{done.channel} is added.")


async def _login(context: PageContext, request: Request, form: ChannelForm) -> Response:
    return await _step(
        context,
        request,
        "channel",
        template="login",
        login=form,
        steps=steps_of(form.kind),
        access=ACCESS,
        draft_field=DRAFT_FIELD,
        problems=form.problem or form.name_problem or [one.problem for one in form.fields.values() if one.problem],
    )


@PAGE.route("/message")
async def message(context: PageContext, request: Request) -> Response:
    """The code of the owner, and what comes in."""
    first = await context.services.setup.first_messages(context.caller)
    code = None if first.account else await context.services.pairing.shown_owner_code(context.caller)
    operator = await context.services.people.operator(context.caller)
    return await _step(
        context,
        request,
        "message",
        first=first,
        code=code,
        is_linked=operator is not None and any(one.key == first.account for one in operator.accounts),
        waiting=[] if first.account else await context.services.pairing.waiting(context.caller),
        channels=await context.services.system.channels(context.caller),
    )


@PAGE.form("/message/link", back=f"{PAGE.path}/message")
async def link(context: PageContext, request: Request, _form: Form) -> Response:
    """Make the owner who has written on a channel the same person as the operator."""
    first = await context.services.setup.first_messages(context.caller)
    if first.account is None:
        raise NotFound("Nobody has become the owner on a channel yet.")
    await context.services.people.link_operator(context.caller, first.account)
    context.live.changed("people")
    return context.go(request, _place("message"), "You are one person on both: one memory, one budget.")


@PAGE.route("/backup")
async def backup(context: PageContext, request: Request) -> Response:
    """The first backup."""
    backups = await context.services.backups.show(context.caller)
    return await _step(context, request, "backup", backups=backups, kept=KEPT)


@PAGE.form("/backup", back=f"{PAGE.path}/backup")
async def save(context: PageContext, request: Request, _form: Form) -> Response:
    """Begin to make it; the page shows what becomes of it."""
    context.services.backups.begin(context.caller, partial(context.live.changed, "backups"))
    return context.go(request, _place("backup"))


@PAGE.route("/done")
async def done(context: PageContext, request: Request) -> Response:
    """What is set up, and what else there is."""
    return await _step(context, request, None)


@PAGE.form("/skip", back=PAGE.path)
async def skip(context: PageContext, request: Request, form: Form) -> Response:
    """Go on without a step."""
    step = next((one for one in get_args(Step) if one == form.get("step")), None)
    if step is None:
        raise NotFound("There is no such step.")
    await context.services.setup.begin(context.caller)
    await context.services.setup.skip(context.caller, step)
    return await _on(context, request, step)


@PAGE.form("/end", back=PAGE.path)
async def end(context: PageContext, request: Request, form: Form) -> Response:
    """Have it out of the way."""
    is_finished = form.get("how") == "finished"
    await context.services.setup.end(context.caller, is_finished=is_finished)
    text = None if is_finished else "The set-up is put aside. It is under Settings when you need it."
    return context.go(request, "/dashboard/chat", text)


async def _step(
    context: PageContext, request: Request, step: Step | None, *, template: str | None = None, **values: Any
) -> Response:
    setup: Setup = await context.services.setup.show(context.caller)
    problems = values.get("problems") or getattr(values.get("form"), "problems", None)
    return context.render(
        request,
        f"setup/{template or step or 'done'}.html",
        title=PAGE.title,
        status=409 if problems else 200,
        setup=setup,
        step=step,
        titles=TITLES,
        following=_following(step),
        **values,
    )


async def _on(context: PageContext, request: Request, step: Step) -> Response:
    return context.go(request, _place(_following(step)))


def _following(step: Step | None) -> Step | None:
    steps = list(TITLES)
    return steps[steps.index(step) + 1] if step is not None and step != steps[-1] else None


def _place(step: Step | None) -> str:
    return f"{PAGE.path}/{step or 'done'}"
