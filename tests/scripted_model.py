"""A model that says what a test wrote down for it: text, tool calls, errors, and silences that the test ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from gateway.agent.model import (
    ChatMessage,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelUsage,
    StreamRestarted,
    TextDelta,
    ToolCall,
)


@dataclass(slots=True)
class Hang:
    """A silence in the stream: sets `started`, then waits for `released`."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


Beat = str | ToolCall | StreamRestarted | Hang | BaseException
Step = Sequence[Beat]


def call(name: str, arguments: str = "{}", *, id: str = "call_1") -> ToolCall:  # noqa: A002
    """A tool call."""
    return ToolCall(id=id, name=name, arguments=arguments)


class ScriptedModel:
    """Follows the `Model` protocol.

    Attributes:
        requests: what it was asked, in order.
        is_replaying: the step is chosen by how far the turn has come, so that a call repeated after a crash gets the
            same answer; otherwise each call takes the next step, and an error is followed by what comes after it.
        is_cut: the last step of a stream is missing: it ends without a reply.
    """

    def __init__(self, *steps: Step | str, name: str = "scripted", is_replaying: bool = False, is_cut: bool = False):
        self._steps = [[step] if isinstance(step, str) else list(step) for step in steps]
        self._name = name
        self.requests: list[ModelRequest] = []
        self.is_replaying = is_replaying
        self.is_cut = is_cut

    @property
    def name(self) -> str:
        return self._name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        number = _said_since_the_person(request) if self.is_replaying else len(self.requests)
        self.requests.append(request)
        assert number < len(self._steps), f"{self._name} was asked {number + 1} times and has {len(self._steps)} steps"
        pieces: list[str] = []
        calls: list[ToolCall] = []
        for beat in self._steps[number]:
            match beat:
                case str():
                    pieces.append(beat)
                    yield TextDelta(text=beat)
                case ToolCall():
                    calls.append(beat)
                case StreamRestarted():
                    pieces.clear()
                    calls.clear()
                    yield beat
                case Hang():
                    beat.started.set()
                    await beat.released.wait()
                case BaseException():
                    raise beat
        if not self.is_cut:
            message = ChatMessage(role="assistant", text="".join(pieces), tool_calls=tuple(calls))
            usage = ModelUsage(model=self._name, input_tokens=10, output_tokens=len(pieces), cost_usd=0.01)
            yield ModelReply(message=message, usage=usage)


def _said_since_the_person(request: ModelRequest) -> int:
    roles = [message.role for message in request.messages]
    since = len(roles) - roles[::-1].index("user") if "user" in roles else 0
    return roles[since:].count("assistant")
