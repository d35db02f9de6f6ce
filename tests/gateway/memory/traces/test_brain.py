"""The brain's own calls: what traces.md says of adding, updating, deleting, merging and using."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.errors import TraceError
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from tests.gateway.memory.traces.people import ADA, BEN, NOBODY, Clock, of

TEA = "Ada drinks green tea without sugar"


async def the(brain: TraceStore, trace_id: str) -> Trace:
    found = await brain.get(ADA, trace_id)
    assert found is not None
    return found


async def edges(brain: TraceStore) -> list[tuple[str, str, float]]:
    def work(connection):  # type: ignore[no-untyped-def]
        return [tuple(row) for row in connection.execute("SELECT source, target, weight FROM edges ORDER BY 1, 2")]

    return await brain.database.read(work)


async def link(brain: TraceStore, source: str, target: str, weight: float) -> None:
    sql = "INSERT INTO edges (source, target, kind, weight, created_at) VALUES (?, ?, 'co_activated', ?, 0)"
    await brain.database.write(lambda connection: connection.execute(sql, (source, target, weight)).rowcount)


async def test_a_trace_comes_back_with_all_its_fields(brain: TraceStore, clock: Clock) -> None:
    trace = of(
        ADA,
        TEA,
        type="semantic",
        strength=0.75,
        tags=("taste", "keep"),
        emotions={"joy": 0.5, "intensity": 0.25},
        metadata={"from": {"page": [1, 2]}},
        created_at=clock.now,
        last_accessed_at=clock.now,
        author="u_ada",
        speaker="Ada",
        conversation="c1",
        position=3,
        embedding=b"\x00<\x00@",
        embedding_model="small",
    )
    added = await brain.add(ADA, trace)
    assert added.is_new
    assert await brain.get(ADA, added.id) == trace


async def test_the_same_content_again_is_the_same_trace_with_the_tags_of_both(brain: TraceStore) -> None:
    first = await brain.add(ADA, of(ADA, TEA, tags=("tea",)))
    again = await brain.add(ADA, of(ADA, TEA, tags=("drinks", "tea")))
    assert (again.id, again.is_new) == (first.id, False)
    assert (await the(brain, first.id)).tags == ("tea", "drinks")
    assert await brain.count(ADA) == 1


async def test_another_type_scope_or_person_makes_another_trace(brain: TraceStore) -> None:
    ids = {
        (await brain.add(viewer, trace)).id
        for viewer, trace in (
            (ADA, of(ADA, TEA)),
            (ADA, of(ADA, TEA, type="semantic")),
            (ADA, of(ADA, TEA, "thread")),
            (ADA, of(ADA, TEA, "persona")),
            (ADA, of(ADA, TEA, "organization")),
            (BEN, of(BEN, TEA)),
        )
    }
    assert len(ids) == 6


@pytest.mark.parametrize("content", ["", "  \n\t"])
async def test_blank_content_is_refused(brain: TraceStore, content: str) -> None:
    with pytest.raises(TraceError, match="must not be blank"):
        await brain.add(ADA, of(ADA, content))
    kept = await brain.add(ADA, of(ADA, TEA))
    with pytest.raises(TraceError, match="must not be blank"):
        await brain.update(ADA, kept.id, content=content)


async def test_nobody_writes_into_somebody_elses_scope(brain: TraceStore) -> None:
    with pytest.raises(TraceError, match="not yours"):
        await brain.add(BEN, of(ADA, TEA))
    with pytest.raises(TraceError, match="others read along"):
        NOBODY.owner("user")
    with pytest.raises(TraceError, match="not yours"):
        await brain.add(NOBODY, of(ADA, TEA))


async def test_a_hundred_callers_with_the_same_fact_make_one_trace(brain: TraceStore) -> None:
    added = await asyncio.gather(*(brain.add(ADA, of(ADA, TEA)) for _ in range(100)))
    assert len({each.id for each in added}) == 1
    assert sum(each.is_new for each in added) == 1


async def test_an_update_changes_what_is_given_and_is_found_under_the_new_words(brain: TraceStore) -> None:
    added = await brain.add(ADA, of(ADA, TEA, tags=("a",), embedding=b"\x00<", embedding_model="small"))
    assert await brain.update(ADA, added.id, tags=("b", "b"))
    assert (await the(brain, added.id)).tags == ("b",)
    assert (await the(brain, added.id)).embedding is not None
    assert await brain.update(ADA, added.id, content="Ada drinks coffee")
    changed = await the(brain, added.id)
    assert (changed.content, changed.embedding) == ("Ada drinks coffee", None)
    assert not await brain.search(ADA, TraceQuery(query="sugar"))
    assert [found.trace.id for found in await brain.search(ADA, TraceQuery(query="coffee"))] == [added.id]
    again = await brain.add(ADA, of(ADA, "Ada drinks coffee"))
    assert again.id == added.id  # the hash follows


async def test_deleting_hides_and_a_second_time_says_false(brain: TraceStore) -> None:
    added = await brain.add(ADA, of(ADA, TEA))
    assert await brain.delete(ADA, added.id)
    assert not await brain.delete(ADA, added.id)
    assert await brain.get(ADA, added.id) is None
    assert not await brain.search(ADA, TraceQuery(query="tea"))
    assert not await brain.update(ADA, added.id, content="x")
    assert await brain.restore(ADA, added.id)
    assert [found.trace.id for found in await brain.search(ADA, TraceQuery(query="tea"))] == [added.id]
    assert not await brain.restore(ADA, added.id)


async def test_no_call_reaches_somebody_elses_trace_by_its_id(brain: TraceStore) -> None:
    mine = [await brain.add(ADA, of(ADA, f"{TEA} {number}")) for number in range(2)]
    ids = [each.id for each in mine]
    for viewer in (BEN, NOBODY):
        assert await brain.get(viewer, ids[0]) is None
        assert not await brain.update(viewer, ids[0], content="stolen", tags=("x",))
        assert not await brain.delete(viewer, ids[0])
        assert not await brain.restore(viewer, ids[0])
        assert await brain.offered(viewer, "q", used=ids) == 0
        assert not await brain.search(viewer, TraceQuery(query="tea"))
        with pytest.raises(TraceError, match="Found only 0 active"):
            await brain.merge(viewer, ids)
    assert (await the(brain, ids[0])).content == f"{TEA} 0"


async def test_merging_unites_and_redirects_what_pointed_at_the_sources(brain: TraceStore, clock: Clock) -> None:
    one = await brain.add(ADA, of(ADA, "Ada has a cat", tags=("pet",), strength=0.4, retrieval_count=2))
    clock.move(days=1)
    two = await brain.add(
        ADA, of(ADA, "The cat is called Bit", tags=("cat", "pet"), strength=0.9, retrieval_count=3, emotions={"joy": 1})
    )
    other = await brain.add(ADA, of(ADA, "Vets are open on Saturdays"))
    await link(brain, one.id, two.id, 0.5)
    await link(brain, one.id, other.id, 0.2)
    await link(brain, two.id, other.id, 0.3)
    merged = await brain.merge(ADA, [one.id, two.id, one.id])
    assert merged.sources_deleted == 2
    trace = await the(brain, merged.id)
    assert trace.content == "Ada has a cat\nThe cat is called Bit"
    assert (trace.tags, trace.retrieval_count, trace.emotions) == (("pet", "cat"), 5, {"joy": 1})
    assert trace.strength == pytest.approx(0.9)
    assert await brain.get(ADA, one.id) is None
    assert await edges(brain) == [(merged.id, other.id, 0.3)]
    named = await brain.merge(ADA, [merged.id, other.id], content="One text for both")
    assert (await the(brain, named.id)).content == "One text for both"


async def test_what_cannot_be_merged_is_refused_in_the_words_of_the_contract(brain: TraceStore) -> None:
    mine = await brain.add(ADA, of(ADA, TEA))
    shared = await brain.add(ADA, of(ADA, TEA, "organization"))
    for ids in ([], [mine.id], [mine.id, mine.id]):
        with pytest.raises(TraceError) as caught:
            await brain.merge(ADA, ids)
        assert str(caught.value) == "traceIds must contain at least 2 trace IDs."
    with pytest.raises(TraceError) as caught:
        await brain.merge(ADA, [mine.id, "mt_unknown"])
    assert str(caught.value) == "Found only 1 active trace(s) for the provided IDs. Need at least 2."
    with pytest.raises(TraceError, match="different ones"):
        await brain.merge(ADA, [mine.id, shared.id])
    assert await brain.count(ADA) == 2


async def test_use_strengthens_once_for_each_query(brain: TraceStore, clock: Clock) -> None:
    used = await brain.add(ADA, of(ADA, TEA, strength=0.5, created_at=clock.now, last_accessed_at=clock.now))
    assert await brain.offered(ADA, "q1", used=[used.id]) == 1
    assert await brain.offered(ADA, "q1", used=[used.id]) == 0
    after = await the(brain, used.id)
    assert (after.strength, after.retrieval_count) == (pytest.approx(0.6), 1)
    assert after.stability_ms == pytest.approx(30 * 86_400_000 * 2.5)


async def test_a_new_trace_and_those_like_it_weaken_each_other(brain: TraceStore, clock: Clock) -> None:
    words = " ".join(f"word{number}" for number in range(19))
    old = await brain.add(ADA, of(ADA, f"{words} one", last_accessed_at=clock.now))
    new = await brain.add(ADA, of(ADA, f"{words} two", last_accessed_at=clock.now))
    overlap = (19 / 21 - 0.7) / 0.3
    assert (await the(brain, old.id)).strength == pytest.approx(1 - 0.15 * overlap)
    assert (await the(brain, new.id)).strength == pytest.approx(1 - 0.1 * overlap)
    bens = await brain.add(BEN, of(BEN, f"{words} one"))
    theirs = await brain.get(BEN, bens.id)
    assert theirs is not None
    assert theirs.strength == 1.0  # somebody else's fact weakens nothing


async def test_what_was_added_is_there_after_the_brain_was_opened_again(tmp_path: Path, clock: Clock) -> None:
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock) as brain:
        added = await brain.add(ADA, of(ADA, TEA))
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock) as brain:
        assert [found.trace.id for found in await brain.search(ADA, TraceQuery(query="sugar"))] == [added.id]
    assert (tmp_path / TRACES_NAME).stat().st_mode & 0o077 == 0
