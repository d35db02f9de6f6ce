"""What happens on the way of a message, said once, for all who want to know: the log, the metrics, the traces.

The core puts a span around each piece of work. Metrics and traces are listeners to the same spans, so they cannot
disagree. Where nothing listens, which is the default, a span costs one look into a dictionary.

No fact holds what people wrote, who they are, or a secret. A fact that becomes a label has few values.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

import structlog

from gateway.messages import ConversationRef

Fact = str | int | float | bool
# Conversations are told apart in the log, and cannot be found out by trying numbers: the key is gone with the process.
_KEY = secrets.token_bytes(16)


class Listener(Protocol):
    """Told of spans and events. Must not raise, and must not wait."""

    def began(self, span: Span) -> None:
        """A piece of work begins, in the task that does it."""

    def ended(self, span: Span) -> None:
        """It has ended, well or not, in the same task."""

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Something without a duration. May come from another thread."""


class Span:
    """A piece of work between two moments; a context manager.

    Attributes:
        name: such as `outbox.send`; all of them stand in `docs/health.md`.
        turn_id: of the message that it is for; None where the span around it knows.
        began_at: by the wall clock.
        duration_s: known when it has ended.
        error: the class of the exception that ended it.
    """

    __slots__ = ("_around", "_began_s", "began_at", "duration_s", "error", "facts", "name", "turn_id")

    def __init__(
        self, name: str, facts: dict[str, Fact], *, turn_id: str | None = None, began_at: datetime | None = None
    ) -> None:
        self.name = name
        self.facts = facts
        self.turn_id = turn_id
        self.began_at = began_at or datetime.now(UTC)
        self.duration_s = 0.0
        self.error: str | None = None
        self._began_s = time.monotonic()
        self._around: Token[Span | None] | None = None

    def __enter__(self) -> Self:
        self._around = _innermost.set(self)
        for listener in _heard_by(self.name):
            listener.began(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        if self._around is not None:
            _innermost.reset(self._around)
        self.duration_s = time.monotonic() - self._began_s
        if kind is not None:
            self.error = kind.__name__
        for listener in reversed(_heard_by(self.name)):
            listener.ended(self)


class _Unheard(Span):
    """Stands in for every span while nothing listens."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


_listeners: tuple[Listener, ...] = ()  # to everything
_listeners_to: dict[str, tuple[Listener, ...]] = {}  # besides, to the spans of one name
_innermost: ContextVar[Span | None] = ContextVar("innermost_span", default=None)
_UNHEARD = _Unheard("", {})


def span(name: str, *, turn_id: str | None = None, **facts: Fact) -> Span:
    """A piece of the work that the span around it is about; `turn_id` where there may be none around."""
    return Span(name, facts, turn_id=turn_id) if _listeners or name in _listeners_to else _UNHEARD


def note(**facts: Fact) -> None:
    """Add to the innermost span what became known meanwhile."""
    if (around := _innermost.get()) is not None:
        around.facts |= facts


@contextmanager
def stage(name: str, turn_id: str, conversation: ConversationRef, **facts: Fact) -> Iterator[None]:
    """One stage of a message's way. Every line that is logged meanwhile carries the turn's id."""
    ids = {"turn_id": turn_id, "channel": conversation.channel, "conversation": opaque(conversation)}
    about = span(name, turn_id=turn_id, channel=conversation.channel, **facts)
    with structlog.contextvars.bound_contextvars(**ids), about:
        yield


def waited(name: str, turn_id: str, since: datetime, **facts: Fact) -> None:
    """A stage that ends now and in which nothing was done; `since` is from the store."""
    if _listeners:
        waiting = Span(name, facts, turn_id=turn_id, began_at=since)
        for listener in _listeners:
            listener.began(waiting)
        waiting.duration_s = max(0.0, (datetime.now(UTC) - since).total_seconds())  # the clock may have been set back
        for listener in reversed(_listeners):
            listener.ended(waiting)


def happened(name: str, **facts: Fact) -> None:
    """Something without a duration of its own; from any thread."""
    for listener in _listeners:
        listener.happened(name, facts)


@contextmanager
def listening(listener: Listener, *, only: str | None = None) -> Iterator[None]:
    """Tell the listener of everything in this process, or of the spans of one name, for as long as the block lasts."""
    global _listeners  # noqa: PLW0603 (one for the process, as a logger is)
    if only is None:
        _listeners = (*_listeners, listener)
    else:
        _listeners_to[only] = (*_listeners_to.get(only, ()), listener)
    try:
        yield
    finally:
        if only is None:
            _listeners = tuple(other for other in _listeners if other is not listener)
        else:
            left = tuple(other for other in _listeners_to.pop(only) if other is not listener)
            _listeners_to.update({only: left} if left else {})


def _heard_by(name: str) -> tuple[Listener, ...]:
    return (*_listeners, *_listeners_to.get(name, ()))


def opaque(conversation: ConversationRef) -> str:
    """Tells conversations apart in the log of one run, and not who talks in them."""
    name = "\0".join((conversation.channel, conversation.conversation, conversation.thread or ""))
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6, key=_KEY).hexdigest()
