"""The agent loop: steps, tools, interruptions, and going on after a crash at any point."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.loop import TOO_MANY, AgentLoop, AgentWork
from gateway.agent.model import ChatMessage, Model, ModelUsage, StreamRestarted
from gateway.agent.state import CANCELLED, AgentState
from gateway.errors import ModelRefused, ModelUnavailable
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.tools.contract import Arguments, Outcome, Tool, ToolContext, ToolError
from gateway.tools.journal import CallKey, CallRow, KeptCall
from gateway.tools.own import UPDATE_MEMORY
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox, uncertain
from tests.scripted_model import Hang, ScriptedModel, call

TURN = "t_1"
WAIT_S = 60.0


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Disk:
    """What survives a crash, and the point at which the process dies: the `crash_at`-th time that it is passed.

    Attributes:
        forgets: saves that need not be durable are lost in the crash.
        paid: effects of the tool on the world.
    """

    crash_at: int = -1
    forgets: bool = False
    steps: str | None = None
    durable_steps: str | None = None
    tools: dict[str, KeptCall] = field(default_factory=dict)
    paid: list[str] = field(default_factory=list)
    points: int = 0

    def point(self) -> None:
        self.points += 1
        if self.points - 1 == self.crash_at:
            self.steps = self.durable_steps if self.forgets else self.steps
            raise Crash

    async def save_steps(self, turn_id: str, steps: str, *, is_durable: bool) -> bool:
        assert turn_id == TURN
        self.point()
        self.steps = steps
        if is_durable:
            self.durable_steps = steps
        self.point()
        return False

    async def begin_call(self, row: CallRow) -> bool:
        call_id = row.key.call_id
        assert (row.key.turn_id, row.tool, row.effect, row.state, row.ended_at) == (TURN, "pay", "act", "begun", None)
        assert call_id not in self.tools, "begun twice"
        saved = AgentState.load(self.durable_steps)
        assert call_id in {made.id for said in saved.messages for made in said.tool_calls}, (
            "begun before it was durable"
        )
        self.point()
        self.tools[call_id] = KeptCall(outcome=None, result=None)
        self.point()
        return True

    async def end_call(self, key: CallKey, outcome: Outcome, result: str, sources: Sequence[str] = ()) -> None:
        assert key.turn_id == TURN
        self.point()
        self.tools[key.call_id] = KeptCall(outcome=outcome, result=result, sources=tuple(sources))
        self.point()

    async def kept_call(self, key: CallKey) -> KeptCall | None:
        assert key.turn_id == TURN
        self.point()
        return self.tools.get(key.call_id)


class Payment(Arguments):
    to: str


class Nothing(Arguments):
    pass


def toolbox(disk: Disk, hang: Hang | None = None) -> Toolbox:
    async def pay(arguments: Payment, _context: ToolContext) -> str:
        disk.point()
        disk.paid.append(arguments.to)
        disk.point()
        return f"paid {arguments.to}"

    async def look(_arguments: Nothing, _context: ToolContext) -> str:
        disk.point()
        return "looked"

    async def fail(_arguments: Nothing, _context: ToolContext) -> str:
        raise ToolError("the shop is closed")

    async def wait(_arguments: Nothing, _context: ToolContext) -> str:
        assert hang is not None
        hang.started.set()
        await hang.released.wait()
        return "waited"

    return Toolbox(
        [
            Tool(name="pay", description="", arguments=Payment, call=pay, effect="act", shows_others=True),
            Tool(name="look", description="", arguments=Nothing, call=look, effect="read"),
            Tool(name="fail", description="", arguments=Nothing, call=fail, effect="read"),
            Tool(name="wait", description="", arguments=Nothing, call=wait, effect="read"),
            UPDATE_MEMORY,
        ]
    )


def work(model: Model, disk: Disk, state: AgentState, **changes: Any) -> AgentWork:
    scope = MemoryScope(personality_id="assistant", user_id="u_1", session_id="s_1", turn_id=TURN)
    given_: dict[str, Any] = {
        "turn_id": TURN,
        "model": model,
        "system": "You are a test.",
        "history": (ChatMessage(role="user", text="Go on."),),
        "toolbox": toolbox(disk),
        "context": ToolContext(scope=scope, role="member", memory=None, updates=state.updates),
        "steps_limit": 10,
        "calls_limit": 32,
        "max_output_tokens": None,
        "on_text": lambda: None,
    }
    return AgentWork(**{**given_, **changes})


async def run(model: Model, disk: Disk | None = None, state: AgentState | None = None, **changes: Any) -> AgentState:
    disk = disk or Disk()
    state = state or AgentState()
    await AgentLoop(disk).run(work(model, disk, state, **changes), state)
    return state


def results(state: AgentState) -> list[str]:
    return [message.text for message in state.messages if message.role == "tool"]


def assert_acceptable(messages: list[ChatMessage]) -> None:
    """What every provider asks for: unique ids, and each call answered right after the message that made it."""
    ids = [made.id for said in messages for made in said.tool_calls]
    assert len(ids) == len(set(ids))
    waiting: list[str] = []
    for said in messages:
        if said.role == "tool":
            assert waiting.pop(0) == said.tool_call_id
        else:
            assert not waiting, f"{waiting} have no result"
            waiting = [made.id for made in said.tool_calls]
    assert not waiting


# ---- steps and tools -------------------------------------------------------------------------------------------------


async def test_an_answer_without_tools_is_one_step_and_saves_nothing() -> None:
    disk = Disk()
    state = await run(ScriptedModel(["Good ", "day."]), disk)
    assert state.messages == [ChatMessage(role="assistant", text="Good day.")]
    assert [usage.cost_usd for usage in state.usage] == [0.01]
    assert disk.points == 0


async def test_a_tool_is_called_and_its_result_goes_back_to_the_model() -> None:
    model = ScriptedModel(["Let me see.", call("look")], "There it is.")
    state = await run(model)
    assert results(state) == ["looked"]
    assert model.requests[1].messages[-1] == ChatMessage(role="tool", text="looked", tool_call_id="call_1")
    assert state.text == "Let me see.\n\nThere it is."


async def test_parallel_calls_are_made_and_answered_in_order() -> None:
    disk = Disk()
    calls = [call("pay", json.dumps({"to": name}), id=name) for name in ("ada", "bob", "eve")]
    state = await run(ScriptedModel(calls, "Done."), disk)
    assert disk.paid == ["ada", "bob", "eve"]
    assert results(state) == ["paid ada", "paid bob", "paid eve"]
    assert_acceptable(state.messages)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (call("pay", '{"to": '), "the arguments are not valid"),
        (call("pay", '{"to": 7}'), "to: Input should be a valid string"),
        (call("pay", '{"to": "ada", "much": true}'), "much: Extra inputs are not permitted"),
        (call("pay", "[]"), "the arguments are not valid"),
        (call("fly"), "there is no tool 'fly'. There are: pay, look"),
        (call("fail"), "the shop is closed"),
    ],
)
async def test_a_wrong_call_is_told_to_the_model_which_may_try_again(wrong: ToolCall, told: str) -> None:
    disk = Disk()
    state = await run(ScriptedModel([wrong], [call("pay", '{"to": "ada"}')], "Done."), disk)
    assert results(state)[0].startswith("Error: ")
    assert told in results(state)[0]
    assert disk.paid == ["ada"]
    assert state.text == "Done."


async def test_the_last_step_that_is_allowed_gets_no_tools_and_has_to_answer() -> None:
    model = ScriptedModel([call("look")], [call("look")], [call("look")])
    state = await run(model, steps_limit=3)
    assert [request.may_call_tools for request in model.requests] == [True, True, False]
    assert state.messages[-1].tool_calls == ()
    assert "more steps than one answer is allowed" in state.text
    assert_acceptable(state.messages)


async def test_calls_beyond_the_limit_of_a_turn_are_refused() -> None:
    disk = Disk()
    pays = [call("pay", json.dumps({"to": str(number)}), id=f"c{number}") for number in range(4)]
    state = await run(ScriptedModel(pays[:3], pays[3:], "Done."), disk, calls_limit=2)
    assert disk.paid == ["0", "1"]
    assert results(state)[2:] == [TOO_MANY.text] * 2
    assert state.text == "Done."
    assert [row.state for row in state.calls] == ["refused", "refused"]


async def test_the_steps_limit_counts_the_steps_from_before_an_interruption() -> None:
    model = ScriptedModel([call("look", id="b")], "Enough.")
    before = AgentState(
        messages=[
            ChatMessage(role="assistant", text="", tool_calls=(call("look", id="a"),)),
            ChatMessage(role="tool", text="looked", tool_call_id="a"),
        ],
        usage=[ModelUsage(model="m", input_tokens=1, output_tokens=1)],
    )
    await run(model, state=before, steps_limit=3)
    assert [request.may_call_tools for request in model.requests] == [True, False]


@pytest.mark.parametrize("ids", [("same", "same", "same"), ("", "", ""), ("a.2", "a", "a"), ("a", "a", "a.2")])
async def test_repeated_and_missing_call_ids_are_made_unique(ids: tuple[str, ...]) -> None:
    disk = Disk()
    calls = [call("pay", json.dumps({"to": str(number)}), id=id_) for number, id_ in enumerate(ids)]
    state = await run(ScriptedModel(calls, [call("pay", '{"to": "3"}', id=ids[0])], "Done."), disk)
    assert disk.paid == ["0", "1", "2", "3"]
    assert_acceptable(state.messages)


async def test_a_call_id_of_an_earlier_turn_is_not_used_again() -> None:
    history = [
        ChatMessage(role="user", text="Look."),
        ChatMessage(role="assistant", text="", tool_calls=(call("look", id="call_0"),)),
        ChatMessage(role="tool", text="looked", tool_call_id="call_0"),
        ChatMessage(role="assistant", text="I looked."),
        ChatMessage(role="user", text="Again."),
    ]
    state = await run(ScriptedModel([call("look", id="call_0")], "Again."), history=history)
    assert_acceptable([*history, *state.messages])


async def test_memory_updates_are_gathered_in_the_order_given() -> None:
    calls = [
        call("update_memory", '{"action": "remove", "store": "user", "substring_match": "Berlin"}', id="a"),
        call("update_memory", '{"action": "add", "store": "user", "content": "Lives in Rome."}', id="b"),
    ]
    state = await run(ScriptedModel(calls, "Noted."))
    assert state.updates == [MemoryUpdate.remove("user", "Berlin"), MemoryUpdate.add("user", "Lives in Rome.")]


# ---- streams ---------------------------------------------------------------------------------------------------------


async def test_a_restarted_stream_clears_what_was_shown() -> None:
    shown: list[str] = []
    state = AgentState()
    model = ScriptedModel(["Wrong ", "start", StreamRestarted(), "Right", " one"])
    await run(model, state=state, on_text=lambda: shown.append(state.text))
    assert shown == ["Wrong", "Wrong start", "", "Right", "Right one", "Right one"]


async def test_a_stream_that_ends_without_a_reply_is_an_error_and_not_silence() -> None:
    with pytest.raises(ModelRefused, match="without a result"):
        await run(ScriptedModel("Half an ans", is_cut=True))
    with pytest.raises(ModelRefused, match="without a result"):
        await run(ScriptedModel([], is_cut=True))


async def test_a_model_that_goes_away_leaves_the_steps_so_far_and_the_turn_goes_on_later() -> None:
    disk = Disk()
    model = ScriptedModel([call("pay", '{"to": "ada"}')], ["Hal", ModelUnavailable("down")], "Paid.")
    state = AgentState()
    with pytest.raises(ModelUnavailable):
        await run(model, disk, state)
    later = AgentState.load(disk.steps)
    assert results(later) == ["paid ada"]
    await run(model, disk, later)
    assert disk.paid == ["ada"]
    assert later.text == "Paid."
    assert len(later.usage) == 2


# ---- cancellation ----------------------------------------------------------------------------------------------------


async def cancelled(model: Model, hang: Hang, **changes: Any) -> AgentState:
    """The state after a person stopped the turn while `hang` hung."""
    state = AgentState()
    running = asyncio.create_task(run(model, state=state, **changes))
    async with asyncio.timeout(WAIT_S):
        await hang.started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    state.stop()
    return state


async def test_stopping_inside_a_model_call_keeps_what_was_said() -> None:
    hang = Hang()
    state = await cancelled(ScriptedModel([call("look")], ["I found ", hang, "it"]), hang)
    assert state.text == "I found"
    assert_acceptable(state.messages)
    assert state.messages[-1] == ChatMessage(role="assistant", text="I found ")


async def test_stopping_before_the_first_word_leaves_nothing_behind() -> None:
    hang = Hang()
    state = await cancelled(ScriptedModel([hang]), hang)
    assert state.messages == []


async def test_stopping_inside_a_tool_answers_every_open_call() -> None:
    hang = Hang()
    calls = [call("look", id="a"), call("wait", id="b"), call("look", id="c")]
    state = await cancelled(ScriptedModel(["One moment.", *calls]), hang, toolbox=toolbox(Disk(), hang))
    assert results(state) == ["looked", CANCELLED.text, "looked"]
    assert_acceptable(state.messages)


async def test_the_conversation_goes_on_after_a_stop() -> None:
    hang = Hang()
    stopped = await cancelled(ScriptedModel([call("wait")]), hang, toolbox=toolbox(Disk(), hang))
    history = [ChatMessage(role="user", text="Wait."), *stopped.messages, ChatMessage(role="user", text="And now?")]
    model = ScriptedModel([call("look")], "Now it works.")
    state = await run(model, history=history)
    assert state.text == "Now it works."
    assert_acceptable(list(model.requests[-1].messages))


# ---- crashes ---------------------------------------------------------------------------------------------------------

STORY = (
    ["I look first.", call("look", id="a")],
    [
        call("update_memory", '{"action": "add", "store": "memory", "content": "Ada is paid."}', id="b"),
        call("look", id="c"),
    ],
    ["Now I pay.", call("pay", '{"to": "ada"}', id="d"), call("look", id="e"), call("pay", '{"to": "bob"}', id="f")],
    [call("look", id="g")],
    ["All ", "done."],
)


def story() -> ScriptedModel:
    return ScriptedModel(*STORY, is_replaying=True)


async def points_of_the_story() -> int:
    disk = Disk()
    await run(story(), disk)
    return disk.points


@pytest.mark.parametrize("forgets", [False, True])
async def test_after_a_crash_at_any_point_the_turn_ends_the_same_and_no_tool_acts_twice(forgets: bool) -> None:
    whole = await run(story())
    points, interrupted_text = await points_of_the_story(), uncertain("it was interrupted").text
    assert points > 25
    interrupted = 0
    for crash_at in range(points):
        disk = Disk(crash_at=crash_at, forgets=forgets)
        with pytest.raises(Crash):
            await run(story(), disk)
        state = await run(story(), disk, AgentState.load(disk.steps))
        assert len(disk.paid) == len(set(disk.paid)), crash_at
        if interrupted_text in results(state):
            interrupted += 1
            assert state.uncertain == ["pay"]
            told = [text for text in results(state) if text != interrupted_text]
            assert told == [text for text in results(whole) if text in told], crash_at
        else:
            assert disk.paid == ["ada", "bob"], crash_at
            assert replace(state, calls=[]) == replace(whole, calls=[]), crash_at
            assert [each.key for each in state.calls] == [each.key for each in whole.calls], crash_at
        assert state.text == whole.text, crash_at
        assert state.updates == whole.updates, crash_at
        assert_acceptable(state.messages)
    # each of the two payments: after it was noted, before and after it acts, before its result is noted
    assert interrupted == 2 * 4


async def test_after_crashes_at_every_point_one_after_the_other_the_turn_still_ends() -> None:
    disk = Disk(crash_at=0)
    for _ in range(1_000):
        try:
            state = await run(story(), disk, AgentState.load(disk.steps))
        except Crash:
            disk.crash_at, disk.points = disk.crash_at + 1, 0
            continue
        break
    else:
        pytest.fail("it never ended")
    assert state.text.endswith("All done.")
    assert len(disk.paid) == len(set(disk.paid))


async def test_a_call_that_another_worker_has_begun_meanwhile_is_not_made_here() -> None:
    class Taken(Disk):
        async def begin_call(self, _row: CallRow) -> bool:
            return False

    disk = Taken()
    state = await run(story(), disk)
    assert disk.paid == []
    assert state.uncertain
    assert set(state.uncertain) == {"pay"}
    assert any("another worker has begun it" in text for text in results(state))


async def test_a_turn_that_had_answered_is_not_asked_again() -> None:
    model = ScriptedModel()
    state = AgentState(messages=[ChatMessage(role="assistant", text="Done.")])
    await run(model, state=state)
    assert model.requests == []


# ---- the state as text -----------------------------------------------------------------------------------------------

tool_calls = st.builds(ToolCall, id=st.text(), name=st.text(), arguments=st.text())
chat_messages = st.builds(
    ChatMessage,
    role=st.sampled_from(["user", "assistant", "tool"]),
    text=st.text(),
    tool_calls=st.lists(tool_calls, max_size=3).map(tuple),
    tool_call_id=st.none() | st.text(),
)
states = st.builds(
    AgentState,
    messages=st.lists(chat_messages, max_size=4),
    updates=st.lists(
        st.builds(
            MemoryUpdate,
            action=st.sampled_from(["add", "replace", "remove"]),
            store=st.sampled_from(["memory", "user"]),
            content=st.text(),
        ),
        max_size=3,
    ),
    usage=st.lists(
        st.builds(
            ModelUsage,
            model=st.text(),
            input_tokens=st.integers(0, 10**9),
            output_tokens=st.integers(0, 10**9),
            cost_usd=st.none() | st.floats(0, 10**6),
        ),
        max_size=3,
    ),
)


@given(states)
def test_a_state_is_the_same_after_it_was_dumped_and_loaded(state: AgentState) -> None:
    assert AgentState.load(state.dump()) == state


def test_nothing_saved_is_a_new_state() -> None:
    assert AgentState.load(None) == AgentState()


async def test_a_consumer_that_goes_away_ends_the_stream() -> None:
    """What the loop relies on: cancelling it reaches into the model."""
    hang = Hang()
    ended = asyncio.Event()

    class Watched(ScriptedModel):
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            try:
                async for event in super().stream(request):
                    yield event
            finally:
                ended.set()

    await cancelled(Watched([hang]), hang)
    assert ended.is_set()


async def test_a_tool_is_told_which_of_its_results_this_model_is_shown() -> None:
    """So it does nothing twice; and the model of a sub-agent, which is shown none of them, has them done for itself."""

    async def say(_arguments: Any, context: ToolContext) -> str:
        seen.append(context.returned)
        return "said"

    seen: list[Sequence[str]] = []
    tools = Toolbox([Tool(name="say", description="", arguments=Arguments, call=say, effect="read", runs_alone=True)])
    told = (ChatMessage(role="user", text="Go on."), ChatMessage(role="tool", text="in the window", tool_call_id="c"))
    returned = {"say": ["in the window", "in the prompt", "nowhere"], "other": ["in the window"]}
    shown = {"history": told, "system": "You are a test.\n\nin the prompt", "toolbox": tools, "returned": returned}
    steps = ([call("say", id="a"), call("say", id="b")], "Done.")
    await run(ScriptedModel(*steps), **shown)
    assert seen[0] == ("in the window", "in the prompt")
    assert [len(each) for each in seen] == [2, 3], "the second call of a step is told of the first"
    seen.clear()
    await run(ScriptedModel(*steps), toolbox=tools, returned=returned)
    assert [len(each) for each in seen] == [0, 1]
