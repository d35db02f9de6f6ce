"""Channels: their true state and what to do; how one is added, tried, paused, changed and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.channels import (
    ChangeChannel,
    Channel,
    ChannelChange,
    ChannelDetail,
    ChannelKindDetail,
    ChannelLogin,
    ChannelTrial,
    NewChannel,
)
from gateway.sdk.models.people import OwnerCode
from gateway.sdk.models.system import ChannelHealth, Health
from gateway.services.caller import KEYS_BELOW, Malformed, ServiceError
from gateway.web.dashboard.channel_forms import ACCESS, ACCESS_SAID, DRAFT_FIELD, ChannelForm, Typed, form_of, typed_in
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import Form
from gateway.web.markdown import to_html

PAGE = Page(name="channels", title="Channels", icon="channels", position=70)

# Younger than this, a waiting message is on its way, and not late.
LATE_S = 60.0

_WORDS: Mapping[str, tuple[str, str]] = {
    "up": ("Connected", "ok"),
    "starting": ("Connecting", ""),
    "down": ("Not connected", "warn"),
    "auth_failed": ("Refused", "bad"),
    "stopped": ("Stopped", ""),
    "elsewhere": ("On another worker", "ok"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    """A channel as it is shown.

    Attributes:
        colour: of the word: `ok`, `warn`, `bad`, or none.
        advice: what to do, where there is something to do.
        dead: messages and answers that were given up.
    """

    channel: ChannelHealth
    word: str
    colour: str
    advice: str | None
    dead: int

    @property
    def lag_s(self) -> float:
        """Age of the oldest message or answer that waits."""
        return max(self.channel.inbox_lag_s, self.channel.outbox_lag_s)


def channel_rows(health: Health) -> Sequence[ChannelRow]:
    """In the order of the configuration."""
    dead: dict[str, int] = {}
    for queue in health.queues:
        if queue.state == "dead":
            dead[queue.channel] = dead.get(queue.channel, 0) + queue.messages
    return [_row(channel, dead.get(channel.name, 0)) for channel in health.channels]


def _row(channel: ChannelHealth, dead: int) -> ChannelRow:
    word, colour = _WORDS[channel.state]
    if channel.state == "up" and max(channel.inbox_lag_s, channel.outbox_lag_s) >= LATE_S:
        word, colour = "Connected, but behind", "warn"
    return ChannelRow(channel=channel, word=word, colour=colour, advice=_advice(channel, dead), dead=dead)


def _advice(channel: ChannelHealth, dead: int) -> str | None:
    if channel.state == "auth_failed":
        return (
            "The platform does not take the login, and it is not tried again. Press Change and type a valid one, or "
            "put it where the configuration looks for it, and run `ethos reload`."
        )
    if channel.state == "down":
        return (
            "It is tried again automatically, at least every minute. What is written meanwhile waits and is not lost."
        )
    if channel.inbox_lag_s >= LATE_S:
        return "Messages wait for an answer. A slow model or a used-up budget does that; `ethos status` says which."
    if channel.outbox_lag_s >= LATE_S:
        return "Answers wait for their platform, and are sent when it is back."
    if dead:
        return "Some messages or answers were given up. Look at them under Deliveries, and try them again or drop them."
    return None


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All channels, and how the gateway is."""
    health = await context.services.system.health(context.caller)
    listed = await context.services.channels.listed(context.caller)
    return context.render(
        request,
        "channels/index.html",
        title=PAGE.title,
        health=health,
        channels=channel_rows(health),
        paused=[channel for channel in listed if channel.state == "paused"],
        access=ACCESS,
    )


# ---- another one ----------------------------------------------------------------------------------------------------


@PAGE.route("/add")
async def choose(context: PageContext, request: Request) -> Response:
    """The kinds that there are."""
    kinds = await context.services.channels.kinds(context.caller)
    return context.render(
        request, "channels/kinds.html", title="Add a channel", trail=[(PAGE.title, PAGE.path)], kinds=kinds
    )


@PAGE.route("/add/{kind}")
async def new(context: PageContext, request: Request) -> Response:
    """The way to a login of one kind, and its form."""
    kind = await context.services.channels.kind(context.caller, request.path_params["kind"])
    return _form_page(context, request, await empty_form(context, kind))


@PAGE.form("/add/{kind}")
async def add(context: PageContext, request: Request, form: Form) -> Response:
    """Try the login, or write the channel into config.yaml and connect it."""
    kind = await context.services.channels.kind(context.caller, request.path_params["kind"])
    shown, done = await taken(context, kind, form)
    if done is None:
        return _form_page(context, request, shown)
    return context.go(request, place_of(done.channel), _said(f"{done.channel} is added", done))


