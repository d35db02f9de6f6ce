"""The tools that come with the gateway, and what the model is told when it calls them wrongly."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import field_validator

from gateway.domain.roles import memory_of
from gateway.domain.sessions import SessionHit
from gateway.memory.proposals import may_write
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate
from gateway.tools.contract import MAX_RESULT_CHARS, Arguments, Called, Effect, NamedFile, Tool, ToolContext, ToolResult
from gateway.tools.own import CURRENT_TIME, UPDATE_MEMORY, search_conversations
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox


def context(*, user: str | None = None, memory: str | None = None, user_id: str | None = "u_1") -> ToolContext:
    scope = MemoryScope(personality_id="assistant", user_id=user_id, session_id="s_1", turn_id="t_1")
    return ToolContext(scope=scope, role="member", memory=MemoryContext(user_memory=user, project_memory=memory))


async def use(tool: Tool, where: ToolContext | None = None, /, **arguments: Any) -> str:
    call = ToolCall(id="1", name=tool.name, arguments=json.dumps(arguments))
    return (await Toolbox([tool]).call(call, where or context())).text


async def update(where: ToolContext, **arguments: Any) -> str:
    return await use(UPDATE_MEMORY, where, **arguments)


# ---- update_memory ---------------------------------------------------------------------------------------------------


async def test_an_update_is_gathered_and_not_yet_written() -> None:
    where = context()
    assert (await update(where, action="add", store="user", content="Likes tea.")).startswith("Noted")
    assert (await update(where, action="replace", store="memory", content="New.")).startswith("Noted")
    assert where.updates == [MemoryUpdate.add("user", "Likes tea."), MemoryUpdate.replace("memory", "New.")]


@pytest.mark.parametrize("there", ["Likes tea.\n", "Lives in Rome.\n\nLikes tea.\n", "Lives in Rome.\nLikes tea.\n"])
async def test_what_is_already_there_is_not_added_again(there: str) -> None:
    where = context(user=there)
    assert (await update(where, action="add", store="user", content=" Likes tea. ")).startswith("Already there")
    assert where.updates == []


async def test_the_same_text_is_gathered_once_for_each_store() -> None:
    where = context(user="Likes tea.")
    assert (await update(where, action="add", store="memory", content="Likes tea.")).startswith("Noted")
    assert (await update(where, action="add", store="memory", content="Likes tea.")).startswith("Already there")
    assert where.updates == [MemoryUpdate.add("memory", "Likes tea.")]


@pytest.mark.parametrize(
    "first",
    [
        {"action": "remove", "store": "user", "substring_match": "tea"},
        {"action": "replace", "store": "user", "content": "Lives in Rome."},
    ],
)
async def test_a_fact_that_goes_in_this_turn_can_be_added_anew(first: dict[str, str]) -> None:
    where = context(user="Likes tea.\n")
    await update(where, **first)
    assert (await update(where, action="add", store="user", content="Likes tea.")).startswith("Noted")
    assert where.updates[-1] == MemoryUpdate.add("user", "Likes tea.")


async def test_removing_what_is_not_there_is_said_and_gathered_all_the_same() -> None:
    """Somebody else may have added it since the turn began."""
    where = context(user="Likes Tea.\n")
    assert "no line of the store has exactly this text" in await update(
        where, action="remove", store="user", substring_match="tea"
    )
    assert "no line" not in await update(where, action="remove", store="user", substring_match="Tea")
    assert where.updates == [MemoryUpdate.remove("user", "tea"), MemoryUpdate.remove("user", "Tea")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"action": "add", "store": "user", "content": " \n"}, "add needs `content`"),
        ({"action": "add", "store": "user"}, "add needs `content`"),
        ({"action": "replace", "store": "user"}, "replace needs `content`"),
        ({"action": "remove", "store": "user"}, "remove needs `substring_match`"),
        ({"action": "remove", "store": "user", "substring_match": "  "}, "remove needs `substring_match`"),
        ({"action": "add", "store": "diary", "content": "x"}, "store: Input should be 'memory' or 'user'"),
        ({"action": "burn", "store": "user", "content": "x"}, "action: Input should be 'add', 'replace' or 'remove'"),
    ],
)
async def test_a_wrong_update_is_told_and_gathers_nothing(arguments: dict[str, str], told: str) -> None:
    where = context(user="Likes tea.")
    result = await update(where, **arguments)
    assert result.startswith("Error: ")
    assert told in result
    assert where.updates == []


async def test_where_nobody_is_known_there_is_no_user_store() -> None:
    where = context(user_id=None)
    assert "no user store" in await update(where, action="add", store="user", content="Likes tea.")
    assert (await update(where, action="add", store="memory", content="It rained.")).startswith("Noted")
    assert where.updates == [MemoryUpdate.add("memory", "It rained.")]


async def test_where_others_read_along_nothing_is_noted_for_a_guest() -> None:
    """Their `MEMORY.md` is their own, and in a group nothing of one person is there."""
    group = context(user_id=None)
    where = replace(group, role="guest", scope=replace(group.scope, place=memory_of("guest", group.scope.place)))
    assert "no memory store" in await update(where, action="add", store="memory", content="It rained.")
    assert where.updates == []
    assert not may_write(where.scope, "memory", writes="auto", role="guest"), "nor does a proposal wait for it"


# ---- current_time ----------------------------------------------------------------------------------------------------


async def test_the_time_is_told_in_utc_or_in_the_zone_asked_for() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    told = await use(CURRENT_TIME)
    assert before <= datetime.strptime(told, "%A, %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC) <= datetime.now(UTC)
    assert re.search(r"\d\d:\d\d:\d\d CES?T$", await use(CURRENT_TIME, time_zone="Europe/Berlin"))


@pytest.mark.parametrize("zone", ["Europe", "", "..", "/etc/passwd", "a\0b", "Mars/Base", "zone.tab", "Europe/Berlin/"])
async def test_what_is_no_time_zone_is_an_error_that_says_what_is(zone: str) -> None:
    assert "is no time zone; use an IANA name" in await use(CURRENT_TIME, time_zone=zone)


# ---- search_conversations --------------------------------------------------------------------------------------------


class Searched:
    """The part of a session store that the tool uses."""

    def __init__(self, hits: Sequence[SessionHit] = ()) -> None:
        self.hits = hits
        self.asked: list[tuple[str, str | None, int]] = []

    async def search_messages(self, query: str, *, user_id: str | None, limit: int = 20) -> Sequence[SessionHit]:
        self.asked.append((query, user_id, limit))
        return self.hits


async def test_a_search_is_made_in_the_sessions_of_the_person_only() -> None:
    hit = SessionHit(
        message_id=7,
        session_id="s_2",
        role="user",
        personality_id="assistant",
        snippet="I like [tea].",
        score=1.0,
        created_at=datetime(2026, 11, 20, 10, tzinfo=UTC),
    )
    store = Searched([hit])
    found = await use(search_conversations(store), query="tea", limit=5)  # type: ignore[arg-type]
    assert store.asked == [("tea", "u_1", 5)]
    assert json.loads(found) == [{"when": "2026-11-20T10:00:00+00:00", "who": "user", "text": "I like [tea]."}]


async def test_a_search_for_nobody_or_nothing_is_not_made() -> None:
    store = Searched()
    tool = search_conversations(store)  # type: ignore[arg-type]
    assert "the person in this conversation is not known" in await use(tool, context(user_id=None), query="tea")
    assert "query: String should have at least 1 character" in await use(tool, query="")
    assert "limit: " in await use(tool, query="tea", limit=1_000)
    assert store.asked == []
    assert (await use(tool, query="tea")).startswith("Nothing was found")


# ---- the box ---------------------------------------------------------------------------------------------------------


class Anything(Arguments):
    pass


def told(text: str) -> Tool:
    async def call(_arguments: Anything, _context: ToolContext) -> str:
        return text

    return Tool(name="told", description="", arguments=Anything, call=call, effect="act")


async def test_a_long_result_is_cut_and_marked() -> None:
    assert await use(told("x" * MAX_RESULT_CHARS)) == "x" * MAX_RESULT_CHARS
    assert await use(told("x" * (MAX_RESULT_CHARS + 1))) == "x" * MAX_RESULT_CHARS + "\n[...truncated]"


async def test_a_result_reaches_the_model_without_what_no_terminal_and_no_store_takes() -> None:
    dirty = "a\x1b[31mred\x1b[0m\x00\x07\x1b]0;title\x07\ud800 \N{SNOWMAN}\tb\nc"
    assert await use(told(dirty)) == "ared \N{SNOWMAN}\tb\nc"


async def test_what_is_wrong_with_a_call_is_told_within_the_same_bound() -> None:
    result = await use(CURRENT_TIME, **{f"unknown_{number}": 1 for number in range(5_000)})
    assert result.startswith("Error: ")
    assert len(result) < MAX_RESULT_CHARS + 20


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
async def test_a_call_without_arguments_is_a_call_with_an_empty_object(arguments: str) -> None:
    call = ToolCall(id="1", name="told", arguments=arguments)
    assert await Toolbox([told("well")]).call(call, context()) == Called(outcome="done", text="well")


@pytest.mark.parametrize("arguments", ["{", "null", "[" * 100_000, '"\ud800"', '{"a": "\\ud800"}', "{}{}"])
async def test_malformed_arguments_are_an_error_for_the_model_and_never_one_of_ours(arguments: str) -> None:
    call = ToolCall(id="1", name="told", arguments=arguments)
    assert (await Toolbox([told("well")]).call(call, context())).text.startswith("Error: the arguments are not valid.")


def exploding(error: BaseException) -> Callable[..., Any]:
    async def call(_arguments: Anything, _context: ToolContext) -> str:
        raise error

    return call


def returning(value: object) -> Callable[..., Any]:
    async def call(_arguments: Anything, _context: ToolContext) -> object:
        return value

    return call


def at_once(_arguments: Anything, _context: ToolContext) -> str:
    raise KeyError("not even a coroutine")


@pytest.mark.parametrize(("effect", "outcome"), [("read", "failed"), ("act", "uncertain")])
@pytest.mark.parametrize(
    "call",
    [
        *map(exploding, (RuntimeError(), SystemExit(2), asyncio.CancelledError(), ExceptionGroup("", [OSError()]))),
        *map(returning, (None, {"text": "a"}, 5, b"bytes", ToolResult(text=None))),  # type: ignore[arg-type]
        returning(ToolResult(text="a", files=(NamedFile(name="a", data="no bytes"),))),  # type: ignore[arg-type]
        at_once,
    ],
)
async def test_whatever_a_tool_raises_or_returns_is_told_and_ends_no_turn(
    call: Callable[..., Any], effect: Effect, outcome: str
) -> None:
    tool = Tool(name="broken", description="", arguments=Anything, call=call, effect=effect)
    called = await Toolbox([tool]).call(ToolCall(id="1", name="broken", arguments="{}"), context())
    assert (called.outcome, called.is_fault) == (outcome, True)
    assert "the tool has a fault" in called.text


async def test_a_turn_that_is_cancelled_in_a_tool_stays_cancelled() -> None:
    started = asyncio.Event()

    async def wait(_arguments: Anything, _context: ToolContext) -> str:
        started.set()
        await asyncio.get_running_loop().create_future()
        return ""

    tool = Tool(name="slow", description="", arguments=Anything, call=wait, effect="act")
    task = asyncio.create_task(Toolbox([tool]).call(ToolCall(id="1", name="slow", arguments="{}"), context()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_fault_in_a_tools_own_validator_is_told_and_nothing_is_called() -> None:
    class Checked(Arguments):
        to: str

        @field_validator("to")
        @classmethod
        def known(cls, _to: str) -> str:
            raise KeyError("ada")

    tool = Tool(name="post", description="", arguments=Checked, call=exploding(AssertionError("called")), effect="act")
    called = await Toolbox([tool]).call(ToolCall(id="1", name="post", arguments='{"to": "ada"}'), context())
    assert (called.outcome, called.is_fault) == ("refused", True)
    assert "cannot read these arguments" in called.text


def test_a_box_shows_the_model_a_json_schema_of_each_tool() -> None:
    (spec,) = Toolbox([UPDATE_MEMORY]).specs
    assert spec.name == "update_memory"
    assert spec.parameters["type"] == "object"
    assert spec.parameters["required"] == ["action", "store"]
    assert spec.parameters["additionalProperties"] is False
    assert spec.parameters["properties"]["store"]["enum"] == ["memory", "user"]


def test_only_some_tools_of_a_box_can_be_kept() -> None:
    box = Toolbox([UPDATE_MEMORY, CURRENT_TIME, told("well")])
    assert box.only(["told", "update_memory", "no_such_tool"]).names == ("update_memory", "told")
    assert box.only([]).specs == ()


def test_a_tool_may_be_repeated_unless_it_acts_and_an_unknown_one_does_nothing() -> None:
    box = Toolbox([UPDATE_MEMORY, told("well")])
    assert box.is_repeatable("update_memory")
    assert not box.is_repeatable("told")
    assert box.is_repeatable("no_such_tool")
