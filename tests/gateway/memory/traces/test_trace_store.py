"""The trace store's own calls: what traces.md says of adding, updating, deleting, merging and using."""

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

ON_BOTH = True


async def the(trace_store: TraceStore, trace_id: str) -> Trace:
    found = await trace_store.get(ADA, trace_id)
    assert found is not None
    return found


async def edges(trace_store: TraceStore) -> list[tuple[str, str, float]]:
    def work(connection):  # type: ignore[no-untyped-def]
        return [tuple(row) for row in connection.execute("SELECT source, target, weight FROM edges ORDER BY 1, 2")]

    return await trace_store.database.read(work)


async def link(trace_store: TraceStore, source: str, target: str, weight: float) -> None:
    sql = "INSERT INTO edges (source, target, kind, weight, created_at) VALUES (?, ?, 'co_activated', ?, 0)"
    await trace_store.database.write(lambda connection: connection.execute(sql, (source, target, weight)).rowcount)


async def test_a_trace_comes_back_with_all_its_fields(trace_store: TraceStore, clock: Clock) -> None:
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
    added = await trace_store.add(ADA, trace)
    assert added.is_new
    assert await trace_store.get(ADA, added.id) == trace


async def test_the_same_content_again_is_the_same_trace_with_the_tags_of_both(trace_store: TraceStore) -> None:
    first = await trace_store.add(ADA, of(ADA, TEA, tags=("tea",)))
    again = await trace_store.add(ADA, of(ADA, TEA, tags=("drinks", "tea")))
    assert (again.id, again.is_new) == (first.id, False)
    assert (await the(trace_store, first.id)).tags == ("tea", "drinks")
    assert await trace_store.count(ADA) == 1


