"""What the two wire formats have in common: how a request is written down, and how a stream is read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gateway.agent.model import ChatMessage, ModelRequest
from gateway.tools.spec import ToolCall

Json = dict[str, Any]
# `withheld`: the provider declined; `broken`: it says itself that the answer is not whole.
Finish = Literal["stop", "length", "withheld", "broken"]
# An assistant's message as the provider sent it, with its hidden reasoning; None where only our words are left of it.
Remembered = Callable[[ChatMessage], Json | None]


_MOST_TOKENS = 1_000_000_000  # more is a mistake, and what is summed up of it must fit into a column


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError("JSON has no such number")
    return value


_decode = json.JSONDecoder(parse_float=_finite, parse_constant=_finite).decode


class StreamFailed(Exception):
    """The provider reports an error in the middle of its answer; `error` is what it says of it."""

    def __init__(self, error: object) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True, kw_only=True)
class CallSaid:
    """A tool call as far as it has come; `extra` is of the provider, and given back as it is."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: object = None


@dataclass(slots=True, kw_only=True)
class Tokens:
    """What a call was counted as; `cached` and `written` are parts of `input`, at prices of their own."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self.cached = min(self.cached, self.input)  # no part is more than the whole, whatever a server says
        self.written = min(self.written, self.input - self.cached)


@dataclass(slots=True, kw_only=True)
class Said:
    """What a stream has said so far.

    Attributes:
        finish: why it ended; None while nothing said so.
        is_whole: it came to its end. A stream that a proxy cut off cleanly looks the same but for this.
        refusal: why the provider declined, in its words.
    """

    text: list[str] = field(default_factory=list)
    calls: list[CallSaid] = field(default_factory=list)
    finish: Finish | None = None
    is_whole: bool = False
    refusal: str = ""
    tokens: Tokens = field(default_factory=Tokens)


class Reader(Protocol):
    """Reads one stream."""

    said: Said

    def read(self, event: Json) -> str | None:
        """The text that an event adds, empty for reasoning and calls; None where it shows no progress.

        Raises:
            StreamFailed: it is an error.
        """

    def end(self) -> str:
        """The text that was held back until it was clear that it is one."""

    def handed_back(self, calls: tuple[ToolCall, ...]) -> Json:
        """The message as the provider wants it back with the results of its calls, which have the ids of `calls`."""


class WireFormat(Protocol):
    """How one vendor's requests and answers look."""

    @property
    def path(self) -> str:
        """Below the address of the endpoint."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Of every request, besides the key."""

    def body(self, request: ModelRequest, remembered: Remembered) -> bytes:
        """The request as JSON."""

    def reader(self) -> Reader:
        """For one answer."""


def count(value: object) -> int:
    """A number of tokens; 0 for whatever else a server sends."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else 0


def text_of(value: object) -> str:
    """A string, or nothing."""
    return value if isinstance(value, str) else ""


def arguments_object(arguments: str) -> Json:
    """The arguments of a call as the object that both formats want back.

    What a model wrote wrongly is handed back inside one: servers refuse a request, or fail, over anything else. So is
    what JSON has no number for, such as NaN, which Python would write out again.
    """
    try:
        value = _decode(arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}
