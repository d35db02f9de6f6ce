"""A copy has every row, and says so only after it has read each back; what it cannot do safely it refuses."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from gateway.errors import StoreError, StoreMoved
from gateway.ops.moving import Place, back_up_into, opened
from gateway.store import copying
from gateway.store.copying import Copying, undo
from gateway.store.engine import Connection
from gateway.store.stores import open_postgres, open_store
from gateway.store.tables import Line, Parent, Table, in_order
from tests.gateway.store.copying import ends
from tests.gateway.store.copying.conftest import Empty
from tests.gateway.store.copying.ends import accept, copied, count, digests, execute, filled, searched, silent, state

pytestmark = pytest.mark.slow

PAIRS = [("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite"), ("postgres", "postgres")]
both_ways = pytest.mark.parametrize(("one", "other"), PAIRS)
on_both = pytest.mark.parametrize("engine", ["sqlite", "postgres"])


def serve(place: Place) -> None:
    """As a start opens it."""
    store = open_store(place / "ethos.sqlite") if isinstance(place, Path) else open_postgres(place)
    asyncio.run(store.close())


@both_ways
async def test_there_and_back_every_table_has_the_same_digest(one: str, other: str, empty: Empty) -> None:
    first, second, third = empty(one), empty(other), empty(one)
    await filled(first)
    before = await digests(first)
    assert {"messages", "memory_journal", "erased_events", "usage_days", "session_keys"} <= before.keys()
    there = await copied(first, second)
    assert {table.name: table.digest for table in there if table.amount} == before
    await copied(second, third)
    assert await digests(second) == await digests(third) == before


@both_ways
async def test_numbers_go_on_above_all_that_were_ever_given_out(one: str, other: str, empty: Empty) -> None:
    first, second = empty(one), empty(other)
    await filled(first)
    await copied(first, second)
    async with opened(first) as source, opened(second) as target:
        await target.engine.write(partial(ends.fill, sessions=1, messages=1, seed=2))
        [(highest,)] = await source.engine.rows("SELECT max(id) FROM memory_journal")
        [(lowest,)] = await target.engine.rows("SELECT min(id) FROM memory_journal WHERE turn_id LIKE 't_2_%'")
        assert lowest == highest + 2  # one was given out, and deleted


@both_ways
async def test_a_search_finds_the_same_at_both_ends(one: str, other: str, empty: Empty) -> None:
    first, second = empty(one), empty(other)
    await filled(first)
    await copied(first, second)
    async with opened(first) as source, opened(second) as target:
        await source.index()
        for word in ("apple", "漢字", "umlaut", '"b apple"'):
            assert await searched(source, word) == await searched(target, word)
        assert await searched(target, "apple")


async def test_a_server_knows_how_many_rows_there_are_before_the_first_plan_is_made(empty: Empty) -> None:
    first, second = empty("sqlite"), empty("postgres")
    await filled(first)
    await copied(first, second)
    known = "SELECT relname, reltuples FROM pg_class WHERE relname IN ('messages', 'sessions') AND relkind = 'r'"
    async with opened(second) as target:
        for name, tuples in await target.engine.rows(known):
            assert tuples == await count(second, name) > 0
        asked = "SELECT count(*) FROM pg_stats WHERE tablename = 'messages' AND attname = 'words'"
        assert (await target.engine.row(asked))[0] == 1


@both_ways
async def test_the_source_is_not_served_any_more_and_the_target_is(one: str, other: str, empty: Empty) -> None:
    first, second = empty(one), empty(other)
    await filled(first)
    await copied(first, second)
    assert (await state(first), await state(second)) == ("moved", "arrived")
    with pytest.raises(StoreMoved, match="was moved to"):
        await asyncio.to_thread(serve, first)
    await asyncio.to_thread(serve, second)
    with pytest.raises(StoreMoved, match="nothing left to copy"):
        await copied(first, empty(other))


@both_ways
async def test_a_move_is_taken_back_as_long_as_nothing_was_accepted(one: str, other: str, empty: Empty) -> None:
    first, second = empty(one), empty(other)
    await filled(first)
    await execute(first, "DELETE FROM copy_state")
    async with opened(first) as end:
        await end.engine.write(partial(accept, turn_id="t_old"))
    await copied(first, second)
    async with opened(first) as source, opened(second) as target:
        await undo(source, target)
    assert (await state(first), await state(second)) == (None, "arriving")
    await asyncio.to_thread(serve, first)
    with pytest.raises(StoreMoved, match="is not complete"):
        await asyncio.to_thread(serve, second)
    await filled(first, seed=2)  # it is used again
    await copied(first, second)
    assert await digests(first) == await digests(second)
    async with opened(first) as source, opened(second) as target:
        await target.engine.write(partial(accept, turn_id="t_new"))
        with pytest.raises(StoreError, match="accepted messages since"):
            await undo(source, target)
    assert (await state(first), await state(second)) == ("moved", "arrived")


async def test_to_take_back_a_move_to_another_place_is_refused(empty: Empty) -> None:
    first, second, third = empty("sqlite"), empty("sqlite"), empty("sqlite")
    await filled(first)
    async with opened(first) as source, opened(third) as wrong:
        with pytest.raises(StoreError, match="nothing to undo"):
            await undo(source, wrong)
    await copied(first, second)
    async with opened(first) as source, opened(third) as wrong:
        with pytest.raises(StoreError, match="was moved to"):
            await undo(source, wrong)


@on_both
async def test_a_target_with_rows_of_its_own_is_left_as_it_is(engine: str, empty: Empty) -> None:
    first, second = empty("sqlite"), empty(engine)
    await filled(first)
    await filled(second, seed=5)
    before = await digests(second)
    with pytest.raises(StoreError, match=r"is not empty \(`\w+` has rows\): nothing was copied"):
        await copied(first, second)
    assert await digests(second) == before
    assert (await state(first), await state(second)) == (None, None)


async def test_a_target_that_was_copied_to_before_is_left_as_it_is(empty: Empty) -> None:
    first, second, third = empty("sqlite"), empty("sqlite"), empty("sqlite")
    await filled(first)
    await copied(first, second)
    await filled(third, seed=3)
    with pytest.raises(StoreError, match="Name an empty database"):
        await copied(third, second)
    assert await state(third) is None


class Broken(Exception):
    """The process ends, as far as the copy knows."""


async def broken_off(source: Place, target: Place, *, after: int) -> None:
    """Copy so many batches."""
    left = after

    def told(table: str, amount: int) -> None:
        nonlocal left
        if amount:
            left -= 1
            if left == 0:
                raise Broken

    async with opened(source) as one, opened(target) as other:
        with pytest.raises(Broken):
            await Copying(one, other, told=told).move()


@both_ways
async def test_a_broken_copy_goes_on_where_it_stopped(
    one: str, other: str, empty: Empty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_ROWS", 7)
    first, second = empty(one), empty(other)
    await filled(first)
    await broken_off(first, second, after=12)
    assert await state(second) == "arriving"
    async with opened(second) as end:
        done = dict(await end.engine.rows("SELECT table_name, amount FROM copy_progress WHERE amount > 0"))
    for table, amount in done.items():
        assert await count(second, table) == amount
    written: list[tuple[str, int]] = []
    async with opened(first) as source, opened(second) as target:
        put = target.put

        def noted(connection: Connection, table: Table, lines: Sequence[Line]) -> None:
            written.append((table.name, len(lines)))
            put(connection, table, lines)

        monkeypatch.setattr(target, "put", noted)
        await Copying(source, target, told=silent).move()
    for table in {table for table, _ in written}:
        rows = sum(amount for name, amount in written if name == table)
        assert await count(second, table) == rows + done.get(table, 0)
    assert await digests(first) == await digests(second)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sessions SET title = 'another'",
        "DELETE FROM session_keys",
        "INSERT INTO erasures VALUES ('a', 1)",
        "DELETE FROM erased_events",
    ],
)
async def test_where_the_source_was_changed_since_all_is_copied_again(
    change: str, empty: Empty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_ROWS", 7)
    first, second = empty("sqlite"), empty("postgres")
    await filled(first)
    await broken_off(first, second, after=16)
    await execute(first, change)
    await filled(first, seed=4)
    await copied(first, second)
    assert await digests(first) == await digests(second)


@both_ways
async def test_a_row_that_the_target_has_otherwise_is_found(one: str, other: str, empty: Empty) -> None:
    first, second = empty(one), empty(other)
    await filled(first)
    async with opened(first) as source, opened(second) as target:

        async def spoil() -> None:
            await target.engine.write(
                lambda connection: connection.execute("UPDATE sessions SET is_pinned = NOT is_pinned").rowcount
            )

        index, target.index = target.index, spoil  # type: ignore[method-assign]
        with pytest.raises(StoreError, match=r"`sessions` of .* rows that are not"):
            await Copying(source, target, told=silent).move()
        target.index = index  # type: ignore[method-assign]
    assert await state(first) in (None, "leaving")
    assert await state(second) == "arriving"


async def test_a_snapshot_does_not_see_what_is_written_while_it_is_copied(
    empty: Empty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(copying, "BATCH_ROWS", 5)
    first = empty("postgres")
    await filled(first)
    before = await digests(first)
    (tmp_path / "backup").mkdir()
    loop = asyncio.get_running_loop()
    written = 0

    def told(table: str, amount: int) -> None:
        nonlocal written
        if amount and table in ("sessions", "messages"):
            written += 1
            asyncio.run_coroutine_threadsafe(filled(first, seed=written + 10), loop).result()

    await back_up_into(tmp_path / "backup", first, told)
    assert written > 3
    assert await digests(tmp_path / "backup") == before
    assert (await state(first), await state(tmp_path / "backup")) == (None, None)
    await asyncio.to_thread(serve, tmp_path / "backup")


async def test_how_much_is_in_memory_does_not_depend_on_how_many_rows_there_are(
    empty: Empty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_CHARS", 50_000)
    peaks = []
    for messages in (300, 1_200):
        first, second = empty("sqlite"), empty("postgres")
        await filled(first, messages=messages)
        await execute(first, "UPDATE messages SET text = text || ?", "x" * 3_000)
        tracemalloc.start()
        await copied(first, second)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 500_000
    assert peaks[1] < 3_000_000


async def test_a_server_whose_workers_are_alive_is_left_alone(empty: Empty) -> None:
    first, second = empty("postgres"), empty("sqlite")
    await filled(first)
    await execute(
        first,
        "CREATE TABLE IF NOT EXISTS workers (id text, name text, version text, config_hash text, roles text,"
        " turns bigint, started_at bigint, beat_at bigint, is_draining boolean)",
    )
    await execute(first, "INSERT INTO workers VALUES ('w', 'one', '1', '', 'turns', 0, 0, now_ms() - 20000, false)")
    with pytest.raises(StoreError, match=r"workers use .*: one\. Stop them first"):
        await copied(first, second)
    assert await state(first) is None
    await execute(first, "UPDATE workers SET beat_at = now_ms() - 40000")
    await copied(first, second)
    assert await state(first) == "moved"


async def test_a_server_that_is_being_copied_is_closed_until_that_is_done_or_given_up(empty: Empty) -> None:
    first, second = empty("postgres"), empty("sqlite")
    await filled(first)
    await broken_off(first, second, after=3)
    with pytest.raises(StoreMoved, match="is being copied to"):
        await asyncio.to_thread(serve, first)
    async with opened(first) as source, opened(second) as target:
        await undo(source, target)
    await asyncio.to_thread(serve, first)


async def test_two_schemas_that_differ_are_not_copied(empty: Empty) -> None:
    first, second = empty("sqlite"), empty("sqlite")
    await filled(first)
    await execute(first, "ALTER TABLE usage ADD COLUMN mood TEXT")
    with pytest.raises(StoreError, match=r"have not the same tables \(usage\)"):
        await copied(first, second)


def test_parents_come_before_their_children() -> None:
    def table(name: str, *parents: str) -> Table:
        found = tuple(Parent(column="id", table=each, of="id") for each in parents)
        return Table(name=name, columns=("id",), key=("id",), flags=frozenset(), parents=found, numbered=None)

    ordered = [each.name for each in in_order([table("a", "b"), table("b", "c", "b"), table("c"), table("d")])]
    assert ordered.index("c") < ordered.index("b") < ordered.index("a")
