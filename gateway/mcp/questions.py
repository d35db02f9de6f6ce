"""What a server asks in the middle of a call, in our words, and the person's answer in the protocol's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import mcp_types as types

from gateway.tools.contract import ToolError
from gateway.tools.forms import Given, Point, Value

MAX_POINTS = 12
MAX_WORDS_CHARS = 1_500
MAX_ADDRESS_CHARS = 2_000
MAX_CHOICES = 50
MAX_CHOICE_CHARS = 200
MAX_STATE_CHARS = 64 << 10
_PLAIN = {"string", "number", "integer"}
_AGREE: tuple[tuple[str, Value], ...] = (("Yes", None),)


def points_of(requests: types.InputRequests | None, state: str | None) -> tuple[Point, ...]:
    """All that is asked, one after the other.

    Raises:
        ToolError: it cannot be asked here; says why.
    """
    try:
        points = tuple(point for key, one in (requests or {}).items() for point in _points(key, one))
    except (AttributeError, KeyError, TypeError) as error:
        raise ToolError("its server asks the person something in a form that cannot be read") from error
    if len(points) > MAX_POINTS or len(state or "") > MAX_STATE_CHARS:
        raise ToolError(f"its server asks the person too much; at most {MAX_POINTS} fields can be asked here")
    return points


def responses_of(given: Given) -> Mapping[str, types.ElicitResult]:
    """The answers as the protocol has them."""
    return {
        key: types.ElicitResult(action="decline")
        if fields is None
        else types.ElicitResult(action="accept", content=dict(fields) or None)
        for key, fields in given.responses.items()
    }


def _points(key: str, request: types.InputRequest) -> Iterator[Point]:
    if not isinstance(request, types.ElicitRequest):
        raise ToolError(f"its server asks for {request.method}, which is not offered here")
    asked = request.params
    if isinstance(asked, types.ElicitRequestURLParams):
        if len(asked.url) > MAX_ADDRESS_CHARS:
            raise ToolError("its server asks the person to open an address that is too long to be shown")
        words = f"{asked.message[:MAX_WORDS_CHARS]}\nOpen this address yourself, if you trust it: {asked.url}"
        yield Point(request=key, name="", words=words, schema={}, choices=(("Done", None),))
        return
    fields: Mapping[str, Any] = asked.requested_schema.get("properties") or {}
    required = asked.requested_schema.get("required") or ()
    if not fields:
        yield Point(request=key, name="", words=asked.message[:MAX_WORDS_CHARS], schema={}, choices=_AGREE)
    for number, (name, schema) in enumerate(fields.items()):
        said = [asked.message] if number == 0 else []
        said += [str(schema.get("title") or name), str(schema.get("description") or "")]
        yield Point(
            request=key,
            name=name,
            words="\n".join(filter(None, said))[:MAX_WORDS_CHARS],
            schema=schema,
            is_required=name in required,
            choices=_choices(name, schema),
        )


def _choices(name: str, schema: Mapping[str, Any]) -> tuple[tuple[str, Value], ...]:
    """What can be chosen; nothing for what is written.

    Raises:
        ToolError: the field has another type than can be asked here.
    """
    if schema.get("type") == "boolean":
        return (("Yes", True), ("No", False))
    named, values = schema.get("oneOf"), schema.get("enum")
    choices: tuple[tuple[str, Value], ...] = ()
    if isinstance(named, list):
        choices = tuple((str(one.get("title") or one["const"]), str(one["const"])) for one in named)
    elif isinstance(values, list):
        labels = schema.get("enumNames") or values
        choices = tuple((str(label), str(value)) for label, value in zip(labels, values, strict=False))
    elif schema.get("type") not in _PLAIN:
        raise ToolError(f"its server asks the person for {name!r}, whose type cannot be asked here")
    if len(choices) > MAX_CHOICES or any(len(label) > MAX_CHOICE_CHARS for label, _ in choices):
        raise ToolError(f"its server asks the person to choose for {name!r} among more than can be shown")
    return choices
