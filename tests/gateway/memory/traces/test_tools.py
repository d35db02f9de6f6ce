"""The table of tools in traces.md: each input, output, error and edge case, as the model meets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from gateway.protocols import MemoryScope
from gateway.tools.contract import ToolContext
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from gateway.traces.archive import shorten_old
from gateway.traces.consolidation import Consolidation
from gateway.traces.tools import trace_tools
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TraceStore
from tests.gateway.memory.traces.people import ADA, Clock, of

Use = Callable[..., Coroutine[Any, Any, Any]]


def context(user_id: str | None = "u_ada") -> ToolContext:
    scope = MemoryScope(personality_id="assistant", user_id=user_id, session_id=f"s_{user_id}", turn_id="t1")
    return ToolContext(scope=scope, role="member", memory=None)


@pytest.fixture
def use(trace_store: TraceStore) -> Use:
    toolbox = Toolbox(trace_tools(trace_store, Consolidation(trace_store)))

    async def use(name: str, user_id: str | None = "u_ada", **arguments: Any) -> Any:
        call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
        answer = (await toolbox.call(call, context(user_id))).text
        return answer if answer.startswith("Error") else json.loads(answer)

    return use


def test_there_are_seven_and_each_says_when_to_use_it(trace_store: TraceStore) -> None:
    tools = trace_tools(trace_store, Consolidation(trace_store))
    assert [tool.name for tool in tools] == [
        "memory_add",
        "memory_update",
        "memory_delete",
        "memory_merge",
        "memory_search",
        "memory_reflect",
        "rehydrate_memory",
    ]
    assert all(len(tool.description) > 60 for tool in tools)
    by_name = {tool.name: tool.spec.parameters for tool in tools}
    assert by_name["memory_add"]["required"] == ["content"]
    assert by_name["memory_update"]["required"] == ["traceId"]
    assert by_name["memory_merge"]["required"] == ["traceIds"]
    assert by_name["memory_search"]["properties"]["limit"]["maximum"] == 100


async def test_a_fact_is_added_at_full_strength_with_the_defaults_and_found(use: Use) -> None:
    added = await use("memory_add", content="  Ada rows on Sundays  ")
    found = await use("memory_search", query="When does Ada row?")
    assert found == {
        "results": [
            {
                "id": added["traceId"],
                "content": "Ada rows on Sundays",
                "type": "episodic",
                "scope": "user",
                "strength": 1.0,
                "tags": [],
            }
        ]
    }


async def test_the_same_fact_again_gives_the_same_id_with_all_tags(use: Use) -> None:
    first = await use("memory_add", content="Ada rows", tags=["sport"])
    assert await use("memory_add", content="Ada rows", tags=["sunday", "sport"]) == first
    assert (await use("memory_search", query="rows"))["results"][0]["tags"] == ["sport", "sunday"]
    assert await use("memory_add", content="Ada rows", scope="thread") != first


async def test_wrong_calls_are_explained(use: Use) -> None:
    assert await use("memory_add", content=" ") == "Error: The content of a trace must not be blank."
    assert "no scope 'user'" in await use("memory_add", user_id=None, content="x")
    assert "type: Input should be" in await use("memory_add", content="x", type="eternal")
    assert "limit" in await use("memory_search", query="x", limit=101)
    assert await use("memory_merge", traceIds=["mt_1"]) == "Error: traceIds must contain at least 2 trace IDs."
    assert (
        await use("memory_merge", traceIds=["mt_1", "mt_2"])
        == "Error: Found only 0 active trace(s) for the provided IDs. Need at least 2."
    )


async def test_update_and_delete_say_whether_there_was_something(use: Use) -> None:
    added = await use("memory_add", content="Ada rows")
    assert await use("memory_update", **added, content="Ada sails", tags=["sea"]) == {"updated": True}
    assert await use("memory_update", user_id="u_ben", **added, content="stolen") == {"updated": False}
    assert await use("memory_update", traceId="mt_unknown", content="x") == {"updated": False}
    assert await use("memory_delete", user_id="u_ben", **added) == {"deleted": False}
    assert await use("memory_delete", **added) == {"deleted": True}
    assert await use("memory_delete", **added) == {"deleted": False}
    assert await use("memory_update", **added, content="x") == {"updated": False}
    assert await use("memory_search", query="sails") == {"results": []}


async def test_merging_answers_with_the_new_trace_and_the_number_of_sources(use: Use) -> None:
    ids = [(await use("memory_add", content=f"Ada rows {when}"))["traceId"] for when in ("on Sunday", "at dawn")]
    merged = await use("memory_merge", traceIds=ids, content="Ada rows on Sundays at dawn")
    assert merged["sourcesDeleted"] == 2
    [found] = (await use("memory_search", query="rows"))["results"]
    assert (found["id"], found["content"]) == (merged["mergedTraceId"], "Ada rows on Sundays at dawn")


async def test_type_scope_and_decay_show_in_a_search(use: Use, clock: Clock) -> None:
    await use("memory_add", content="tea in the morning", type="semantic")
    await use("memory_add", content="tea for everybody", scope="organization")
    clock.move(days=30)
    [semantic] = (await use("memory_search", query="tea", type="semantic"))["results"]
    assert semantic["strength"] == 0.3679
    [shared] = (await use("memory_search", user_id="u_ben", query="tea"))["results"]
    assert (shared["content"], shared["scope"]) == ("tea for everybody", "organization")


async def test_reflecting_reports_what_it_did_to_the_callers_traces(
    use: Use, trace_store: TraceStore, clock: Clock
) -> None:
    old = clock.now - timedelta(days=365)
    await trace_store.add(ADA, of(ADA, "faded", created_at=old, last_accessed_at=old))
    report = await use("memory_reflect", user_id="u_ben", topic="tidy")
    assert report["pruned"] == 0
    report = await use("memory_reflect")
    assert {name: report[name] for name in ("pruned", "merged", "derived", "compacted")} == {
        "pruned": 1,
        "merged": 0,
        "derived": 0,
        "compacted": 0,
    }


async def test_a_shortened_fact_comes_back_whole_to_its_owner_and_each_reading_is_noted(
    use: Use, trace_store: TraceStore, clock: Clock
) -> None:
    text = "Ada told at length of the regatta on the lake, who steered, who fell in, and what was eaten after. " * 3
    added = await use("memory_add", content=text)
    young = await use("memory_add", content=text.replace("regatta", "concert"))
    nothing = {"verbatimContent": None, "archivedAt": None}
    assert await use("rehydrate_memory", **added) == nothing
    await trace_store.database.write(
        lambda connection: (
            connection.execute("UPDATE traces SET retrieval_count = 2 WHERE id = ?", (young["traceId"],)).rowcount
        )
    )
    clock.move(days=60)

    async def shorten(trace: Trace) -> str:
        return "Ada sailed a regatta."

    assert await shorten_old(trace_store, shorten) == 1
    assert await shorten_old(trace_store, shorten) == 0
    short, *_beside = (await use("memory_search", query="sailed"))["results"]
    assert short["content"] == "Ada sailed a regatta."
    whole = await use("rehydrate_memory", **added)
    assert whole["verbatimContent"] == text.strip()
    assert whole["archivedAt"].startswith("2027-01-19")
    assert await use("rehydrate_memory", user_id="u_ben", **added) == nothing
    await trace_store.database.write(
        lambda connection: connection.execute("UPDATE archive SET verbatim = verbatim || ' and more'").rowcount
    )
    assert await use("rehydrate_memory", **added) == nothing  # not what it was
    reads = await trace_store.database.read(
        lambda connection: [tuple(row) for row in connection.execute("SELECT reader, is_whole FROM archive_reads")]
    )
    assert reads == [("u_ada", 1), ("u_ada", 0)]
