"""The agent loop: model, tools, model again, until there is an answer. One loop for all channels.

The whole state of a turn is its list of messages: the next step follows from the last of them. So a turn that was
interrupted goes on from what was saved, calls no tool again whose result is there, and repeats at most a model call.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice
from typing import Any, Protocol

import structlog

from gateway.agent.addresses import was_read
from gateway.agent.model import (
    ChatMessage,
    Model,
    ModelReply,
    ModelRequest,
    Purpose,
    Spender,
    StreamRestarted,
    TextDelta,
)
from gateway.agent.said import with_fresh_ids, without_calls
from gateway.agent.state import AgentState
from gateway.approvals.approval import MOST_OF_TURN, Approval, canonical
from gateway.approvals.asking import TOO_MANY_WAIT, Asking, NoRoom
from gateway.domain.personalities.files import Thinking
from gateway.errors import ModelRefused
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import note, span
from gateway.tools.contract import DELEGATE, Called, Tool, ToolContext
from gateway.tools.finding import FIND_TOOLS, found_in
from gateway.tools.forms import Given, Wanted
from gateway.tools.journal import MAX_ARGUMENTS_CHARS, CallKey, CallRow, ToolJournal
from gateway.tools.resting import Resting
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Prepared, Toolbox, struck, uncertain

_log = structlog.get_logger(__name__)

NOT_APPROVED = Called(outcome="refused", text="Error: this was not done; its approval does not hold any more.")
WAITS = (
    "This was not done. It waits for the person's yes, number {}, which is asked for below your answer. Say what will "
    "happen then, and do not claim that it is done."
)
TOO_MANY = Called(
    outcome="refused", text="Error: one answer may make no more calls than these. Answer with what you have."
)
NOT_ASKED = (
    "Error: this would wait for the person's yes, and a sub-agent cannot ask for one. Do without it, and say in your "
    "answer what you did not do."
)
MOST_LINE_CHARS = 200
"""Of what is shown of a call while it runs."""
MOST_AT_ONCE = 4
"""Calls of one step that only look at something run together, so many at a time."""


class StepStore(ToolJournal, Protocol):
    """Where an unfinished turn leaves its steps."""

    async def save_steps(self, turn_id: str, steps: str, *, is_durable: bool) -> bool:
        """Keep the steps of an unfinished turn, in place of what was kept before.

        Returns whether the person has said stop, where another process may have heard it.
        """


Run = Callable[["AgentWork", AgentState], Awaitable[None]]
"""As `AgentLoop.run`."""


@dataclass(frozen=True, slots=True)
class Within:
    """The turn that a sub-agent works for."""

    work: AgentWork
    state: AgentState


class Delegating(Protocol):
    """Lets sub-agents do tasks of one turn."""

    async def report(self, run: Run, call_id: str, turn: Within, task: str, tools: Sequence[str]) -> str:
        """What comes of a task; a call that is made again goes on from what was saved.

        Raises:
            ToolError: the tools are none that a sub-agent may have, or the model refuses.
            ToolUnavailable: sub-agents have a model of their own, and it does not answer now.
            ModelUnavailable: no answer now of the turn's own model, or no room in a budget.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWork:
    """What a turn gives to the loop.

    Attributes:
        history: the session's messages that fit, ending with the person's new one.
        steps_limit: model calls in this turn, at most.
        calls_limit: calls of tools in this turn, at most; what comes beyond is refused.
        on_text: called whenever `AgentState.text` has changed.
        on_stop: called when the person was found to have said stop.
        asking: decides which calls wait for a yes; None: none does.
        approval_id: of the yes under which the turn makes one call.
        pin: of the tool as it was when that was asked for.
        found: names of tools that were found earlier in the session.
        given: what the first call of the turn was to wait for; it had its yes before.
        late: what of the prompt is chosen for this one message.
        purpose: of the calls of the model.
        thinking: as in `ModelRequest`.
        delegating: None where the turn has no sub-agents, and for a sub-agent itself.
        within: None for a turn itself.
        returned: by tool, what it returned before, for tools that do nothing twice; see `shown_of`.
    """

    turn_id: str
    model: Model
    system: str
    history: Sequence[ChatMessage]
    toolbox: Toolbox
    context: ToolContext
    steps_limit: int
    calls_limit: int
    max_output_tokens: int | None
    on_text: Callable[[], None]
    spender: Spender = field(default_factory=Spender)
    on_stop: Callable[[], object] = lambda: None
    asking: Asking | None = None
    approval_id: int | None = None
    pin: str | None = None
    found: Sequence[str] = ()
    given: Given | None = None
    returned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    late: str = ""
    purpose: Purpose = "answer"
    thinking: Thinking | None = None
    delegating: Delegating | None = None
    within: Within | None = None

    def turn(self, state: AgentState) -> Within:
        """The turn, of which `state` is its own or that of one of its sub-agents."""
        return self.within or Within(self, state)

    def shown_of(self, tool: str) -> Sequence[str]:
        """What a tool returned before, and this model is shown; that of a sub-agent has another conversation."""
        shown = {said.text for said in self.history}
        return [text for text in self.returned.get(tool, ()) if text in shown or text in self.system]

    @property
    def approved_call(self) -> str | None:
        """The id of the call that has its yes."""
        return None if self.approval_id is None else approved_call_id(self.approval_id)


