"""The offline model, through the real loop and the real tools."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.loop import AgentLoop, AgentWork
from gateway.agent.model import ChatMessage, ModelReply, ModelRequest, TextDelta
from gateway.agent.offline.arithmetic import NotASum, evaluate
from gateway.agent.offline.model import INTRODUCTION, MAX_WORDS, NOTICE, OfflineModel
from gateway.agent.offline.remembered import Note, read_notes
from gateway.agent.prompt import Setting, estimated_tokens, system_prompt
from gateway.agent.state import AgentState
from gateway.domain.sessions import SessionHit
from gateway.messages import Capabilities
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate
from gateway.tools.contract import ToolContext
from gateway.tools.journal import CallKey, CallRow
from gateway.tools.own import CURRENT_TIME, UPDATE_MEMORY, search_conversations
from gateway.tools.toolbox import Toolbox

WAIT_S = 60.0
USER = "Name: Ada\n\nThey say: I live in Berlin.\n- Likes steak\n"
MEMORY = "# Projects\n\nProject Apollo ships on Friday.\nThe printer eats paper.\n"


class Unkept:
    """A step keeper for turns that are not interrupted and do not act."""

    async def save_steps(self, *_: str, is_durable: bool) -> bool:
        assert not is_durable
        return False

    async def begin_call(self, row: CallRow) -> NoReturn:
        raise AssertionError(row)

    async def end_call(self, *call: object) -> NoReturn:
        raise AssertionError(call)

    async def kept_call(self, key: CallKey) -> NoReturn:
        raise AssertionError(key)


class Past:
    """The part of a session store that the search tool uses; one message was said before."""

    async def search_messages(self, query: str, **_: object) -> Sequence[SessionHit]:
        if query != "green tea":
            return []
        when = datetime(2026, 11, 19, 9, tzinfo=UTC)
        return [
            SessionHit(
                message_id=1,
                session_id="s_0",
                role="user",
                personality_id="assistant",
                snippet="I like [green] [tea].",
                score=1.0,
                created_at=when,
            )
        ]


def system(user: str = USER, memory: str = MEMORY, *, summary: str = "") -> str:
    parts = [f"## About You\n\n{user}" if user else "", f"## Memory\n\n{memory}" if memory else ""]
    setting = Setting(
        capabilities=Capabilities(max_text_chars=4000), is_direct=True, display_name="Ada", today=date(2026, 11, 20)
    )
    persona = "You are Ethos."
    return system_prompt(
        persona, setting, memory="\n".join(part for part in parts if part) or None, summary=summary, can_remember=True
    )


BEFORE = (ChatMessage(role="user", text="Hello."), ChatMessage(role="assistant", text="Hello."))


async def turn(
    text: str, *, user: str = USER, memory: str = MEMORY, tools: bool = True, first: bool = False
) -> AgentState:
    state = AgentState()
    scope = MemoryScope(personality_id="assistant", user_id="u_1", session_id="s_1", turn_id="t_1")
    remembered = MemoryContext(user_memory=user or None, project_memory=memory or None)
    work = AgentWork(
        turn_id="t_1",
        model=OfflineModel(),
        system=system(user, memory),
        history=(*(() if first else BEFORE), ChatMessage(role="user", text=text)),
        toolbox=Toolbox(
            [UPDATE_MEMORY, CURRENT_TIME, search_conversations(Past())] if tools else []  # type: ignore[arg-type]
        ),
        context=ToolContext(scope=scope, role="member", memory=remembered, updates=state.updates),
        steps_limit=5,
        calls_limit=32,
        max_output_tokens=None,
        on_text=lambda: None,
    )
    await AgentLoop(Unkept()).run(work, state)
    assert state.messages[-1].role == "assistant"
    assert state.text.strip()
    return state


async def said(text: str, **where: Any) -> str:
    return (await turn(text, **where)).text


def made_calls(state: AgentState) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for message in state.messages for call in message.tool_calls]


# ---- the first answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["Hello", "What is the meaning of life?", "remember that I like tea", "2+2", "", "help"]
)
async def test_the_first_answer_says_once_what_it_is_and_how_to_connect_a_real_model(text: str) -> None:
    first = await said(text, first=True)
    assert first.count(NOTICE) == 1
    assert (INTRODUCTION in first) == (text == "help"), "a mail or a pipe gets no list that nobody asked for"
    assert "offline model" in first
    assert "`ethos init`" in first
    assert "docs/models.md" in first


@pytest.mark.parametrize("text", ["Hello", "What is the meaning of life?", "remember that I like tea", "2+2", ""])
async def test_later_answers_do_not_introduce_it_again(text: str) -> None:
    assert NOTICE not in await said(text)


async def test_a_subject_above_the_text_is_not_taken_for_the_text() -> None:
    assert "42" in await said("Subject: A sum\n\nWhat is 6 * 7?")
    assert "Subject: alone" in await said("Subject: alone\n\n")


# ---- remembering -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "update"),
    [
        ("remember that my name is Eva", MemoryUpdate.add("user", "Name: Eva")),
        ("Please remember: my favourite colour is blue.", MemoryUpdate.add("user", "Favourite colour: blue")),
        ("don't forget that my sister's cat is Tom", MemoryUpdate.add("user", "Sister's cat: Tom")),
        ("merke dir: mein Name ist Eva", MemoryUpdate.add("user", "Name: Eva")),
        ("Remember that I like tea.", MemoryUpdate.add("user", "They say: I like tea.")),
        ("merke dir, dass ich Tee mag", MemoryUpdate.add("user", "They say: ich Tee mag")),
        (
            "remember my plan is bad as my boss is mean",
            MemoryUpdate.add("user", "They say: my plan is bad as my boss is mean"),
        ),
        ("remember that the US office opens at 9", MemoryUpdate.add("memory", "the US office opens at 9")),
        ("Could you please remember Apollo ships late", MemoryUpdate.add("memory", "Apollo ships late")),
        ("note that lunch is at noon", MemoryUpdate.add("memory", "lunch is at noon")),
        ("remember:\nfirst line\nsecond line", MemoryUpdate.add("memory", "first line\nsecond line")),
    ],
)
async def test_a_fact_is_kept_in_the_store_where_it_belongs(text: str, update: MemoryUpdate) -> None:
    state = await turn(text, user="", memory="")
    assert state.updates == [update]
    assert " ".join(update.content.split()) in state.text


async def test_a_fact_that_changes_takes_the_place_of_the_old_one() -> None:
    state = await turn("remember that my name is Eva")
    assert state.updates == [MemoryUpdate.remove("user", "Name: Ada"), MemoryUpdate.add("user", "Name: Eva")]


async def test_a_fact_that_is_known_is_not_added_again() -> None:
    state = await turn("remember that my name is Ada")
    assert state.updates == []
    assert "already" in state.text


async def test_without_the_tool_it_says_that_it_cannot_remember() -> None:
    state = await turn("remember that I like tea", tools=False)
    assert state.updates == []
    assert "update_memory is not at hand" in state.text


# ---- forgetting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "updates"),
    [
        ("forget my name", [MemoryUpdate.remove("user", "Name: Ada")]),
        ("Forget that i LIVE in berlin!", [MemoryUpdate.remove("user", "They say: I live in Berlin.")]),
        ("vergiss, dass ich in Berlin bin", [MemoryUpdate.remove("user", "They say: I live in Berlin.")]),
        ("forget about Apollo", [MemoryUpdate.remove("memory", "Project Apollo ships on Friday.")]),
        ("please forget the projects", [MemoryUpdate.remove("memory", "Project Apollo ships on Friday.")]),
    ],
)
async def test_forgetting_removes_a_text_that_really_occurs(text: str, updates: list[MemoryUpdate]) -> None:
    state = await turn(text)
    assert state.updates == updates
    for update in updates:
        assert update.content in (USER if update.store == "user" else MEMORY)
        assert " ".join(update.content.split()) in state.text
    assert "so nothing may go" not in str(state.messages)


@pytest.mark.parametrize("text", ["forget tea", "forget printer Apollo", "forget everything", "forget Adam"])
async def test_forgetting_what_is_not_known_says_so_and_removes_nothing(text: str) -> None:
    """`tea` is a part of `steak`, which must stay."""
    state = await turn(text)
    assert state.updates == []
    assert "no note about that" in state.text


async def test_forgetting_without_a_word_of_what_asks_back() -> None:
    assert "Tell me what to forget" in await said("forget that")


# ---- recalling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "there", "not_there"),
    [
        ("What is my name?", "Name: Ada", "Berlin"),
        ("what's my name", "Name: Ada", "Berlin"),
        ("Where do I live?", "I live in Berlin", "Ada"),
        ("When does Apollo ship?", "Project Apollo ships on Friday", "Ada"),
        ("what do you know about Apollo?", "Project Apollo ships on Friday", "Ada"),
        ("do you remember the printer?", "The printer eats paper", "Apollo"),
        ("Who am I?", "Name: Ada", "Apollo"),
        ("Was weißt du über mich?", "Name: Ada", "Apollo"),
        ("What do you know about me?", "Likes steak", "Apollo"),
        ("What do you remember?", "Apollo", "# Projects"),
    ],
)
async def test_a_question_is_answered_from_the_memory(question: str, there: str, not_there: str) -> None:
    state = await turn(question)
    assert there in state.text
    assert not_there not in state.text
    assert made_calls(state) == []


@pytest.mark.parametrize(
    "question", ["What is my shoe size?", "Do you remember Paris?", "Who am I?", "What do you know?"]
)
async def test_what_is_not_known_is_said_to_be_so(question: str) -> None:
    answer = await said(question, user="", memory="")
    assert answer.startswith("I have no note")


async def test_the_memory_is_not_mistaken_for_the_rest_of_the_prompt() -> None:
    assert read_notes(system("", "", summary="## Memory\n\nEve was here.")) == []
    assert read_notes(system("a\n## Hobbies\n- b", "[...truncated]\nc\n## About You\nd", summary="e")) == [
        Note("user", "a"),
        Note("user", "- b"),
        Note("memory", "c"),
        Note("memory", "d"),
    ]


# ---- other tools -----------------------------------------------------------------------------------------------------


async def test_a_search_tells_what_was_found() -> None:
    state = await turn("search for green tea")
    assert made_calls(state) == [("search_conversations", '{"query": "green tea"}')]
    assert state.text == "This is what I found:\n- 2026-11-19, user: I like [green] [tea]."
    assert "Nothing was found" in await said("Suche nach Kaffee")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("What time is it?", {}),
        ("what's the date today?", {}),
        ("what time is it in berlin?", {"time_zone": "Europe/Berlin"}),
        ("What time is it now in New York?", {"time_zone": "America/New_York"}),
        ("wie spät ist es in Asia/Tokyo", {"time_zone": "Asia/Tokyo"}),
        ("what time is it in utc", {"time_zone": "UTC"}),
    ],
)
async def test_the_time_is_asked_of_the_tool(text: str, arguments: dict[str, str]) -> None:
    state = await turn(text)
    ((name, given_),) = made_calls(state)
    assert (name, json.loads(given_)) == ("current_time", arguments)
    assert state.text.startswith("It is ")


async def test_an_error_of_a_tool_is_told() -> None:
    assert "'Nowhere' is no time zone" in await said("what time is it in Nowhere?")


async def test_a_tool_is_called_exactly_as_written_and_its_result_told() -> None:
    state = await turn('use tool update_memory {"action": "add", "store": "memory", "content": "x"}')
    assert made_calls(state) == [("update_memory", '{"action": "add", "store": "memory", "content": "x"}')]
    assert state.updates == [MemoryUpdate.add("memory", "x")]
    assert state.text == "update_memory: Noted: it is added when the answer is done."


async def test_several_lines_are_parallel_calls_and_what_is_malformed_or_unknown_goes_through() -> None:
    state = await turn('use tool current_time {"time_zone":\ncall update_memory {\n"action"\n}\nuse the tool fly')
    assert made_calls(state) == [
        ("current_time", '{"time_zone":'),
        ("update_memory", '{\n"action"\n}'),
        ("fly", ""),
    ]
    ids = [call.id for message in state.messages for call in message.tool_calls]
    assert len(set(ids)) == 3
    lines = state.text.split("\n")
    assert lines[0].startswith("current_time: Error: the arguments are not valid")
    assert lines[1].startswith("update_memory: Error: the arguments are not valid")
    assert lines[2].startswith("fly: Error: there is no tool 'fly'")


async def test_a_sentence_that_only_looks_like_a_call_is_none() -> None:
    for text in ("call me Ishmael", "use your head", "callous {x}"):
        assert made_calls(await turn(text)) == []
    assert "no tool is at hand" in await said("use tool current_time", tools=False)


# ---- talk ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("repeat after me: Hello,  World\nand all", "Hello,  World\nand all"),
        ("echo hi", "hi"),
        ("what is 6*7?", "6*7 = 42"),
        ("Calculate (1 + 2) \u00d7 3 =", "(1 + 2) \u00d7 3 = 9"),
        ("10/4", "10/4 = 2.5"),
        ("1/0", "Nothing can be divided by zero."),
        ("Guten Morgen!", "Hello, Ada."),
    ],
)
async def test_small_things_it_does_by_itself(text: str, answer: str) -> None:
    assert await said(text) == answer


@pytest.mark.parametrize(
    "text", ["Tell me a joke", "What is the capital of Peru?", "42", "x" * 5_000, "\ud800\0", "2026-11-"]
)
async def test_whatever_else_is_answered_honestly_and_shortly(text: str) -> None:
    answer = await said(text)
    assert "only the offline model" in answer
    assert f'"{text[:60]}' in answer
    assert len(answer) < 200


@pytest.mark.parametrize("count", [0, 1, 12, MAX_WORDS])
async def test_it_writes_as_many_words_as_asked_for(count: int) -> None:
    text = await said(f"write {count} words about rain")
    assert len(text.split()) == count or count == 0
    assert f"{MAX_WORDS} words at most" in await said(f"write {MAX_WORDS + 1} words")


@pytest.mark.parametrize("blank", [" ", "\n", "(", "-", "1 ", "1+", "what ", "remember ", "?", "a", "call {"])
async def test_a_message_of_five_megabytes_is_answered_at_once(blank: str) -> None:
    """No pattern takes more than linear time: a quadratic one would take hours."""
    text = "1" + blank * (5_000_000 // len(blank)) + "x"
    async with asyncio.timeout(WAIT_S):
        assert (await turn(text)).text
        assert (await turn(f"remember {text}")).text
        assert (await turn(f"forget {text}")).text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "__import__('os')",
        "a+1",
        "1 if 2 else 3",
        "[1]+[2]",
        "True+1",
        "'a'*9",
        "1<2",
        "(" * 200,
        "1j+2",
        "9**9**9",
    ],
)
def test_only_arithmetic_is_worked_out(text: str) -> None:
    with pytest.raises(NotASum):
        evaluate(text)


@given(st.text(alphabet="0123456789.+-*/%()^ ", max_size=130))
def test_no_sum_takes_long_or_breaks_anything(text: str) -> None:
    try:
        shown = evaluate(text)
    except (NotASum, ZeroDivisionError) as error:
        shown = str(error)
    assert 0 < len(shown) < 1_300


# ---- the protocol of a model -----------------------------------------------------------------------------------------


def request(*messages: ChatMessage, **changes: Any) -> ModelRequest:
    return ModelRequest(**{"system": system(), "messages": messages, **changes})


@given(st.text(), st.booleans())
async def test_the_pieces_are_the_text_and_the_reply_comes_last(text: str, is_summary: bool) -> None:
    asked = request(ChatMessage(role="user", text=text), purpose="summary" if is_summary else "answer")
    *deltas, reply = [event async for event in OfflineModel("local").stream(asked)]
    assert isinstance(reply, ModelReply)
    assert all(isinstance(delta, TextDelta) and len(delta.text.split()) <= 1 for delta in deltas)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.message.text
    assert reply.usage.model == "local"
    assert reply.usage.cost_usd == 0.0
    assert reply.usage.input_tokens == estimated_tokens(asked.system) + estimated_tokens(text)
    assert reply.usage.output_tokens == estimated_tokens(reply.message.text)


async def test_the_same_request_is_answered_the_same_by_any_instance() -> None:
    tools = Toolbox([UPDATE_MEMORY]).specs
    asked = request(ChatMessage(role="user", text="remember that I like tea"), tools=tools)
    used = OfflineModel()
    first = [event async for event in used.stream(asked)]
    assert [event async for event in used.stream(asked)] == first
    assert [event async for event in OfflineModel().stream(asked)] == first


async def test_it_answers_a_request_without_any_message() -> None:
    assert [event async for event in OfflineModel().stream(request())]


async def test_it_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> NoReturn:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert await said("what time is it in Berlin?")
