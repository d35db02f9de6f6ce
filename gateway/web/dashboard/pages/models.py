"""Models: how each does, and what it answers; one is added, changed, made the default, or removed."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from gateway.domain.visible import visible
from gateway.sdk.models.models import (
    ChangedModel,
    ConfiguredModel,
    ModelChange,
    ModelPlace,
    ModelToTry,
    ModelTrial,
    NewModel,
)
from gateway.services.caller import Malformed, NotFound, ServiceError
from gateway.web.dashboard.channel_forms import DRAFT_FIELD, DRAFTS
from gateway.web.dashboard.filters import number
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import SECRET_PREFIX, Form

PAGE = Page(name="models", title="Models", icon="models", position=56)

STATES: Mapping[str, tuple[str, str]] = {
    "up": ("Answers", "ok"),
    "down": ("Does not answer", "bad"),
    "unknown": ("Not asked since the start", ""),
}
SERVERS: Mapping[str, str] = {
    "openai": "OpenAI",
    "anthropic": "Anthropic",
    "address": "A server at an address: Ollama, vLLM, llama.cpp, OpenRouter, or any other that speaks OpenAI's format",
}
LABELS: Mapping[str, str] = {
    "name": "Name",
    "server": "Where it runs",
    "base_url": "Address",
    "api_key": "API key",
    "model": "Model",
}
_FIELDS: Mapping[str, str] = {"provider": "server"}
"""What the form calls a value, where that is not its own name."""
KEY_FIELD = f"{SECRET_PREFIX}api_key"
FIRST_NAME = "main"
"""Proposed for the first model."""
_MOST_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelForm:
    """A form as it is shown.

    Attributes:
        typed: by field; never the key.
        draft: under which a typed key is kept.
        has_saved_key: the configuration has one for what is changed.
        offered: names of the server's models; None where they were not asked for, or it does not list them.
        problems: by field; under the empty name, what is about none of them.
        may_save: it was tried, did not answer, and can be saved all the same.
    """

    typed: Mapping[str, str]
    draft: str = ""
    has_saved_key: bool = False
    offered: Sequence[str] | None = None
    is_list_asked: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)
    may_save: bool = False


class NotSaved(Exception):
    """The form comes back.

    Attributes:
        form: with what is wrong in it.
    """

    def __init__(self, form: ModelForm) -> None:
        super().__init__()
        self.form = form


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All of them."""
    models = await context.services.models.listed(context.caller)
    return context.render(request, "models/index.html", title=PAGE.title, models=models, states=STATES)


@PAGE.form("/test", back=PAGE.path)
async def test(context: PageContext, request: Request, form: Form) -> Response:
    """Ask one for a word."""
    name = form.get("model")
    trial = await context.services.models.tested(context.caller, name)
    context.live.changed("channels")
    if trial.is_answered:
        return context.go(request, PAGE.path, f"{name} {said_of(trial)}")
    return context.go(request, PAGE.path, f"{name} did not answer: {trial.error}", is_problem=True)


@PAGE.form("/use", back=PAGE.path)
async def use(context: PageContext, request: Request, form: Form) -> Response:
    """Make one the default."""
    change = await context.services.models.used(context.caller, form.get("model"))
    return context.go(request, PAGE.path, f"{change.model} is the default now. {_notes(change)}")


@PAGE.form("/remove", back=PAGE.path)
async def remove(context: PageContext, request: Request, form: Form) -> Response:
    """Take one out of config.yaml, once that is confirmed."""
    name = form.get("model")
    if not form.is_confirmed:
        text = "It is taken out of config.yaml. The file of its key is deleted if nothing else names it."
        return context.ask(request, form, title=f"Remove {name}?", text=text, yes="Remove", back=PAGE.path)
    change = await context.services.models.removed(context.caller, name)
    return context.go(request, PAGE.path, f"{name} is removed. {_notes(change)}")


@PAGE.route("/add")
async def new(context: PageContext, request: Request) -> Response:
    """The form for another one."""
    names = {one.name for one in await context.services.models.listed(context.caller)}
    typed = {"server": "openai", "name": "" if FIRST_NAME in names else FIRST_NAME}
    return _form_page(context, request, ModelForm(typed=typed))


@PAGE.form("/add")
async def add(context: PageContext, request: Request, form: Form) -> Response:
    """Ask it for a word, write it into config.yaml, and use it."""
    try:
        told = await added(context, form, is_default=form.has("is_default"))
    except NotSaved as error:
        return _form_page(context, request, error.form)
    return context.go(request, PAGE.path, told)


@PAGE.route("/change")
async def changing(context: PageContext, request: Request) -> Response:
    """The form of one."""
    model = await _find(context, request.query_params.get("model", ""))
    server = "anthropic" if model.provider == "anthropic" else "address" if model.base_url else "openai"
    typed = {"server": server, "base_url": model.base_url or "", "model": model.model or ""}
    return _form_page(context, request, ModelForm(typed=typed, has_saved_key=model.has_key), changed=model.name)


@PAGE.form("/change")
async def change(context: PageContext, request: Request, form: Form) -> Response:
    """Ask it for a word as it is to be, and write that into config.yaml."""
    model, form = await _find(context, form.get("changed")), _whole(form)
    try:
        base_url, said = await _tried(context, form, saved=model)
        values = ChangedModel(**{**_place(form, saved=model), "base_url": base_url}, model=form.get("model"))
        writing = context.services.models.changed(context.caller, model.name, values)
        changed = await _written(context, form, writing, saved=model)
    except NotSaved as error:
        return _form_page(context, request, error.form, changed=model.name)
    return context.go(request, PAGE.path, f"{model.name} is changed. {said}{_notes(changed)}")


