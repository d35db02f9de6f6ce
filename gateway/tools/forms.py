"""What the service behind a tool wants to know of the person before a call goes on.

Its words are those of others. The answer goes to that service alone: no model sees it, and no session keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from gateway.tools.schema import is_valid

Value = str | int | float | bool | None
LEAVE_OUT = "Leave out"
AS_PROPOSED = "As proposed"
MAX_PROPOSED_CHARS = 200
_FORMATS = {
    "email": "a mail address",
    "uri": "an address such as https://example.org",
    "date": "a date such as 2026-11-27",
    "date-time": "a time such as 2026-11-27T08:00:00Z",
}


class AnswerWrong(Exception):
    """It does not fit; the text says what is expected, and nothing of what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One thing that is asked.

    Attributes:
        request: the service's own key of the form that it belongs to.
        name: of the field; empty where the person only agrees.
        words: of the service.
        schema: of a plain type.
        choices: what can be chosen, each with its value; empty where anything may be written.
    """

    request: str
    name: str
    words: str
    schema: Mapping[str, Any]
    is_required: bool = True
    choices: tuple[tuple[str, Value], ...] = ()

    @property
    def proposed(self) -> tuple[str, Value] | None:
        """What the service proposes, as it is shown and as it is sent; None: nothing that fits and can be shown."""
        value = self.schema.get("default")
        if not isinstance(value, str | int | float) or not is_valid(self.schema, value):
            return None
        if self.choices:
            return next((choice for choice in self.choices if choice[1] == value), None)
        label = str(value).strip()
        return (label, value) if 0 < len(label) <= MAX_PROPOSED_CHARS else None

    @property
    def offered(self) -> tuple[tuple[str, Value], ...]:
        """The choices, or what is proposed instead of them, and one to leave it out where that is allowed."""
        proposed = () if self.choices or self.proposed is None else ((AS_PROPOSED, self.proposed[1]),)
        return (*self.choices, *proposed, *(() if self.is_required else ((LEAVE_OUT, None),)))

    @property
    def expected(self) -> str:
        """What fits, in words."""
        if self.choices:
            return f"one of: {', '.join(label for label, _ in self.offered)}"
        return " or ".join([self._expected_type, *(f'"{label}"' for label, _ in self.offered)])

    @property
    def _expected_type(self) -> str:
        schema = self.schema
        match schema.get("type"):
            case "string":
                text = _FORMATS.get(str(schema.get("format")), "a text")
                limits = (("minLength", "of at least {} characters"), ("maxLength", "of at most {} characters"))
            case kind:
                text = "a whole number" if kind == "integer" else "a number"
                limits = (("minimum", "of at least {}"), ("maximum", "of at most {}"))
        return " ".join([text, " and ".join(how.format(schema[key]) for key, how in limits if key in schema)]).strip()

    def read(self, text: str) -> Value:
        """The value that a text stands for: a choice by its number or its words, or the proposal; None: it is left out.

        Raises:
            AnswerWrong: it stands for none.
        """
        text = text.strip()
        named = [value for label, value in self.offered if text.casefold() == label.casefold()]
        if named:
            return named[0]
        if self.proposed is not None and text.casefold() == AS_PROPOSED.casefold():
            return self.proposed[1]
        if self.choices:
            if text.isascii() and text.isdecimal() and len(text) < 4 and 0 < int(text) <= len(self.offered):
                return self.offered[int(text) - 1][1]
            raise AnswerWrong(self.expected)
        value = self._typed(text)
        if not is_valid(self.schema, value):
            raise AnswerWrong(self.expected)
        return value

    def _typed(self, text: str) -> Value:
        try:
            match self.schema.get("type"):
                case "integer":
                    return int(text)
                case "number":
                    return _finite(float(text))
        except ValueError:
            raise AnswerWrong(self.expected) from None
        return text


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("not a value of JSON")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a call takes along when it is made again.

    Attributes:
        responses: by the service's own keys, the fields of each form; None: the person declined.
        state: what the service wants to have back as it was.
        is_live: the service waits within the call, and the state says which.
    """

    responses: Mapping[str, Mapping[str, Value] | None]
    state: str | None
    is_live: bool = False

    def dump(self) -> str:
        """As JSON, for `load`."""
        return _GIVEN.dump_json(self).decode()

    @staticmethod
    def load(text: str) -> Given:
        """What `dump` wrote."""
        return _GIVEN.validate_json(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a call waits for.

    Attributes:
        server: who asks, by its name in the configuration.
        pin: of the tool.
        arguments: of the call, JSON.
        state: what the service wants to have back with the answer.
        within_s: how long the service waits; None: as long as that takes.
    """

    server: str
    tool: str
    pin: str
    arguments: str
    points: tuple[Point, ...]
    state: str | None = None
    within_s: float | None = None

    def dump(self) -> str:
        """As JSON, for `load`."""
        return _WANTED.dump_json(self).decode()

    @staticmethod
    def load(text: str) -> Wanted:
        """What `dump` wrote."""
        return _WANTED.validate_json(text)

    def given(self, answers: Sequence[Value] | None) -> Given:
        """The answers to all points in their order; None: the person declined."""
        is_live = self.within_s is not None
        if answers is None:
            declined = {point.request: None for point in self.points}
            return Given(responses=declined, state=self.state, is_live=is_live)
        forms: dict[str, dict[str, Value]] = {point.request: {} for point in self.points}
        for point, value in zip(self.points, answers, strict=True):
            if point.name and value is not None:
                forms[point.request][point.name] = value
        return Given(responses=forms, state=self.state, is_live=is_live)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that a person has not answered, or not whole.

    Attributes:
        lane: of the direct chat in which it was asked; there is one at a time.
        user_id: who may answer.
        turn_id: of the turn that asked last; its buttons name it.
        answers: to the first points.
    """

    lane: int
    user_id: str
    turn_id: str
    wanted: Wanted
    asked_at: datetime
    expires_at: datetime
    answers: tuple[Value, ...] = ()

    @property
    def point(self) -> Point:
        """What is asked now."""
        return self.wanted.points[len(self.answers)]


_WANTED, _GIVEN = TypeAdapter(Wanted), TypeAdapter(Given)