@PAGE.route("/pictures/{kind}/{name}")
async def picture(context: PageContext, request: Request) -> Response:
    """A picture of a platform's console, of those that its steps show."""
    setup = await context.services.channels.setup(context.caller, request.path_params["kind"])
    name = request.path_params["name"]
    if setup is None or name not in setup.pictures:
        raise HTTPException(404)
    content = await asyncio.to_thread(setup.picture(name).read_bytes)
    return Response(content, media_type="image/svg+xml", headers={"cache-control": "private, max-age=3600"})


async def empty_form(context: PageContext, kind: ChannelKindDetail) -> ChannelForm:
    """The form of a kind, with nothing typed; for other pages too, with `channels/form.html`."""
    return form_of(kind, channel=await _free_name(context, kind.kind), settings={})


async def taken(context: PageContext, kind: ChannelKindDetail, form: Form) -> tuple[ChannelForm, ChannelChange | None]:
    """Do what a form of `empty_form` asks for: try the login (`do=try`), or add the channel.

    Returns:
        The form to show again, with what was typed, what is wrong and what the platform said; and what became of the
        channel, None where it was not added.
    """
    typed = typed_in(form, kind, {})
    trial, error = None, None
    try:
        if form.get("do") != "try":
            new = NewChannel(name=typed.channel, kind=kind.kind, settings=typed.settings)
            done = await context.services.channels.added(context.caller, new)
            context.live.changed("channels")
            return form_of(kind, channel=typed.channel, settings=typed.settings), done
        login = ChannelLogin(kind=kind.kind, settings=typed.settings)
        trial = await context.services.channels.tried(context.caller, login)
    except ServiceError as raised:
        error = raised
    except ValueError:  # of the name, which the form checks too
        error = Malformed("", {"name": "use 1 to 64 of the characters A-Z a-z 0-9 _ -"})
    return _shown_again(kind, typed, trial, error), None


def _shown_again(
    kind: ChannelKindDetail,
    typed: Typed,
    trial: ChannelTrial | None,
    error: ServiceError | None,
    before: ChannelDetail | None = None,
) -> ChannelForm:
    found = error.problems if isinstance(error, Malformed) else {}
    problems = {field.removeprefix(KEYS_BELOW): problem for field, problem in found.items()}
    return form_of(
        kind,
        channel=typed.channel if before is None else before.name,
        settings=typed.settings,
        before=None if before is None else before.settings,
        typed=typed,
        problems=problems,
        problem=str(error) if error is not None and not problems else None,
        trial=trial,
    )


async def _free_name(context: PageContext, kind: str) -> str:
    taken_names = {channel.name for channel in await context.services.channels.listed(context.caller)}
    base, number = kind.rpartition(".")[2], 1
    name = base
    while name in taken_names:
        number += 1
        name = f"{base}-{number}"
    return name


# ---- one of them ----------------------------------------------------------------------------------------------------


@PAGE.route("/of/{channel}")
async def one(context: PageContext, request: Request) -> Response:
    """One channel: its state, who may talk, and what to do next."""
    return await _one(context, request, request.path_params["channel"])


@PAGE.form("/test")
async def test(context: PageContext, request: Request, form: Form) -> Response:
    """Ask the platform who the login is."""
    name = form.get("channel")
    return await _one(context, request, name, trial=await context.services.channels.tested(context.caller, name))


@PAGE.form("/owner-code")
async def owner_code(context: PageContext, request: Request, form: Form) -> Response:
    """Make a code by which the operator becomes an owner on a channel."""
    code = await context.services.pairing.owner_code(context.caller)
    return await _one(context, request, form.get("channel"), code=code)


@PAGE.form("/pause", back=PAGE.path)
async def pause(context: PageContext, request: Request, form: Form) -> Response:
    """Disconnect it and keep it."""
    done = await context.services.channels.paused(context.caller, form.get("channel"))
    context.live.changed("channels")
    return context.go(request, place_of(done.channel), _said(f"{done.channel} is paused", done))


@PAGE.form("/resume", back=PAGE.path)
async def resume(context: PageContext, request: Request, form: Form) -> Response:
    """Connect it again."""
    done = await context.services.channels.resumed(context.caller, form.get("channel"))
    context.live.changed("channels")
    return context.go(request, place_of(done.channel), _said(f"{done.channel} is resumed", done))