async def added(context: PageContext, form: Form, *, is_default: bool, name: str | None = None) -> str:
    """Try a model that was typed, and write it into config.yaml; what came of it, for people.

    Args:
        name: under which it is kept; None for the one in the form.

    Raises:
        NotSaved: something is wrong, or only the list of the server's models was asked for.
    """
    form = _whole(form)
    base_url, said = await _tried(context, form)
    try:
        new = NewModel(
            **{**_place(form), "base_url": base_url},
            model=form.get("model").strip(),
            name=form.get("name").strip() if name is None else name,
            is_default=is_default,
        )
    except ValidationError as error:
        problems = {str(one["loc"][0]): "use A-Z a-z 0-9 . _ - and :, 64 at most" for one in error.errors()}
        raise NotSaved(_again(form, problems=problems)) from error
    done = await _written(context, form, context.services.models.added(context.caller, new))
    return f"{done.model} is added{' and answers by default' if is_default else ''}. {said}{_notes(done)}"


async def _tried(context: PageContext, form: Form, *, saved: ConfiguredModel | None = None) -> tuple[str | None, str]:
    """The address at which it answered, and what it said; of a form that saves all the same, nothing is asked.

    Raises:
        NotSaved: it did not answer, or only the list was asked for.
    """
    place = _place(form, saved=saved)
    if form.get("server") == "address" and not place["base_url"]:
        raise NotSaved(_again(form, saved=saved, problems={"base_url": "it is empty"}))
    try:
        if form.get("do") == "list":
            found = await context.services.models.offered(context.caller, ModelPlace(**place))
            typed = {"base_url": found.base_url or ""} if place["base_url"] else {}
            raise NotSaved(_again(form, saved=saved, offered=found.models, is_list_asked=True, typed=typed))
        if not form.get("model").strip():
            raise NotSaved(_again(form, saved=saved, problems={"model": "it is empty"}))
        if form.get("do") == "save":
            return place["base_url"], ""
        trial = await context.services.models.tried(
            context.caller, ModelToTry(**place, model=form.get("model").strip())
        )
    except Malformed as error:
        problems = error.problems or {"": str(error)}
        raise NotSaved(_again(form, saved=saved, problems=problems)) from error
    if not trial.is_answered:
        problems = {trial.about or "": trial.error or ""}
        raise NotSaved(_again(form, saved=saved, problems=problems, may_save=True))
    return trial.base_url, f"It {said_of(trial)} "


async def _written(
    context: PageContext, form: Form, writing: Awaitable[ModelChange], *, saved: ConfiguredModel | None = None
) -> ModelChange:
    """What became of it.

    Raises:
        NotSaved: it cannot be written; says why.
    """
    try:
        done = await writing
    except Malformed as error:
        raise NotSaved(_again(form, saved=saved, problems=error.problems or {"": str(error)})) from error
    except ServiceError as error:
        raise NotSaved(_again(form, saved=saved, problems={"": str(error)})) from error
    context.live.changed("channels")
    return done


def _place(form: Form, *, saved: ConfiguredModel | None = None) -> dict[str, Any]:
    """Where it runs, with its key, as `ModelPlace` takes it."""
    server = form.get("server")
    return {
        "provider": "anthropic" if server == "anthropic" else "openai",
        "base_url": (form.get("base_url").strip() or None) if server == "address" else None,
        "api_key": form.get(KEY_FIELD) or None,
        "key_of": None if saved is None else saved.name,
    }


def _whole(form: Form) -> Form:
    """The form with the key that was typed into it now, or before."""
    key = form.get(KEY_FIELD).strip() or DRAFTS.take(form.get(DRAFT_FIELD)).get(KEY_FIELD, "")
    return Form([*form.without(KEY_FIELD, DRAFT_FIELD).fields, (KEY_FIELD, key)])


def _again(
    form: Form,
    *,
    saved: ConfiguredModel | None = None,
    problems: Mapping[str, str] | None = None,
    typed: Mapping[str, str] | None = None,
    **more: Any,
) -> ModelForm:
    """The form with what was typed; its key is kept apart, because no page shows one."""
    key = form.get(KEY_FIELD)
    return ModelForm(
        typed={**dict(form.showable), **(typed or {})},
        draft=DRAFTS.keep({KEY_FIELD: key}) if key else "",
        has_saved_key=saved is not None and saved.has_key,
        problems={_FIELDS.get(name, name): text for name, text in (problems or {}).items()},
        **more,
    )


def _form_page(context: PageContext, request: Request, form: ModelForm, *, changed: str | None = None) -> Response:
    return context.render(
        request,
        "models/form.html",
        title="Add a model" if changed is None else f"Change {changed}",
        trail=[(PAGE.title, PAGE.path)],
        status=409 if form.problems else 200,
        form=form,
        changed=changed,
        labels=LABELS,
        servers=SERVERS,
    )


async def _find(context: PageContext, name: str) -> ConfiguredModel:
    for one in await context.services.models.listed(context.caller):
        if one.name == name:
            return one
    raise NotFound(f"There is no model {name[:80]}; perhaps it was removed.")


def said_of(trial: ModelTrial) -> str:
    """What a model answered, how long that took, and what it cost, as the end of a sentence."""
    price = "no price known" if trial.cost_usd is None else f"${trial.cost_usd:.6f}"
    tokens = f"{number(trial.input_tokens)} tokens in and {number(trial.output_tokens)} out, {price}"
    text = trial.text if len(trial.text) <= _MOST_SHOWN else trial.text[:_MOST_SHOWN] + "…"
    said = f"answered “{visible(text)}”" if text else "made an embedding"
    return f"{said} in {trial.duration_s:.1f} s ({tokens})."


def _notes(change: ModelChange) -> str:
    return " ".join(f"{note[:1].upper()}{note[1:]}." for note in change.notes)
