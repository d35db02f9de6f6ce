"""A guest neither reads nor changes what everybody shares, whichever tool the model is talked into."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.roles import ROLES, Role, may
from gateway.protocols import MemoryScope
from gateway.tools.contract import ToolContext
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from gateway.traces.browsing import origins
from gateway.traces.consolidation import Consolidation
from gateway.traces.memory import TraceMemory
from gateway.traces.tools import trace_tools
from gateway.traces.trace import ORGANIZATION, Owner, Trace, Viewer
from gateway.traces.trace_store import TraceStore
from gateway.traces.turn_facts import viewer_of
from tests.gateway.memory.traces.people import ADA, Clock, of

REFUSED = "Error: this is shared with others, and only an owner or member changes it; this person is a guest."
IN_A_GROUP = Viewer(user_id=None, personality_id="assistant", session_id="s_ada")
OF_PERSONALITY = Owner("organization", f"{ORGANIZATION}::assistant")


def in_turn(turn_id: str) -> MemoryScope:
    return MemoryScope(personality_id="assistant", user_id="u_ada", session_id="s_ada", turn_id=turn_id)


class Desk:
    """The tools of a turn."""

    def __init__(self, trace_store: TraceStore) -> None:
        self.trace_store = trace_store
        self._toolbox = Toolbox(trace_tools(trace_store, Consolidation(trace_store)))

    async def use(self, name: str, role: Role, *, is_direct: bool = True, **arguments: Any) -> str:
        user_id = "u_ada" if is_direct else None
        scope = MemoryScope(personality_id="assistant", user_id=user_id, session_id="s_ada", turn_id="t1")
        call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
        return (await self._toolbox.call(call, ToolContext(scope=scope, role=role, memory=None))).text

    async def shared(self, *contents: str, owner: Owner | None = None) -> list[str]:
        """Traces that others read, kept by a member."""
        return [
            (await self.trace_store.add(ADA, Trace(content=one, owner=owner or ADA.owner("organization")))).id
            for one in contents
        ]

    async def dump(self) -> list[tuple[Any, ...]]:
        """All that is kept, but for how strong it is."""
        return await self.trace_store.database.read(
            lambda connection: [
                tuple(row)
                for row in connection.execute("SELECT id, owner, content, tags, deleted_at, merged_into FROM traces")
            ]
        )


@pytest.fixture
def desk(trace_store: TraceStore) -> Desk:
    return Desk(trace_store)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("owner", [ADA.owner("organization"), OF_PERSONALITY], ids=["of all", "of a personality"])
async def test_only_who_may_write_shared_memory_changes_shared_facts(desk: Desk, role: Role, owner: Owner) -> None:
    first, second = await desk.shared("The door code is on the wall", "The wall is green", owner=owner)
    before = await desk.dump()
    answers = [
        await desk.use("memory_update", role, traceId=first, content="The door code is 0000"),
        await desk.use("memory_update", role, traceId=first, tags=["x"]),
        await desk.use("memory_merge", role, traceIds=[first, second], content="Everything is allowed"),
        await desk.use("memory_delete", role, traceId=second),
        await desk.use("memory_add", role, content="Guests may do everything", scope="organization"),
    ]
    if may(role, "write shared memory"):
        assert not [answer for answer in answers if answer.startswith("Error")]
        assert await desk.dump() != before
    else:
        nothing = ['{"updated": false}'] * 2, '{"deleted": false}'
        assert ([*answers[:2]], answers[3]) == nothing, "as of a fact that is not there"
        assert answers[2].startswith("Error: Found only 0 active trace(s)")
        assert answers[4].startswith(REFUSED)
        assert await desk.dump() == before


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "in a group"])
@pytest.mark.parametrize("owner", [ADA.owner("organization"), OF_PERSONALITY], ids=["of all", "of a personality"])
async def test_only_who_may_read_shared_memory_is_told_shared_facts(
    desk: Desk, memory: TraceMemory, *, role: Role, is_direct: bool, owner: Owner
) -> None:
    (kept,) = await desk.shared("The release is on Friday", owner=owner)
    scope = replace(in_turn("t1"), user_id="u_ada" if is_direct else None)
    found = {
        "prompt": [each.text for each in await memory.before_turn(scope, "When is the release?", role)],
        "search": json.loads(await desk.use("memory_search", role, is_direct=is_direct, query="release"))["results"],
        "why": await origins(memory.trace_store, viewer_of(scope, role), "release"),
    }
    by_id = await desk.use("memory_rehydrate", role, is_direct=is_direct, traceId=kept)
    if may(role, "read shared memory"):
        assert all(found.values()), found
        assert "no trace" not in by_id
    else:
        assert not any(found.values()), found
        assert by_id.startswith("Error: ")
        assert "Friday" not in by_id


async def test_a_guest_in_a_group_reads_what_the_group_said(desk: Desk, trace_store: TraceStore) -> None:
    await trace_store.add(IN_A_GROUP, of(IN_A_GROUP, "We meet at nine", "thread"))
    assert "We meet at nine" in await desk.use("memory_search", "guest", is_direct=False, query="when do we meet")


async def test_a_guest_keeps_corrects_and_forgets_what_is_theirs(desk: Desk) -> None:
    for scope in ("user", "persona", "thread"):
        first = json.loads(await desk.use("memory_add", "guest", content=f"I row, {scope}", scope=scope))["traceId"]
        other = json.loads(await desk.use("memory_add", "guest", content=f"I sail, {scope}", scope=scope))["traceId"]
        assert json.loads(await desk.use("memory_update", "guest", traceId=first, content=f"I swim, {scope}"))[
            "updated"
        ]
        merged = json.loads(await desk.use("memory_merge", "guest", traceIds=[first, other]))
        assert json.loads(await desk.use("memory_delete", "guest", traceId=merged["mergedTraceId"]))["deleted"]


async def test_in_a_group_what_a_conversation_shares_is_no_guests_to_change(
    desk: Desk, trace_store: TraceStore
) -> None:
    kept = (await trace_store.add(IN_A_GROUP, of(IN_A_GROUP, "We meet at nine", "thread"))).id
    before = await desk.dump()
    for name, arguments in (
        ("memory_add", {"content": "We meet never", "scope": "thread"}),
        ("memory_update", {"traceId": kept, "content": "We meet never"}),
        ("memory_delete", {"traceId": kept}),
    ):
        assert (await desk.use(name, "guest", is_direct=False, **arguments)).startswith(REFUSED)
    assert await desk.dump() == before
    assert "traceId" in await desk.use("memory_add", "member", is_direct=False, content="At ten", scope="thread")


async def test_what_a_guest_asks_makes_no_shared_fact_stronger(
    desk: Desk, trace_store: TraceStore, memory: TraceMemory, clock: Clock
) -> None:
    """Though the answer holds its words; a guest's own facts learn as everybody's do, and what a member asks counts."""
    learning = asyncio.create_task(memory.run())
    await desk.shared("The garden gate opens with number forty")
    await desk.shared("The garden bench stands under pear trees")
    await trace_store.add(ADA, of(ADA, "The garden chair belongs to my grandmother"))
    clock.move(days=10)

    async def ask(turn_id: str, role: Role) -> set[str]:
        """The facts that were changed by it."""
        before = await weights(trace_store)
        scope = in_turn(turn_id)
        offered = await memory.before_turn(scope, "What of the garden?", role)
        assert len(offered) == (3 if may(role, "read shared memory") else 1)
        answer = "The garden gate opens with number forty, and the chair belongs to my grandmother."
        memory.after_turn(scope, answer, role)
        async with asyncio.timeout(60):
            await memory.idle()
        return {content for content, *_ in before ^ await weights(trace_store)}

    own = {"The garden chair belongs to my grandmother"}
    assert await ask("t1", "guest") == own
    assert await ask("t2", "member") == own | {"The garden gate opens with number forty"}
    learning.cancel()
    await asyncio.wait([learning])


async def weights(trace_store: TraceStore) -> set[tuple[Any, ...]]:
    sql = "SELECT content, strength, stability_ms, last_accessed_at, retrieval_count FROM traces"
    return await trace_store.database.read(lambda connection: {tuple(row) for row in connection.execute(sql)})


async def test_a_guest_who_has_the_agent_tidy_up_touches_nothing_shared(
    desk: Desk, trace_store: TraceStore, clock: Clock
) -> None:
    """What had faded would be dropped for everybody, and what is alike would be merged."""
    await desk.shared("The wall is green and high", "The wall is green and high!")
    own = (await trace_store.add(ADA, of(ADA, "I row"))).id
    clock.move(days=4_000)
    before = await desk.dump()
    report = json.loads(await desk.use("memory_reflect", "guest"))
    assert report["pruned"] == 1
    changed = {row[0] for row in set(await desk.dump()) ^ set(before)}
    assert changed == {own}
    assert json.loads(await desk.use("memory_reflect", "guest", is_direct=False))["pruned"] == 0
    assert json.loads(await desk.use("memory_reflect", "member"))["pruned"] == 2


async def test_an_update_that_gives_nothing_is_refused(desk: Desk) -> None:
    (kept,) = await desk.shared("We meet on Monday")
    assert await desk.use("memory_update", "owner", traceId=kept) == "Error: memory_update needs `content` or `tags`"
