"""What a search ranks is bounded, and what it finds is not: rare words first, then the newest of the frequent ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from gateway.memory import query
from gateway.memory.query import documents_with
from gateway.traces import ranking
from gateway.traces.ranking import index_of
from gateway.traces.rows import insert
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Viewer
from gateway.traces.trace_store import TraceStore
from gateway.traces.word_index import Ranked
from tests.gateway.memory.traces.people import ADA, BEN, of

T = TypeVar("T")


async def put(trace_store: TraceStore, viewer: Viewer, contents: Sequence[str]) -> None:
    await trace_store.database.write(lambda connection: [insert(connection, of(viewer, each)) for each in contents])


async def read(trace_store: TraceStore, work: Callable[[sqlite3.Connection], T]) -> T:
    return await trace_store.database.read(work)


async def found(trace_store: TraceStore, query: str, viewer: Viewer = ADA, limit: int = 100) -> list[str]:
    return [hit.trace.content for hit in await trace_store.search(viewer, TraceQuery(query=query, limit=limit))]


def scores(ranked: Ranked) -> dict[int, float]:
    return {row["number"]: score for row, score in ranked.best}


@pytest.fixture
def few_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ranking, query):
        monkeypatch.setattr(module, "RANKED_AT_MOST", 20)
    monkeypatch.setattr(ranking, "_FEW", 0)


async def test_words_that_only_raise_weigh_what_they_would_as_words_that_find(trace_store: TraceStore) -> None:
    await put(trace_store, ADA, ["green tea", "green tea with milk", "tea with milk and tea", "milk", "green", "water"])

    def work(connection: sqlite3.Connection) -> None:
        together = scores(index_of(connection).best((1,), "green OR tea OR milk", limit=10))
        split = index_of(connection).best((1,), "green", more="tea OR milk", limit=10)
        assert split.among == len(split.best) == 3
        assert scores(split) == pytest.approx({number: together[number] for number in scores(split)})

    await read(trace_store, work)


async def test_of_few_matches_the_owners_ones_are_the_same_as_of_many(trace_store: TraceStore) -> None:
    await put(trace_store, ADA, ["green tea", "green tea with milk", "milk"])
    await put(trace_store, BEN, ["green tea of Ben's", "tea"])

    def work(connection: sqlite3.Connection) -> None:
        for owner in (1, 2):
            of_many = scores(index_of(connection).best((owner,), "tea OR milk", limit=10))
            assert len(of_many) == (3 if owner == 1 else 2)
            assert scores(index_of(connection).best((owner,), "tea OR milk", limit=10, documents=5)) == of_many

    await read(trace_store, work)


@pytest.mark.usefixtures("few_ranked")
async def test_of_a_word_that_is_everywhere_the_newest_are_ranked(trace_store: TraceStore) -> None:
    await put(trace_store, ADA, [f"tea number{number}" for number in range(300)])
    assert set(await found(trace_store, "tea")) == {f"tea number{number}" for number in range(280, 300)}
    assert await read(trace_store, lambda connection: index_of(connection).best((1,), "tea", limit=5).among) == 20


@pytest.mark.usefixtures("few_ranked")
async def test_what_holds_a_rare_word_is_found_however_old_it_is(trace_store: TraceStore) -> None:
    await put(
        trace_store, ADA, ["the zebra drinks tea", *(f"tea number{number} {number % 7}" for number in range(300))]
    )
    await put(trace_store, ADA, [f"coffee number{number}" for number in range(40)])
    answer = await found(trace_store, "tea zebra coffee")
    assert answer[0] == "the zebra drinks tea"
    assert any("coffee" in each for each in answer[1:]), "the other words find, too"


@pytest.mark.usefixtures("few_ranked")
async def test_what_others_have_keeps_nobody_from_finding_by_any_word(trace_store: TraceStore) -> None:
    """The rare word stands in many of Ben's traces, so that those of Ada with the other word are looked for after."""
    await put(trace_store, BEN, [*(f"river bank{number}" for number in range(19)), *(f"stone{n}" for n in range(300))])
    await put(trace_store, ADA, ["a river runs", *(f"a boat{number} and a boat" for number in range(15))])
    assert {each.split()[1] for each in await found(trace_store, "river boat")} == {
        "river", *(f"boat{number}" for number in range(15)),
    }  # fmt: skip


async def test_how_many_traces_hold_a_word_is_counted_or_estimated_from_the_newest(trace_store: TraceStore) -> None:
    await put(trace_store, ADA, [f"{'tea' if number % 4 == 0 else 'water'} and {number}" for number in range(1_000)])

    def work(connection: sqlite3.Connection) -> None:
        assert documents_with(connection, '"tea"') == 250
        assert documents_with(connection, '"tea"', looked_at=50) == pytest.approx(250, rel=0.05)
        assert documents_with(connection, '"1"') == 1, "the numbers of owners are no words"
        assert documents_with(connection, '"nothing"') == 0

    await read(trace_store, work)


async def test_a_type_is_looked_for_before_the_newest_are_taken(trace_store: TraceStore, few_ranked: None) -> None:
    old = of(ADA, "tea as a rule", type="semantic")
    await trace_store.database.write(lambda connection: insert(connection, old))
    await put(trace_store, ADA, [f"tea number{number}" for number in range(300)])
    hits = await trace_store.search(ADA, TraceQuery(query="tea", type="semantic"))
    assert [hit.trace.content for hit in hits] == ["tea as a rule"]
