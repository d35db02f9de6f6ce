"""Two people with the same facts: whatever one of them does, the other's are as they were, and never seen."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from gateway.errors import TraceError
from gateway.memory.ingest import IngestJob, Said
from gateway.memory.proposals import ProposalStore
from gateway.protocols import MemoryScope
from gateway.tools.contract import ToolContext
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from gateway.traces.archive import rehydrate, shorten_old
from gateway.traces.consolidation import Consolidation
from gateway.traces.memory import TraceMemory
from gateway.traces.personality_traits import IngestRules
from gateway.traces.search import TraceQuery
from gateway.traces.tools import trace_tools
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TraceStore
from gateway.traces.turn_facts import OfferedTraces, TurnFactExtractor
from tests.gateway.memory.traces.people import ADA, BEN, Clock, of
from tests.scripted_model import ScriptedModel

PLANTS = ("basil", "mint", "thyme", "sage", "dill", "chives")
FACTS = (
    *(f"The {plant} on the balcony of the old house by the river wants water" for plant in PLANTS),
    "The key is under the third pot " + "and the pot is red " * 12,
    "Forgotten long ago",
)


def scope(viewer: Viewer, turn_id: str) -> MemoryScope:
    return MemoryScope(
        personality_id=viewer.personality_id, user_id=viewer.user_id, session_id=viewer.session_id, turn_id=turn_id
    )


class Unasked(ProposalStore):
    """No fact of these turns needs a yes."""


async def state(trace_store: TraceStore, viewer: Viewer) -> list[tuple[Any, ...]]:
    """Every column of all that is the viewer's, hidden ones too."""
    ids = [owner.id for owner in viewer.owners if owner.kind != "organization"]

    def work(connection: Any) -> list[tuple[Any, ...]]:
        sql = "SELECT traces.* FROM traces JOIN owners ON owners.number = owner WHERE owners.id IN (?, ?, ?) ORDER BY 1"
        return [tuple(row) for row in connection.execute(sql, ids).fetchall()]

    return await trace_store.database.read(work)


async def fill(trace_store: TraceStore, viewer: Viewer, clock: Clock) -> list[str]:
    ids = []
    for number, content in enumerate(FACTS):
        is_old = number >= len(PLANTS)
        at = clock.now - timedelta(days=90) if is_old else clock.now
        trace = of(viewer, content, created_at=at, last_accessed_at=at, stability_ms=1.7e10)
        if content == FACTS[-1]:
            trace = of(viewer, content, strength=0.01)
        ids.append((await trace_store.add(viewer, trace)).id)
    return ids


async def test_nothing_crosses_between_two_people_in_any_operation(
    trace_store: TraceStore, memory: TraceMemory, clock: Clock
) -> None:
    ada_ids, ben_ids = await fill(trace_store, ADA, clock), await fill(trace_store, BEN, clock)
    before = await state(trace_store, BEN)
    said: list[str] = []

    async def insight(traces: Any) -> str:
        said.extend(trace.owner.id for trace in traces)
        return "All of it wants water"

    consolidation = Consolidation(trace_store, insight=insight)
    toolbox = Toolbox(trace_tools(trace_store, consolidation))

    async def use(name: str, **arguments: Any) -> str:
        call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
        return (await toolbox.call(call, ToolContext(scope=scope(ADA, "t"), memory=None, role="member"))).text

    # by an id that is not hers
    for ben_id in ben_ids:
        assert await trace_store.get(ADA, ben_id) is None
        assert not await trace_store.update(ADA, ben_id, content="x", tags=["x"])
        assert not await trace_store.delete(ADA, ben_id)
        assert not await trace_store.restore(ADA, ben_id)
        assert (await rehydrate(trace_store, ADA, ben_id)).verbatim_content is None
        assert await use("memory_update", traceId=ben_id, content="x") == '{"updated": false}'
        assert await use("memory_delete", traceId=ben_id) == '{"deleted": false}'
        assert await use("rehydrate_memory", traceId=ben_id) == '{"verbatimContent": null, "archivedAt": null}'
    assert await trace_store.offered(ADA, "q", used=ben_ids) == 0
    with pytest.raises(TraceError, match="Found only 1"):
        await trace_store.merge(ADA, [ada_ids[0], ben_ids[0]])
    assert "Found only 0" in await use("memory_merge", traceIds=ben_ids)
    with pytest.raises(TraceError, match="not yours"):
        await trace_store.add(ADA, Trace(content="x", owner=BEN.owner("user")))

    # by words that both have
    for words in ("balcony", '"old house"', "key AND pot", "wat*"):
        found = {each.trace.id for each in await trace_store.search(ADA, TraceQuery(query=words, limit=100))}
        assert found <= set(ada_ids)
        listed = await use("memory_search", query=words, limit=100)
        assert not any(ben_id in listed for ben_id in ben_ids)
        hits = await memory.search(scope(ADA, "t"), words, limit=100)
        assert {hit.source for hit in hits} == found
        recalled = await memory.before_turn(scope(ADA, "t"), words, "member")
        assert {each.id for each in recalled} <= set(ada_ids)

    # by what she adds herself, and by what is taken from her turns
    await use("memory_add", content=FACTS[0], tags=["hers"])
    facts = json.dumps([{"fact": FACTS[1], "category": "knowledge", "importance": 1.0}])
    taker = TurnFactExtractor(
        trace_store, lambda: ScriptedModel(facts), lambda _id: IngestRules(), Unasked(), offers=OfferedTraces()
    )
    exchange = Said(asked="q", answered="a", at=clock.now)
    job = IngestJob(scope=scope(ADA, "t_1"), speaker="Ada")
    report = await taker.keep(job, exchange, await taker.extract(job, exchange))
    assert (report["stored"], report["duplicate"]) == (0, 1)
    report = await taker.keep(IngestJob(scope=scope(BEN, "t_2"), speaker="Ben"), exchange, "[]")
    assert report["stored"] == 0

    # by consolidating what she sees
    assert '"pruned": 1' in await use("memory_reflect")
    assert set(said) == {ADA.user_id}
    assert await state(trace_store, BEN) == before

    # by consolidating and shortening everything: each by itself
    said.clear()
    report_of_all = await consolidation.run(None)
    assert (report_of_all.pruned, report_of_all.derived) == (1, 1)
    assert set(said) == {BEN.user_id}

    async def first_words(trace: Trace) -> str:
        return trace.content[:30]

    assert await shorten_old(trace_store, first_words) == 2
    for viewer, other_ids in ((ADA, ben_ids), (BEN, ada_ids)):
        everything = await trace_store.search(viewer, TraceQuery(query="water OR key", limit=100))
        assert {each.trace.owner.id for each in everything} == {viewer.user_id}
        assert not {each.trace.id for each in everything} & set(other_ids)
    edges = await trace_store.database.read(
        lambda connection: connection.execute(
            "SELECT count(*) FROM edges JOIN traces AS one ON one.id = edges.source "
            "JOIN traces AS other ON other.id = edges.target WHERE one.owner <> other.owner"
        ).fetchone()[0]
    )
    assert edges == 0