@PAGE.form("/remove", back=PAGE.path)
async def remove(context: PageContext, request: Request, form: Form) -> Response:
    """Take it out of config.yaml, once that is confirmed."""
    name = form.get("channel")
    if not form.is_confirmed:
        channel = await context.services.channels.get(context.caller, name)
        return context.render(
            request,
            "channels/remove.html",
            title=f"Remove {name}?",
            trail=[(PAGE.title, PAGE.path), (name, place_of(name))],
            channel=channel,
        )
    drops = form.get("waiting") == "drop"
    done = await context.services.channels.removed(context.caller, name, drop_waiting=drops)
    context.live.changed("channels", "deliveries")
    dropped = f"; {done.dropped} that waited are dropped" if drops else ""
    return context.go(request, PAGE.path, _said(f"{name} is removed{dropped}", done))


@PAGE.route("/change/{channel}")
async def edit(context: PageContext, request: Request) -> Response:
    """The form with the keys of a channel."""
    channel, kind = await _with_kind(context, request.path_params["channel"])
    shown = form_of(kind, channel=channel.name, settings=channel.settings, before=channel.settings)
    return _form_page(context, request, shown, before=channel)


@PAGE.form("/change/{channel}")
async def change(context: PageContext, request: Request, form: Form) -> Response:
    """Try the login, or write what is different into config.yaml."""
    channel, kind = await _with_kind(context, request.path_params["channel"])
    typed = typed_in(form, kind, channel.settings)
    trial, error = None, None
    try:
        if form.get("do") != "try":
            wanted = ChangeChannel(settings=typed.settings)
            done = await context.services.channels.changed(context.caller, channel.name, wanted)
            context.live.changed("channels")
            return context.go(request, place_of(channel.name), _said(f"{channel.name} is changed", done))
        login = ChannelLogin(kind=kind.kind, settings=typed.settings, channel=channel.name)
        trial = await context.services.channels.tried(context.caller, login)
    except ServiceError as raised:
        error = raised
    return _form_page(context, request, _shown_again(kind, typed, trial, error, channel), before=channel)


async def _with_kind(context: PageContext, name: str) -> tuple[ChannelDetail, ChannelKindDetail]:
    channel = await context.services.channels.get(context.caller, name)
    return channel, await context.services.channels.kind(context.caller, channel.kind)


async def _one(
    context: PageContext,
    request: Request,
    name: str,
    *,
    trial: ChannelTrial | None = None,
    code: OwnerCode | None = None,
) -> Response:
    channel, kind = await _with_kind(context, name)
    health = await context.services.system.health(context.caller)
    row = next((row for row in channel_rows(health) if row.channel.name == name), None)
    return context.render(
        request,
        "channels/one.html",
        title=name,
        trail=[(PAGE.title, PAGE.path)],
        channel=channel,
        address=place_of(name),
        kind=kind,
        row=row,
        then=[to_html(text) for text in kind.then],
        access=ACCESS_SAID[channel.access],
        allow=channel.settings.get("allow") or (),
        trial=trial,
        code=code,
    )


def _form_page(context: PageContext, request: Request, form: ChannelForm, *, before: Channel | None = None) -> Response:
    kind = form.kind
    trail = [("Add a channel", f"{PAGE.path}/add")] if before is None else [(before.name, place_of(before.name))]
    path = f"add/{kind.kind}" if before is None else f"change/{quote(before.name, safe='')}"
    has_problem = bool(form.problem or form.name_problem or any(one.problem for one in form.fields.values()))
    return context.render(
        request,
        "channels/add.html",
        title=f"Add {kind.title}" if before is None else f"Change {before.name}",
        trail=[(PAGE.title, PAGE.path), *trail],
        form=form,
        steps=steps_of(kind) if before is None else (),
        action=f"{PAGE.path}/{path}",
        is_new=before is None,
        draft_field=DRAFT_FIELD,
        access=ACCESS,
        status=409 if has_problem else 200,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShown:
    """A step of a platform's console as a page shows it; `picture` is the address of one."""

    title: str
    html: str
    picture: str | None
    shows: str | None
    copied: str | None


def steps_of(kind: ChannelKindDetail) -> Sequence[StepShown]:
    """The steps of a kind, for `channels/form.html`."""
    return [
        StepShown(
            title=step.title,
            html=to_html(step.text),
            picture=f"{PAGE.path}/pictures/{kind.kind}/{step.picture}" if step.picture else None,
            shows=step.shows,
            copied=step.copied,
        )
        for step in kind.steps
    ]


def place_of(channel: str) -> str:
    """The address of a channel's page."""
    return f"{PAGE.path}/of/{quote(channel, safe='')}"


def _said(what: str, done: ChannelChange) -> str:
    return ". ".join([what, *done.notes]) + "."
