"""The agent loop: model, tools, model again, until there is an answer. One loop for all channels.

The whole state of a turn is its list of messages: the next step follows from the last of them. So a turn that was
interrupted goes on from what was saved, calls no tool again whose result is there, and repeats at most a model call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count
from typing import Any, Protocol

from gateway.agent.model import (
    ChatMessage,
    Model,
    ModelReply,
    ModelRequest,
    ModelUsage,
    Spender,
    StreamRestarted,
    TextDelta,
    ToolCall,
)
from gateway.agent.tools import Toolbox, ToolContext
from gateway.domain.visible import without_hidden
from gateway.errors import ModelRefused
from gateway.protocols import MemoryUpdate
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import note, span

INTERRUPTED = (
    "Error: this call was interrupted, and may or may not have taken effect. Do not repeat it before you have "
    "found out, or asked the person."
)
CANCELLED = "Cancelled: the answer was ended early."


class StepStore(Protocol):
    """Where an unfinished turn leaves its steps."""

    async def save_steps(self, turn_id: str, steps: str, *, is_durable: bool) -> bool:
        """Keep the steps of an unfinished turn, in place of what was kept before.

        Returns whether the person has said stop, where another process may have heard it.
        """

    async def begin_tool(self, turn_id: str, call_id: str, name: str) -> None:
        """Note, durably, that a tool is about to act."""

    async def end_tool(self, turn_id: str, call_id: str, result: str) -> None:
        """Note, durably, what it returned."""

    async def tool_outcome(self, turn_id: str, call_id: str) -> tuple[bool, str | None]:
        """Whether the tool was begun, and what it returned; None: it was interrupted."""


@dataclass(slots=True, kw_only=True)
class AgentState:
    """How far a turn has come.

    Attributes:
        messages: what the turn added after the person's message.
        partial: the text of the model call that is running, in pieces.
        sources: what tools have shown of others' words, in words for people; the turn is tainted by them.
    """

    messages: list[ChatMessage] = field(default_factory=list)
    updates: list[MemoryUpdate] = field(default_factory=list)
    usage: list[ModelUsage] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All that the agent has said in this turn so far."""
        said = [message.text for message in self.messages if message.role == "assistant"]
        return "\n\n".join(text.strip() for text in (*said, "".join(self.partial)) if text.strip())

    @property
    def open_calls(self) -> list[ToolCall]:
        """Tool calls without a result, in order."""
        answered = {message.tool_call_id for message in self.messages if message.role == "tool"}
        return [call for message in self.messages for call in message.tool_calls if call.id not in answered]

    def dump(self) -> str:
        """As JSON, for `load`."""
        return json.dumps(
            {
                "messages": [_as_kept(message) for message in self.messages],
                "updates": [asdict(update) for update in self.updates],
                "usage": [asdict(usage) for usage in self.usage],
                "sources": self.sources,
            },
            ensure_ascii=False,
        )

    @classmethod
    def load(cls, steps: str | None) -> AgentState:
        """What `dump` wrote; a new state for None."""
        if steps is None:
            return cls()
        kept: dict[str, list[Any]] = json.loads(steps)
        return cls(
            messages=[
                ChatMessage(**{**message, "tool_calls": tuple(ToolCall(**call) for call in message["tool_calls"])})
                for message in kept["messages"]
            ],
            updates=[MemoryUpdate(**update) for update in kept["updates"]],
            usage=[ModelUsage(**usage) for usage in kept["usage"]],
            sources=kept.get("sources", []),
        )

    def stop(self) -> None:
        """Close the state after it was ended early: what was said stays, every open call is answered."""
        text = "".join(self.partial)
        self.partial.clear()
        if text.strip():
            self.messages.append(ChatMessage(role="assistant", text=text))
        for call in self.open_calls:
            self.messages.append(ChatMessage(role="tool", text=CANCELLED, tool_call_id=call.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWork:
    """What a turn gives to the loop.

    Attributes:
        history: the session's messages that fit, ending with the person's new one.
        steps_limit: model calls in this turn, at most.
        on_text: called whenever `AgentState.text` has changed.
        on_stop: called when the person was found to have said stop.
    """

    turn_id: str
    model: Model
    system: str
    history: Sequence[ChatMessage]
    toolbox: Toolbox
    context: ToolContext
    steps_limit: int
    max_output_tokens: int | None
    on_text: Callable[[], None]
    spender: Spender = field(default_factory=Spender)
    on_stop: Callable[[], object] = lambda: None


class AgentLoop:
    """Runs turns."""

    def __init__(self, steps: StepStore) -> None:
        self._steps = steps

    async def run(self, work: AgentWork, state: AgentState) -> None:
        """Bring `state` to its end: the last message is an answer without tool calls.

        Cancelling leaves `state` as far as it came; `AgentState.stop` closes it.

        Raises:
            ModelUnavailable: no answer now. Nothing of the steps so far is lost.
            ModelRefused: never an answer.
        """
        while True:
            if state.open_calls:
                for call in state.open_calls:
                    with span("tool.call", tool=call.name if call.name in work.toolbox.names else "unknown"):
                        await self._call(call, work, state)
                await self._save(work, state, is_durable=False)
            elif state.messages and state.messages[-1].role == "assistant":
                return
            else:
                with span("model.call", model=work.model.name, purpose="answer"):
                    await self._ask(work, state)
                    note(input_tokens=state.usage[-1].input_tokens, output_tokens=state.usage[-1].output_tokens)
                if state.open_calls:
                    await self._save(work, state, is_durable=not self._is_repeatable(work, state))

    async def _ask(self, work: AgentWork, state: AgentState) -> None:
        """One model call. The last one that is allowed may not call tools, so that it has to answer."""
        is_last = len(state.usage) + 1 >= work.steps_limit
        request = ModelRequest(
            system=work.system,
            messages=(*work.history, *state.messages),
            tools=work.toolbox.specs,
            may_call_tools=not is_last,
            max_output_tokens=work.max_output_tokens,
            spender=work.spender,
        )
        state.partial.clear()
        async for event in work.model.stream(request):
            match event:
                case TextDelta(text=text):
                    state.partial.append(text)
                case StreamRestarted():
                    state.partial.clear()
                case ModelReply(message=message, usage=usage):
                    state.partial.clear()
                    said = _without_calls(message) if is_last else _with_fresh_ids(message, request.messages)
                    state.messages.append(said)
                    state.usage.append(usage)
            work.on_text()
        if not state.messages or state.messages[-1].role != "assistant":
            raise ModelRefused(f"the model {work.model.name} ended its answer without a result")

    async def _call(self, call: ToolCall, work: AgentWork, state: AgentState) -> None:
        """One tool call; one that acts on the world is journalled around, and never made twice."""
        if work.toolbox.is_repeatable(call.name):
            result = await work.toolbox.call(call, work.context)
        else:
            was_begun, kept = await self._steps.tool_outcome(work.turn_id, call.id)
            if was_begun:
                result = kept if kept is not None else INTERRUPTED
            else:
                await self._steps.begin_tool(work.turn_id, call.id, call.name)
                result = await work.toolbox.call(call, work.context)
                await self._steps.end_tool(work.turn_id, call.id, result)
        if work.toolbox.is_untrusted(call.name):
            state.sources.append(f"what {call.name} returned")
            result = without_hidden(result)
        state.messages.append(ChatMessage(role="tool", text=result, tool_call_id=call.id))

    async def _save(self, work: AgentWork, state: AgentState, *, is_durable: bool) -> None:
        if await self._steps.save_steps(work.turn_id, state.dump(), is_durable=is_durable):
            work.on_stop()
        reach("turn.steps_saved")

    @staticmethod
    def _is_repeatable(work: AgentWork, state: AgentState) -> bool:
        return all(work.toolbox.is_repeatable(call.name) for call in state.open_calls)


def _as_kept(message: ChatMessage) -> dict[str, Any]:
    """Without images: only a person's message has any, and that is not among the steps."""
    kept = ("role", "text", "tool_call_id")
    calls = [asdict(call) for call in message.tool_calls]
    return {**{name: getattr(message, name) for name in kept}, "tool_calls": calls}


def _without_calls(message: ChatMessage) -> ChatMessage:
    text = message.text.strip() or "I stopped here: this took more steps than one answer is allowed."
    return ChatMessage(role="assistant", text=text)


def _with_fresh_ids(message: ChatMessage, earlier: Sequence[ChatMessage]) -> ChatMessage:
    """Give a call another id where the model gave none or one that it used before, as some local servers do.

    An id must be unique in the whole request: the journal of tools goes by it, and some providers refuse doubles.
    """
    if not message.tool_calls:
        return message
    taken = {call.id for said in earlier for call in said.tool_calls} | {""}
    calls: list[ToolCall] = []
    for call in message.tool_calls:
        numbered = (f"{call.id or 'call'}.{number}" for number in count(2))
        fresh = next(name for name in chain([call.id], numbered) if name not in taken)
        taken.add(fresh)
        calls.append(replace(call, id=fresh))
    return replace(message, tool_calls=tuple(calls))
