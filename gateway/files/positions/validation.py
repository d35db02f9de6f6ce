"""Holds a part of a file against a pydantic model, and says what is wrong in our words, with line and column."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.files.positions.yaml import KeyPath, MarkedYaml, value_at

M = TypeVar("M", bound=BaseModel)

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen": "a list",
    "dict": "a section of `key: value` lines",
    "model": "a section of `key: value` lines",
    "mapping": "a section of `key: value` lines",
    "finite": "a number",
    "date": "a date, 2026-11-20",
}
_BOUNDS = {
    "greater_than_equal": ("too small", "at least", "ge"),
    "greater_than": ("too small", "more than", "gt"),
    "less_than_equal": ("too large", "at most", "le"),
    "less_than": ("too large", "less than", "lt"),
    "string_too_short": ("too short", "a length of at least", "min_length"),
    "string_too_long": ("too long", "a length of at most", "max_length"),
    "too_short": ("too short", "a length of at least", "min_length"),
    "too_long": ("too long", "a length of at most", "max_length"),
}
_MAX_SHOWN_CHARS = 60
_MIN_HIDDEN_CHARS = 4  # shorter ones would tear holes into words


def validate(
    model: type[M],
    document: MarkedYaml,
    path: KeyPath = (),
    *,
    values: Any = None,
    hidden: Collection[KeyPath] = (),
) -> M | None:
    """Make a model of what stands at `path`; None when that failed and the document has the problems.

    Args:
        model: what the section must be.
        document: gets the problems.
        path: of the section.
        values: what to validate, where it is not simply what stands at `path`.
        hidden: values that no message may show, for they are secret or come from outside.
    """
    # What has a problem already gets no second one, about the same thing in other words.
    broken = {problem.place for problem in document.problems}
    try:
        return model.model_validate(value_at(document.values, path) if values is None else values)
    except ValidationError as error:
        found = error.errors(include_url=False)
    for detail in found:
        place = _path_of(document, (*path, *detail["loc"]))
        if document.places.get(place) not in broken or detail["type"] == "extra_forbidden":
            is_hidden = any(place[: len(secret)] == secret for secret in hidden)
            text = _text(detail, model, is_shown=not is_hidden)
            text = _without_hidden(text, document, hidden)
            document.complain(place, text, at_key=detail["type"] == "extra_forbidden")
    return None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` (did you mean ...?)` when something known is written nearly so, else nothing."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f" (did you mean `{near[0]}`?)" if near else ""


def shown(value: object) -> str:
    """A value as a message shows it: on one line, and not long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a section" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"


def _path_of(document: MarkedYaml, location: KeyPath) -> KeyPath:
    """Leave out what pydantic puts into a location besides keys: tags of unions, names of validators."""
    path: KeyPath = ()
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        if (*path, part) in document.keys or (is_last and not _is_tag(part)):
            path = (*path, part)
    return path


def _is_tag(part: str | int) -> bool:
    return isinstance(part, str) and not re.fullmatch(r"[a-z][a-z0-9_]*", part)


def _without_hidden(text: str, document: MarkedYaml, hidden: Collection[KeyPath]) -> str:
    """A validator of an adapter may put what it was given into its words."""
    for path in hidden:
        value = value_at(document.values, path)
        if isinstance(value, str) and len(value) >= _MIN_HIDDEN_CHARS:
            text = text.replace(value, "…")
    return text


def _text(detail: ErrorDetails, model: type[BaseModel], *, is_shown: bool) -> str:
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    what = shown(value) if is_shown else "the value"
    expected = _EXPECTED.get(kind.partition("_")[0])
    if kind == "missing":
        text = "missing; expected a value here"
    elif kind == "extra_forbidden":
        known = _fields(model, detail["loc"][:-1])
        choices = f"one of {', '.join(known)}" if known else "no keys here"
        text = f"unknown key{did_you_mean(detail['loc'][-1], known)}; expected {choices}"
    elif kind == "literal_error":
        text = f"{what} is not a choice; expected {context['expected']}"
    elif kind == "value_error":
        text = str(context["error"])
    elif kind in _BOUNDS:
        fault, bound, key = _BOUNDS[kind]
        text = f"{what} is {fault}; expected {bound} {context[key]}"
    elif expected:
        hint = ""
        if value is None:
            hint = ", or no such key"
        elif expected == "text" and isinstance(value, int | float):
            hint = " (put it in quotes)"
        text = f"{what} is not {expected}; expected {expected}{hint}"
    else:
        text = f"{what} does not fit; {detail['msg'][:1].lower()}{detail['msg'][1:]}".replace("input should", "it must")
    return text


def _fields(model: type[BaseModel], location: KeyPath) -> list[str]:
    """The keys that the section at `location` may have, as far as the model says."""
    here: Any = model
    for part in location:
        fields = getattr(here, "model_fields", None)
        if fields is None:
            continue
        field = fields.get(part)
        here = _model_in(field.annotation) if field is not None else here
    return [field.alias or name for name, field in getattr(here, "model_fields", {}).items()]


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
