"""Facts go along with a store, from a file into the tables of a server and back, and are found there."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.ops import moving_facts
from gateway.ops.moving_facts import copy_facts
from gateway.store.engine import Connection, statement
from gateway.store.postgres.engine import PostgresEngine
from gateway.traces.archive import rehydrate
from gateway.traces.search import TraceQuery
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store, shared_trace_store
from tests.gateway.memory.traces.people import ADA, of
from tests.gateway.memory.traces.transfer.corpora import all_of

VECTOR = bytes(range(1, 129))


async def keep(trace_store: TraceStore) -> None:
    """Facts of all kinds, and what belongs to them."""
    for number in range(1_200):
        fact = of(ADA, f"tea of day {number}", embedding=VECTOR, embedding_model="m", conversation="c")
        if number < 3 or number > 1_190:
            await trace_store.add(ADA, fact)
    await trace_store.delete(ADA, (await trace_store.add(ADA, of(ADA, "hidden tea"))).id)
    kept = (await trace_store.add(ADA, of(ADA, "running shoes by the door"))).id

    def more(connection: Connection) -> None:
        connection.execute(
            "INSERT INTO archive (trace, verbatim, content_hash, archived_at) VALUES (?, ?, ?, 1)", (kept, "old", "x")
        )
        connection.execute("DELETE FROM uncompared WHERE number = 1")

    await trace_store.database.write(more)
    await rehydrate(trace_store, ADA, kept)
    await trace_store.offered(ADA, "q", used=[kept])


async def test_facts_go_to_a_server_and_come_back(postgres_url: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for directory in (one, two):
        directory.mkdir()
    engine = PostgresEngine(postgres_url, connections=2)
    try:
        await copy_facts(one, postgres_url, lambda *_: None)  # there are none
        async with open_trace_store(one / TRACES_NAME) as trace_store:
            await keep(trace_store)
        told: dict[str, int] = {}
        await copy_facts(one, postgres_url, told.__setitem__)
        async with open_trace_store(one / TRACES_NAME) as trace_store:
            await trace_store.database.write(statement("UPDATE traces SET strength = 0.25 WHERE number = 1"))
            before = await all_of(trace_store)
        await copy_facts(one, postgres_url, told.__setitem__)  # what is there is not the source's any more
        assert told["traces"] == len(before["traces"])
        shared = shared_trace_store(engine)
        assert await all_of(shared) == before
        [hit] = await shared.search(ADA, TraceQuery(query="runs shoe"))
        assert hit.trace.content == "running shoes by the door"
        assert (await shared.database.row("SELECT count(*) FROM signatures"))[0] == 12
        assert (await shared.add(ADA, of(ADA, "a new one"))).is_new, "numbers go on"
        after = await all_of(shared)
        await copy_facts(postgres_url, two, lambda *_: None)
        async with open_trace_store(two / TRACES_NAME) as back:
            assert await all_of(back) == after
            [hit] = await back.search(ADA, TraceQuery(query="runs shoe"))
            assert hit.trace.content == "running shoes by the door"
    finally:
        await engine.close()


async def test_what_differs_in_the_end_is_named(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_trace_store(tmp_path / TRACES_NAME) as trace_store:
        await keep(trace_store)
    put = moving_facts._put

    def broken(connection: Connection, **values: object) -> None:
        put(connection, **values)  # type: ignore[arg-type]
        connection.execute("UPDATE traces SET strength = 0.5")

    monkeypatch.setattr(moving_facts, "_put", broken)
    with pytest.raises(StoreError, match=r"are not those of .*: traces"):
        await copy_facts(tmp_path, postgres_url, lambda *_: None)


async def test_broken_off_after_every_batch_they_go_on(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_trace_store(tmp_path / TRACES_NAME) as trace_store:
        await keep(trace_store)
    monkeypatch.setattr(moving_facts, "_AT_ONCE", 8)
    batches: list[tuple[str, int]] = []

    def break_off(table: str, amount: int) -> None:
        assert (table, amount) not in batches, "copied twice"
        batches.append((table, amount))
        raise InterruptedError

    is_whole = False
    while not is_whole:
        with contextlib.suppress(InterruptedError):
            await copy_facts(tmp_path, postgres_url, break_off)
            is_whole = True
    assert [amount for table, amount in batches if table == "traces"] == [8, 14]