async def test_another_type_scope_or_person_makes_another_trace(trace_store: TraceStore) -> None:
    ids = {
        (await trace_store.add(viewer, trace)).id
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
async def test_blank_content_is_refused(trace_store: TraceStore, content: str) -> None:
    with pytest.raises(TraceError, match="must not be blank"):
        await trace_store.add(ADA, of(ADA, content))
    kept = await trace_store.add(ADA, of(ADA, TEA))
    with pytest.raises(TraceError, match="must not be blank"):
        await trace_store.update(ADA, kept.id, content=content)


async def test_nobody_writes_into_somebody_elses_scope(trace_store: TraceStore) -> None:
    with pytest.raises(TraceError, match="not yours"):
        await trace_store.add(BEN, of(ADA, TEA))
    with pytest.raises(TraceError, match="others read along"):
        NOBODY.owner("user")
    with pytest.raises(TraceError, match="not yours"):
        await trace_store.add(NOBODY, of(ADA, TEA))


async def test_a_hundred_callers_with_the_same_fact_make_one_trace(trace_store: TraceStore) -> None:
    added = await asyncio.gather(*(trace_store.add(ADA, of(ADA, TEA)) for _ in range(100)))
    assert len({each.id for each in added}) == 1
    assert sum(each.is_new for each in added) == 1


async def test_an_update_changes_what_is_given_and_is_found_under_the_new_words(trace_store: TraceStore) -> None:
    added = await trace_store.add(ADA, of(ADA, TEA, tags=("a",), embedding=b"\x00<", embedding_model="small"))
    assert await trace_store.update(ADA, added.id, tags=("b", "b"))
    assert (await the(trace_store, added.id)).tags == ("b",)
    assert (await the(trace_store, added.id)).embedding is not None
    assert await trace_store.update(ADA, added.id, content="Ada drinks coffee")
    changed = await the(trace_store, added.id)
    assert (changed.content, changed.embedding) == ("Ada drinks coffee", None)
    assert not await trace_store.search(ADA, TraceQuery(query="sugar"))
    assert [found.trace.id for found in await trace_store.search(ADA, TraceQuery(query="coffee"))] == [added.id]
    again = await trace_store.add(ADA, of(ADA, "Ada drinks coffee"))
    assert again.id == added.id  # the hash follows


async def test_deleting_hides_and_a_second_time_says_false(trace_store: TraceStore) -> None:
    added = await trace_store.add(ADA, of(ADA, TEA))
    assert await trace_store.delete(ADA, added.id)
    assert not await trace_store.delete(ADA, added.id)
    assert await trace_store.get(ADA, added.id) is None
    assert not await trace_store.search(ADA, TraceQuery(query="tea"))
    assert not await trace_store.update(ADA, added.id, content="x")
    assert await trace_store.restore(ADA, added.id)
    assert [found.trace.id for found in await trace_store.search(ADA, TraceQuery(query="tea"))] == [added.id]
    assert not await trace_store.restore(ADA, added.id)


async def test_no_call_reaches_somebody_elses_trace_by_its_id(trace_store: TraceStore) -> None:
    mine = [await trace_store.add(ADA, of(ADA, f"{TEA} {number}")) for number in range(2)]
    ids = [each.id for each in mine]
    for viewer in (BEN, NOBODY):
        assert await trace_store.get(viewer, ids[0]) is None
        assert not await trace_store.update(viewer, ids[0], content="stolen", tags=("x",))
        assert not await trace_store.delete(viewer, ids[0])
        assert not await trace_store.restore(viewer, ids[0])
        assert await trace_store.offered(viewer, "q", used=ids) == 0
        assert not await trace_store.search(viewer, TraceQuery(query="tea"))
        with pytest.raises(TraceError, match="Found only 0 active"):
            await trace_store.merge(viewer, ids)
    assert (await the(trace_store, ids[0])).content == f"{TEA} 0"


async def test_merging_unites_and_redirects_what_pointed_at_the_sources(trace_store: TraceStore, clock: Clock) -> None:
    one = await trace_store.add(ADA, of(ADA, "Ada has a cat", tags=("pet",), strength=0.4, retrieval_count=2))
    clock.move(days=1)
    two = await trace_store.add(
        ADA, of(ADA, "The cat is called Bit", tags=("cat", "pet"), strength=0.9, retrieval_count=3, emotions={"joy": 1})
    )
    other = await trace_store.add(ADA, of(ADA, "Vets are open on Saturdays"))
    await link(trace_store, one.id, two.id, 0.5)
    await link(trace_store, one.id, other.id, 0.2)
    await link(trace_store, two.id, other.id, 0.3)
    merged = await trace_store.merge(ADA, [one.id, two.id, one.id])
    assert merged.sources_deleted == 2
    trace = await the(trace_store, merged.id)
    assert trace.content == "Ada has a cat\nThe cat is called Bit"
    assert (trace.tags, trace.retrieval_count, trace.emotions) == (("pet", "cat"), 5, {"joy": 1})
    assert trace.strength == pytest.approx(0.9)
    assert await trace_store.get(ADA, one.id) is None
    assert await edges(trace_store) == [(merged.id, other.id, 0.3)]
    named = await trace_store.merge(ADA, [merged.id, other.id], content="One text for both")
    assert (await the(trace_store, named.id)).content == "One text for both"


async def test_what_cannot_be_merged_is_refused_in_the_words_of_the_contract(trace_store: TraceStore) -> None:
    mine = await trace_store.add(ADA, of(ADA, TEA))
    shared = await trace_store.add(ADA, of(ADA, TEA, "organization"))
    for ids in ([], [mine.id], [mine.id, mine.id]):
        with pytest.raises(TraceError) as caught:
            await trace_store.merge(ADA, ids)
        assert str(caught.value) == "traceIds must contain at least 2 trace IDs."
    with pytest.raises(TraceError) as caught:
        await trace_store.merge(ADA, [mine.id, "mt_unknown"])
    assert str(caught.value) == "Found only 1 active trace(s) for the provided IDs. Need at least 2."
    with pytest.raises(TraceError, match="different ones"):
        await trace_store.merge(ADA, [mine.id, shared.id])
    assert await trace_store.count(ADA) == 2


async def test_use_strengthens_once_for_each_query(trace_store: TraceStore, clock: Clock) -> None:
    used = await trace_store.add(ADA, of(ADA, TEA, strength=0.5, created_at=clock.now, last_accessed_at=clock.now))
    assert await trace_store.offered(ADA, "q1", used=[used.id]) == 1
    assert await trace_store.offered(ADA, "q1", used=[used.id]) == 0
    after = await the(trace_store, used.id)
    assert (after.strength, after.retrieval_count) == (pytest.approx(0.6), 1)
    assert after.stability_ms == pytest.approx(30 * 86_400_000 * 2.5)


async def test_a_new_trace_and_those_like_it_weaken_each_other(trace_store: TraceStore, clock: Clock) -> None:
    words = " ".join(f"word{number}" for number in range(19))
    old = await trace_store.add(ADA, of(ADA, f"{words} one", last_accessed_at=clock.now))
    new = await trace_store.add(ADA, of(ADA, f"{words} two", last_accessed_at=clock.now))
    overlap = (19 / 21 - 0.7) / 0.3
    assert (await the(trace_store, old.id)).strength == pytest.approx(1 - 0.15 * overlap)
    assert (await the(trace_store, new.id)).strength == pytest.approx(1 - 0.1 * overlap)
    bens = await trace_store.add(BEN, of(BEN, f"{words} one"))
    theirs = await trace_store.get(BEN, bens.id)
    assert theirs is not None
    assert theirs.strength == 1.0  # somebody else's fact weakens nothing


async def test_what_was_added_is_there_after_the_trace_store_was_opened_again(tmp_path: Path, clock: Clock) -> None:
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock) as trace_store:
        added = await trace_store.add(ADA, of(ADA, TEA))
    async with open_trace_store(tmp_path / TRACES_NAME, now=clock) as trace_store:
        assert [found.trace.id for found in await trace_store.search(ADA, TraceQuery(query="sugar"))] == [added.id]
    assert (tmp_path / TRACES_NAME).stat().st_mode & 0o077 == 0
