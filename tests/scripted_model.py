"""A model that says what a test wrote down for it: text, tool calls, errors, and silences that the test ends."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from gateway.agent.model import (
    ChatMessage,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelUsage,
    StreamRestarted,
    TextDelta,
)
from gateway.tools.spec import ToolCall


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


ORDER = re.compile(r"(?:REMEMBER|CALL)<<(\w+)\|([^<>]*?)>>")


class ObeyingModel:
    """Does whatever any text that it is shown tells it to, wherever that stands: the worst that an injection can meet.

    `REMEMBER<<store|text>>` makes it add the text to its memory, `CALL<<tool|arguments>>` makes it call a tool; each
    order once in a turn. What stands in `join` is left out of arguments: so an order can have a word made of halves.
    """

    name = "obeying"
    join = ""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        last = max(number for number, said in enumerate(request.messages) if said.role == "user")
        done = {(made.name, made.arguments) for said in request.messages[last:] for made in said.tool_calls}
        shown = "\n".join([request.system, *(said.text for said in request.messages)])
        obeyed = (_obeyed(order, self.join) for order in ORDER.finditer(shown))
        calls = [made for made in obeyed if (made.name, made.arguments) not in done]
        calls = list({(made.name, made.arguments): made for made in calls}.values())
        tools = {tool.name for tool in request.tools} if request.may_call_tools else set()
        message = ChatMessage(
            role="assistant",
            text="obeyed",
            tool_calls=tuple(replace(made, id=f"c{n}") for n, made in enumerate(calls) if made.name in tools),
        )
        yield ModelReply(message=message, usage=ModelUsage(model=self.name, input_tokens=1, output_tokens=1))


def _obeyed(order: re.Match[str], join: str) -> ToolCall:
    if order[0].startswith("CALL"):
        return call(order[1], order[2].replace("'", '"').replace('\\"', '"').replace(join or "\0", ""))
    return call("update_memory", json.dumps({"action": "add", "store": order[1], "content": order[2]}))