class AgentLoop:
    """Runs turns."""

    def __init__(self, steps: StepStore) -> None:
        self._steps = steps
        self._resting = Resting()

    async def run(self, work: AgentWork, state: AgentState) -> None:
        """Bring `state` to its end: the last message is an answer without tool calls.

        Cancelling leaves `state` as far as it came; `AgentState.stop` closes it.

        Raises:
            ModelUnavailable: no answer now. Nothing of the steps so far is lost.
            ModelRefused: never an answer.
        """
        while True:
            if state.open_calls:
                await self._call_all(work, state)
                await self._save(work, state, is_durable=False)
            elif state.messages and state.messages[-1].role == "assistant":
                return
            else:
                with span("model.call", model=work.model.name, purpose=work.purpose):
                    await self._ask(work, state)
                    note(**state.usage[-1].facts)
                if state.open_calls or work.within is not None:
                    await self._save(work, state, is_durable=not self._is_repeatable(work, state))

    async def _ask(self, work: AgentWork, state: AgentState) -> None:
        """One model call. The last one that is allowed may not call tools, so that it has to answer."""
        is_last = len(state.usage) + 1 >= work.steps_limit
        request = ModelRequest(
            system=f"{work.system}\n\n{work.late}" if work.late else work.system,
            late_chars=len(work.late),
            messages=(*work.history, *state.messages),
            tools=work.toolbox.specs_with(_found(work, state)),
            may_call_tools=not is_last,
            max_output_tokens=work.max_output_tokens,
            purpose=work.purpose,
            thinking=work.thinking,
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
                    earlier = (*request.messages, *work.turn(state).state.said)
                    said = without_calls(message) if is_last else with_fresh_ids(message, earlier)
                    state.messages.append(said)
                    state.usage.append(usage)
            work.on_text()
        if not state.messages or state.messages[-1].role != "assistant":
            raise ModelRefused(f"the model {work.model.name} ended its answer without a result")

    async def _call_all(self, work: AgentWork, state: AgentState) -> None:
        """The calls of one step: neighbours that only look at something together, all others one after the other."""
        for may_run_together, calls in groupby(state.open_calls, lambda call: work.toolbox.is_parallel(call.name)):
            at_once = MOST_AT_ONCE if may_run_together else 1
            while some := tuple(islice(calls, at_once)):
                await _together(self._call(call, work, state) for call in some)
                for call in some:
                    state.take(call)

    async def _call(self, call: ToolCall, work: AgentWork, state: AgentState) -> None:
        """One tool call; one that acts on the world is journalled around, and never made twice."""
        tool = work.toolbox.find(call.name)
        given = work.given if call == state.all_calls[0] else None
        can_be_asked = work.context.can_be_asked and state.wanted is None and not state.choosing
        returned = (*work.shown_of(call.name), *state.returned(call.name))
        context = replace(work.context, call_id=call.id, given=given, can_be_asked=can_be_asked, returned=returned)
        context = self._shown(call, tool, work, state, context)
        with span("tool.call", tool="unknown" if tool is None else tool.name):
            began_at = datetime.now(UTC)
            is_too_many = call in state.all_calls[_most_calls(work, state) :]
            refused = TOO_MANY if is_too_many else self._resting.refusal(call.name)
            arguments = struck(call.arguments, context)
            if arguments != call.arguments:
                _log.warning("secret_in_arguments", tool=call.name)
            made = refused or work.toolbox.prepare(replace(call, arguments=arguments))
            is_approved = call.id == work.approved_call
            if isinstance(made, Prepared):
                made = _as_approved(call, made, work) if is_approved else await made.settled(context)
            if isinstance(made, Prepared):
                made = await self._unless_it_waits(call, made, work, state)
            is_journalled = isinstance(made, Prepared) and (is_approved or not made.tool.is_repeatable)
            if isinstance(made, Called):
                called = made
            elif is_journalled:
                called = await self._act(call, made, work, state, context)
            else:
                called = await made.make(context)
            work.turn(state).state.doing.pop(call.id, None)
            state.ended[call.id] = called, None if is_journalled else _row(call, tool, work, began_at, called)
            state.rested += [call.name] if self._resting.note(call.name, called) else []
            note(outcome=called.outcome)

    def _shown(
        self, call: ToolCall, tool: Tool | None, work: AgentWork, state: AgentState, context: ToolContext
    ) -> ToolContext:
        """The context of a call that says what it does, and that may have a sub-agent work."""
        turn = work.turn(state)
        number = next((at for at, agent in enumerate(turn.state.delegated.values(), 1) if agent is state), 0)
        whose = f"Sub-agent {number}: " if number else ""

        def progress(line: str) -> None:
            turn.state.doing[call.id] = f"{whose}{' '.join(line.split())}"[:MOST_LINE_CHARS]
            turn.work.on_text()

        if number and tool is not None:
            progress(tool.name)
        if call.name != DELEGATE or work.delegating is None:
            return replace(context, progress=progress)
        return replace(context, progress=progress, delegate=partial(work.delegating.report, self.run, call.id, turn))

    @staticmethod
    async def _unless_it_waits(
        call: ToolCall, prepared: Prepared, work: AgentWork, state: AgentState
    ) -> Prepared | Called:
        """The call, if it is free or has its yes; else what the model is told of one that waits."""
        has_its_yes = call.id == work.approved_call or (work.given is not None and call == state.all_calls[0])
        if has_its_yes or work.asking is None:
            return prepared
        turn = work.turn(state)
        messages = (*turn.work.history, *turn.state.said)
        if work.within is not None:
            is_free = await work.asking.is_free(
                prepared,
                sources=(*work.context.read, *state.sources),
                was_read=partial(was_read, messages=messages, toolbox=turn.work.toolbox),
            )
            return prepared if is_free else Called(outcome="refused", text=NOT_ASKED)
        try:
            question = await work.asking.question(
                call.id,
                prepared,
                sources=(*work.context.read, *state.sources),
                was_read=partial(was_read, messages=messages, toolbox=work.toolbox),
                waiting=len(state.approvals),
            )
        except NoRoom as error:
            return Called(outcome="refused", text=f"Error: {error}")
        if question is None:
            return prepared
        if len(state.approvals) >= MOST_OF_TURN:  # others of this step, which run beside it, were asked for meanwhile
            return Called(outcome="refused", text=f"Error: {TOO_MANY_WAIT}")
        state.approvals.append(question)
        return Called(outcome="waiting", text=WAITS.format(question.id), approval_id=question.id)

    async def _act(
        self, call: ToolCall, prepared: Prepared, work: AgentWork, state: AgentState, context: ToolContext
    ) -> Called:
        key = CallKey(turn_id=work.turn_id, call_id=call.id)
        kept = await self._steps.kept_call(key)
        if kept is None:
            if not await self._steps.begin_call(_row(call, prepared.tool, work, datetime.now(UTC))):
                return NOT_APPROVED if call.id == work.approved_call else uncertain("another worker has begun it")
            state.acting = call.id
            reach("tool.begun")
            called = await prepared.make(context)
            reach("tool.made")
        elif kept.outcome == "waiting" and kept.result is not None:
            return Called.asks(Wanted.load(kept.result))
        elif kept.outcome is not None and kept.result is not None:
            return Called(outcome=kept.outcome, text=kept.result, sources=kept.sources)
        elif prepared.tool.is_repeatable:
            called = await prepared.make(context)
        else:
            called = uncertain("it was interrupted")
        result = called.text if called.wanted is None else called.wanted.dump()
        await self._steps.end_call(key, called.outcome, result, called.sources)
        reach("tool.ended")
        state.acting = None
        return called

    async def _save(self, work: AgentWork, state: AgentState, *, is_durable: bool) -> None:
        turn = work.turn(state).state
        async with turn.saving:
            if await self._steps.save_steps(work.turn_id, turn.dump(), is_durable=is_durable):
                work.on_stop()
        if work.within is None:
            reach("turn.steps_saved")
        else:
            reach("delegate.steps_saved")

    @staticmethod
    def _is_repeatable(work: AgentWork, state: AgentState) -> bool:
        return all(work.toolbox.is_repeatable(call.name) for call in state.open_calls)


def _most_calls(work: AgentWork, state: AgentState) -> int:
    """How many calls one agent may make: those of the turn and of its other sub-agents leave it the rest."""
    turn = work.turn(state).state
    others = sum(len(agent.all_calls) for agent in (turn, *turn.delegated.values()) if agent is not state)
    return max(0, work.calls_limit - others)


def _found(work: AgentWork, state: AgentState) -> Sequence[str]:
    """Names of the tools that were found by now, in the order of their finding."""
    if not work.toolbox.findable:
        return ()
    searches = {call.id for call in state.all_calls if call.name == FIND_TOOLS.name}
    now = found_in(said.text for said in state.messages if said.tool_call_id in searches)
    return [*dict.fromkeys((*work.found, *now))]


def approved_call_id(approval_id: int) -> str:
    """The id of the call that is made under this yes."""
    return f"approval_{approval_id}"


def _as_approved(call: ToolCall, prepared: Prepared, work: AgentWork) -> Prepared | Called:
    """The call that has its yes, where it would be made now exactly as it was shown then."""
    is_same = prepared.tool.pin == work.pin and canonical(prepared.values) == call.arguments
    return prepared if is_same else NOT_APPROVED


def calling(approval: Approval) -> ChatMessage:
    """The step that makes a call which has its yes: exactly the stored one."""
    call = ToolCall(id=approved_call_id(approval.id), name=approval.tool, arguments=approval.arguments)
    return ChatMessage(role="assistant", text="", tool_calls=(call,))


def calling_again(wanted: Wanted, turn_id: str) -> ChatMessage:
    """The step that makes a call again whose question a person has answered; `turn_id` asked it."""
    number = hashlib.sha256(turn_id.encode()).hexdigest()[:16]
    call = ToolCall(id=f"answer_{number}", name=wanted.tool, arguments=wanted.arguments)
    return ChatMessage(role="assistant", text="", tool_calls=(call,))


def _row(
    call: ToolCall, tool: Tool | None, work: AgentWork, began_at: datetime, called: Called | None = None
) -> CallRow:
    scope, waits_for = work.context.scope, None if called is None else called.approval_id
    return CallRow(
        key=CallKey(turn_id=work.turn_id, call_id=call.id),
        user_id=scope.author_id or scope.user_id or "",
        personality_id=scope.personality_id,
        session_id=scope.session_id or "",
        tool=call.name,
        effect="act" if tool is None else tool.effect,
        arguments=struck(call.arguments, work.context)[:MAX_ARGUMENTS_CHARS],
        state="begun" if called is None else called.outcome,
        began_at=began_at,
        ended_at=None if called is None else datetime.now(UTC),
        approval_id=work.approval_id if call.id == work.approved_call else waits_for,
    )


async def _together(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them at once; where one raises, the others are ended first."""
    first, *others = calls
    if not others:
        return await first
    tasks = [asyncio.create_task(call) for call in (first, *others)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
