"""A guest reads what is shared and changes none of it, whichever tool the model is talked into."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.agent.model import ToolCall
from gateway.agent.tools import Toolbox, ToolContext
from gateway.memory.traces.brain import Brain
from gateway.memory.traces.consolidation import Consolidation
from gateway.memory.traces.hexaco import IngestRules
from gateway.memory.traces.memory import TraceMemory
from gateway.memory.traces.tools import trace_tools
from gateway.memory.traces.trace import ORGANIZATION, Owner, Trace, Viewer
from gateway.protocols import MemoryScope
from gateway.roles import ROLES, Role, may
from gateway.store.in_memory import InMemoryStore
from tests.gateway.memory.traces.people import ADA, Clock, of

REFUSED = "Error: this is shared with others, and only an owner or member changes it; this person is a guest."
IN_A_GROUP = Viewer(user_id=None, personality_id="assistant", session_id="s_ada")
OF_PERSONALITY = Owner("organization", f"{ORGANIZATION}::assistant")


class Desk:
    """The tools of a turn."""

    def __init__(self, brain: Brain) -> None:
        self.brain = brain
        self._toolbox = Toolbox(trace_tools(brain, Consolidation(brain)))

    async def use(self, name: str, role: Role, *, is_direct: bool = True, **arguments: Any) -> str:
        user_id = "u_ada" if is_direct else None
        scope = MemoryScope(personality_id="assistant", user_id=user_id, session_id="s_ada", turn_id="t1")
        call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
        return await self._toolbox.call(call, ToolContext(scope=scope, role=role, memory=None))

    async def shared(self, *contents: str, owner: Owner | None = None) -> list[str]:
        """Traces that others read, kept by a member."""
        return [
            (await self.brain.add(ADA, Trace(content=one, owner=owner or ADA.owner("organization")))).id
            for one in contents
        ]

    async def dump(self) -> list[tuple[Any, ...]]:
        """All that is kept, but for how strong it is."""
        return await self.brain.database.read(
            lambda connection: [
                tuple(row)
                for row in connection.execute("SELECT id, owner, content, tags, deleted_at, merged_into FROM traces")
            ]
        )


@pytest.fixture
def desk(brain: Brain) -> Desk:
    return Desk(brain)


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
        assert all(answer.startswith(REFUSED) for answer in answers), answers
        assert await desk.dump() == before
        assert "door code" in await desk.use("memory_search", role, query="door code"), "it may be read"


async def test_a_guest_keeps_corrects_and_forgets_what_is_theirs(desk: Desk) -> None:
    for scope in ("user", "persona", "thread"):
        first = json.loads(await desk.use("memory_add", "guest", content=f"I row, {scope}", scope=scope))["traceId"]
        other = json.loads(await desk.use("memory_add", "guest", content=f"I sail, {scope}", scope=scope))["traceId"]
        assert json.loads(await desk.use("memory_update", "guest", traceId=first, content=f"I swim, {scope}"))[
            "updated"
        ]
        merged = json.loads(await desk.use("memory_merge", "guest", traceIds=[first, other]))
        assert json.loads(await desk.use("memory_delete", "guest", traceId=merged["mergedTraceId"]))["deleted"]


async def test_in_a_group_what_a_conversation_shares_is_no_guests_to_change(desk: Desk, brain: Brain) -> None:
    kept = (await brain.add(IN_A_GROUP, of(IN_A_GROUP, "We meet at nine", "thread"))).id
    before = await desk.dump()
    for name, arguments in (
        ("memory_add", {"content": "We meet never", "scope": "thread"}),
        ("memory_update", {"traceId": kept, "content": "We meet never"}),
        ("memory_delete", {"traceId": kept}),
    ):
        assert (await desk.use(name, "guest", is_direct=False, **arguments)).startswith(REFUSED)
    assert await desk.dump() == before
    assert "traceId" in await desk.use("memory_add", "member", is_direct=False, content="At ten", scope="thread")


async def test_what_a_guest_asks_makes_no_shared_fact_stronger_or_weaker(
    desk: Desk, brain: Brain, clock: Clock
) -> None:
    """Quoted in the answer or offered in vain; a guest's own facts learn as everybody's do, and so do a member's."""
    memory = TraceMemory(
        brain, rules=lambda _id: IngestRules(), counts=InMemoryStore().ingest, ingest=None, schedule=None
    )
    learning = asyncio.create_task(memory.run())
    await desk.shared("The garden gate opens with number forty")
    await desk.shared("The garden bench stands under pear trees")
    await brain.add(ADA, of(ADA, "The garden chair belongs to my grandmother"))
    clock.move(days=10)

    async def ask(turn_id: str, role: Role) -> set[str]:
        """The facts that were changed by it."""
        before = await weights(brain)
        scope = MemoryScope(personality_id="assistant", user_id="u_ada", session_id="s_ada", turn_id=turn_id)
        assert len(await memory.before_turn(scope, "What of the garden?")) == 3
        memory.after_turn(scope, "The garden gate opens with number forty.", role)
        async with asyncio.timeout(20):
            await memory.idle()
        return {content for content, *_ in before ^ await weights(brain)}

    own = {"The garden chair belongs to my grandmother"}
    assert await ask("t1", "guest") == own
    assert await ask("t2", "member") == {content for content, *_ in await weights(brain)}
    learning.cancel()
    await asyncio.wait([learning])


async def weights(brain: Brain) -> set[tuple[Any, ...]]:
    sql = "SELECT content, strength, stability_ms, last_accessed_at, retrieval_count FROM traces"
    return await brain.database.read(lambda connection: {tuple(row) for row in connection.execute(sql)})


async def test_a_guest_who_has_the_agent_tidy_up_touches_nothing_shared(desk: Desk, brain: Brain, clock: Clock) -> None:
    """What had faded would be dropped for everybody, and what is alike would be merged."""
    await desk.shared("The wall is green and high", "The wall is green and high!")
    own = (await brain.add(ADA, of(ADA, "I row"))).id
    clock.move(days=4_000)
    before = await desk.dump()
    report = json.loads(await desk.use("memory_reflect", "guest"))
    assert report["pruned"] == 1
    changed = {row[0] for row in set(await desk.dump()) ^ set(before)}
    assert changed == {own}
    assert json.loads(await desk.use("memory_reflect", "guest", is_direct=False))["pruned"] == 0
    assert json.loads(await desk.use("memory_reflect", "member"))["pruned"] == 2
