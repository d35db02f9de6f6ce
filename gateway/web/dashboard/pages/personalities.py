"""Personalities: who can answer, and an editor for what they are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from gateway.config import OFFLINE
from gateway.domain.personalities.editing import PersonalityChanged
from gateway.domain.personalities.places import SETTINGS_NAME
from gateway.errors import EthosError
from gateway.files.positions.splicing import REMOVED, spliced
from gateway.files.positions.yaml import KeyPath, parse_marked_yaml
from gateway.memory.history import difference
from gateway.services.caller import Malformed
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import Form

NAMES = ("name", "description", "model", "memory_scope", "memory_writes", "thinking")
"""Keys of `personality.yaml` that have a field of their own."""
CHOICES: Mapping[str, Mapping[str, str]] = {
    "memory_scope": {
        "per-personality": "Its own, shared by all people",
        "per-user": "Its own, one for each person",
        "global": "That of all personalities",
    },
    "memory_writes": {
        "auto": "Automatically",
        "review": "Always with your yes",
        "off": "Never",
    },
    "thinking": {"off": "Not at all", "low": "A little", "medium": "Some", "high": "Much"},
}

PAGE = Page(name="personalities", title="Personalities", icon="personalities", position=50)


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All of them."""
    return await _list(context, request, Form())


@PAGE.form("/create")
async def create(context: PageContext, request: Request, form: Form) -> Response:
    """Make one, and go on to its editor."""
    personality_id = form.get("id").strip()
    try:
        made = await context.services.personalities.create(
            context.caller,
            personality_id,
            name=form.get("name").strip() or None,
            description=form.get("description").strip(),
            copy_of=form.get("copy_of") or None,
        )
    except EthosError as error:
        return await _list(context, request, form, problem=str(error))
    undo = _undo(made.personality.id, made.version)
    return context.go(
        request, f"{PAGE.path}/{made.personality.id}", f"{made.personality.id} is made. Say now who that is.", undo=undo
    )


@PAGE.form("/undo", back=PAGE.path)
async def undo(context: PageContext, request: Request, form: Form) -> Response:
    """Bring back what stood there before."""
    personality_id = form.get("id")
    await context.services.personalities.undo(context.caller, personality_id, form.get("version"))
    return context.go(request, PAGE.path, f"{personality_id} is as it was before.")


@PAGE.route("/{id}")
async def edit(context: PageContext, request: Request) -> Response:
    """The editor."""
    personality_id = request.path_params["id"]
    files = await context.services.personalities.get(context.caller, personality_id)
    form = Form([("prompt", files.prompt), ("settings", files.settings), ("version", files.version)])
    return _editor(context, request, personality_id, form)


@PAGE.form("/{id}")
async def save(context: PageContext, request: Request, form: Form) -> Response:
    """Put both texts in place, if they are valid and still the version that was read."""
    personality_id = request.path_params["id"]
    settings = form.get("settings")
    try:
        settings = await asyncio.to_thread(_with_fields, form)
        saved = await context.services.personalities.update(
            context.caller,
            personality_id,
            prompt=form.get("prompt"),
            settings=settings,
            expected_version=form.get("version"),
        )
    except PersonalityChanged as changed:
        now = changed.current
        changed_too = {"settings", "version", *NAMES, *(f"was.{name}" for name in NAMES)}
        newer = Form([*form.without(*changed_too).fields, ("settings", settings), ("version", now.version)])
        theirs = difference(now.prompt + now.settings, form.get("prompt") + settings)
        problem = "The files have changed while you were writing. Below stands what saving now would change in them."
        return _editor(context, request, personality_id, newer, problem=problem, diff=theirs)
    except EthosError as error:
        return _editor(context, request, personality_id, form, problem=str(error))
    undo = _undo(personality_id, saved.version)
    return context.go(request, PAGE.path, f"{personality_id} is saved, and counts from the next turn on.", undo=undo)


async def _list(context: PageContext, request: Request, form: Form, *, problem: str | None = None) -> Response:
    return context.render(
        request,
        "personalities/index.html",
        title=PAGE.title,
        status=200 if problem is None else 409,
        personalities=await context.services.personalities.all(context.caller),
        default=context.sources.config.current.personality,
        typed=dict(form.fields),
        problem=problem,
    )


def _editor(
    context: PageContext,
    request: Request,
    personality_id: str,
    form: Form,
    *,
    problem: str | None = None,
    diff: str = "",
) -> Response:
    stands = _fields_of(form.get("settings"))
    was = {name: form.get(f"was.{name}", stands[name]) for name in NAMES}
    return context.render(
        request,
        "personalities/edit.html",
        title=f"Edit {personality_id}",
        trail=[(PAGE.title, PAGE.path)],
        status=200 if problem is None else 409,
        id=personality_id,
        prompt=form.get("prompt"),
        settings=form.get("settings"),
        was=was,
        typed={name: form.get(name, was[name]) for name in NAMES},
        choices=CHOICES,
        models=sorted({*context.sources.config.current.models, OFFLINE, *filter(None, [was["model"]])}),
        version=form.get("version"),
        problem=problem,
        diff=diff,
    )


def _fields_of(settings: str) -> Mapping[str, str]:
    """What `personality.yaml` says in those keys, as a form has it; nothing where it cannot be read."""
    values = parse_marked_yaml(settings.encode(), SETTINGS_NAME).values
    found = {name: "off" if values.get(name) is False else values.get(name) for name in NAMES}
    return {name: "" if value is None else str(value) for name, value in found.items()}


def _with_fields(form: Form) -> str:
    """The settings as they were typed, with each field that was changed put into them; all other lines stay.

    Raises:
        Malformed: they are no YAML, so no field can be put into them.
        CannotSplice: they are written in an odd way; says what to do by hand.
    """
    settings = form.get("settings")
    typed = {name: form.get(name).strip() for name in NAMES if form.has(name)}
    changed: dict[KeyPath, object] = {
        (name,): value or REMOVED for name, value in typed.items() if value != form.get(f"was.{name}")
    }
    if not changed:
        return settings
    if problems := parse_marked_yaml(settings.encode(), SETTINGS_NAME).sorted_problems():
        raise Malformed("\n".join(problems))
    return spliced(settings, changed)


def _undo(personality_id: str, version: str) -> Undo:
    return Undo(action=f"{PAGE.path}/undo", fields=[("id", personality_id), ("version", version)])
