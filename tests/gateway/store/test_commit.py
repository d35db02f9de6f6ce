"""A turn's commit is all or nothing: at every statement, on a full disk, and through kill -9."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import StoreUnavailable
from gateway.memory.ingest import IngestJob
from gateway.pipeline.commit import TurnCommit
from gateway.pipeline.queues import InboxRow
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.dialect import SQLITE
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.stores import Stores, open_store
from gateway.store.turns import SqlTurns
from tests.conformance.stores import NOTHING, answer, claimed, ended, said, session_of, turn, written

DEADLINE_S = 60


def full_commit(row: InboxRow, text: str = "hello") -> TurnCommit:
    """A turn with every effect there is."""
    turn_id = row.turn_id
    session = session_of("k")
    scope = MemoryScope(personality_id="assistant", user_id="u_ada", session_id=session.id, turn_id=turn_id)
    return ended(
        row,
        session=session,
        messages=(written(session, turn_id, text), written(session, turn_id, text, role="assistant")),
        supersedes="t_before",
        replies=(answer(f"r1-{turn_id}"), answer(f"r2-{turn_id}")),
        memory=(scope, (MemoryUpdate.add("user", "Likes tea."), MemoryUpdate.add("memory", "Tea was spoken of."))),
        ingest=IngestJob(scope=scope, speaker="Ada"),
    )


async def everything(store: Stores) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""

    def work(connection: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
        rows: dict[str, list[tuple[Any, ...]]] = {}
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'search%'")
        for (name,) in names.fetchall():
            found = connection.execute(f"SELECT * FROM {name}")  # noqa: S608 (a table of ours)
            rows[name] = [tuple(row) for row in found]
        return rows

    return await store.engine.read(work)


class FailingDatabase:
    """The database, whose `fail_at`th statement of a work fails, after it was run or before."""

    def __init__(self, database: SqliteEngine, fail_at: int, *, is_after: bool) -> None:
        self._database = database
        self._fail_at = fail_at
        self._is_after = is_after
        self.statements = 0

    async def write(self, work: Callable[[Any], Any], *, is_durable: bool = True, **options: bool) -> Any:
        def run(connection: sqlite3.Connection) -> Any:
            self.statements = 0  # beside the work of another task it is run twice
            return work(_Failing(connection, self))

        return await self._database.write(run, is_durable=is_durable, **options)

    write_at_once = SqliteEngine.write_at_once

    def run(self, do: Callable[[], Any]) -> Any:
        self.statements += 1
        if self.statements != self._fail_at:
            return do()
        if self._is_after:
            do()
        raise sqlite3.OperationalError(f"made up, at statement {self._fail_at}")


class _Failing:
    dialect = SQLITE
    may_be_done = is_at_once = False

    def __init__(self, connection: sqlite3.Connection, by: FailingDatabase) -> None:
        self._connection = connection
        self._by = by

    def execute(self, sql: str, values: Any = ()) -> Any:
        return self._by.run(lambda: self._connection.execute(sql, values))

    def executemany(self, sql: str, rows: Any) -> Any:
        return self._by.run(lambda: self._connection.executemany(sql, rows))


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_failure_at_any_statement_of_a_turns_commit_leaves_nothing_of_it(store: Stores, is_after: bool) -> None:
    """Row 4."""
    await turn(store, session=session_of("k"), messages=(written(session_of("k"), "t_before", "old"),))
    await store.turns.save_steps("t_a", "steps", is_durable=True)
    await store.inbox.add(said("a"), "t_a")
    commit = full_commit(await claimed(store))
    before = await everything(store)
    fail_at = 0
    while True:
        fail_at += 1
        failing = FailingDatabase(store.engine, fail_at, is_after=is_after)
        turns = SqlTurns(failing)
        try:
            await turns.commit_turn(commit)
        except sqlite3.OperationalError:
            assert await everything(store) == before, f"statement {fail_at} of the commit"
        else:
            break
    assert fail_at > 12, "the failure was injected at every statement"
    assert await everything(store) != before
    assert (await store.sessions.messages("s_k"))[0].is_superseded


async def test_a_disk_that_is_full_at_any_page_of_the_commit_leaves_nothing_and_works_again_when_there_is_room(
    store: Stores,
) -> None:
    await store.inbox.add(said("a"), "t_a")
    commit = full_commit(await claimed(store), text="word " * 4000)
    before = await everything(store)
    pages = await store.engine.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    refusals: list[str] = []
    for room in range(1000):
        await limit_pages(store, pages + room)
        try:
            await store.turns.commit_turn(commit)
        except StoreUnavailable as error:
            refusals.append(str(error))
            assert await everything(store) == before
        else:
            break
    assert len(refusals) > 3
    assert all("SQLITE_FULL" in refusal for refusal in refusals)
    assert await everything(store) != before
    assert await store.problems() == []


async def test_nothing_is_accepted_on_a_full_disk_and_the_same_message_is_when_there_is_room(
    store: Stores,
) -> None:
    pages = await store.engine.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    await limit_pages(store, pages)
    big = said("a", text="x" * 100_000)
    with pytest.raises(StoreUnavailable):
        await store.inbox.add(big, "t_a")
    assert await store.lanes.look("me") == NOTHING
    await limit_pages(store, 1_000_000)
    assert await store.inbox.add(big, "t_b") is not None
    assert (await claimed(store)).turn_id == "t_b"


async def test_search_goes_on_with_what_is_indexed_while_the_disk_is_full(store: Stores) -> None:
    session = session_of("k")
    await turn(store, session=session, messages=(written(session, "t_1", "first word"),))
    assert len(await store.sessions.search_messages("word", user_id=None)) == 1
    await store.index.close()
    await turn(store, session=session, messages=tuple(written(session, "t_2", f"{i} word " * 99) for i in range(60)))
    await limit_pages(store, 1)
    assert len(await store.sessions.search_messages("word", user_id=None)) == 1
    await limit_pages(store, 1_000_000)
    assert len(await store.sessions.search_messages("word", user_id=None, limit=100)) == 61


async def limit_pages(store: Stores, pages: int) -> None:
    await store.engine.write(lambda c: c.execute(f"PRAGMA max_page_count = {pages}").fetchall(), is_durable=False)


# ---- kill -9 --------------------------------------------------------------------------------------------------------

_COMMITS_AND_HANGS = """
import asyncio, sys
from pathlib import Path
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.stores import open_store
from gateway.store.turns import SqlTurns
from tests.conformance.stores import claimed, said
from tests.gateway.store.test_commit import full_commit

class Hanging:
    def __init__(self, database):
        self.database = database
    async def write(self, work, *, is_durable=True, **options):
        def hang(connection):
            work(connection)
            print("written", flush=True)
            sys.stdin.read()
        return await self.database.write(hang)
    write_at_once = SqliteEngine.write_at_once

async def main():
    store = open_store(Path(sys.argv[1]))
    await store.inbox.add(said("a"), "t_a")
    row = await claimed(store)
    await SqlTurns(Hanging(store.engine)).commit_turn(full_commit(row))
asyncio.run(main())
"""

_ACCEPTS_AND_ANSWERS = """
import asyncio, sys
from pathlib import Path
from gateway.messages import ConversationRef
from gateway.store.stores import open_store
from tests.conformance.stores import claimed, said
from tests.gateway.store.test_commit import full_commit

async def main():
    store = open_store(Path(sys.argv[1]))
    await store.lanes.recover("the next process")
    async def converse(number):
        where = ConversationRef(channel="web", conversation=str(number))
        for i in range(100_000):
            name = f"{sys.argv[2]}-{number}-{i}"
            await store.inbox.add(said(name, where), f"t_{name}")
            print("in", name, flush=True)
            row = await claimed(store, where)
            await store.turns.commit_turn(full_commit(row))
            print("out", row.turn_id, flush=True)
    await asyncio.gather(*map(converse, range(8)))
asyncio.run(main())
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


def end(process: subprocess.Popen[str]) -> str:
    """Kill it; what it had written that is not read yet, also what lies in our buffer, which `communicate` forgets."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.send_signal(signal.SIGKILL)
    with process.stdin, process.stdout:
        rest = process.stdout.read()
    process.wait(timeout=DEADLINE_S)
    return rest


async def test_a_process_killed_between_the_writes_and_the_commit_of_a_turn_leaves_nothing_of_it(path: Path) -> None:
    process = start(_COMMITS_AND_HANGS, path)
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
    assert readable
    assert process.stdout.readline() == "written\n"
    end(process)
    store = open_store(path)
    try:
        assert await store.sessions.active_session("k") is None
        assert await store.outbox.unsent() == []
        assert await store.turns.unsettled_memory() == []
        assert await store.lanes.recover("the next process") == 1
        row = await claimed(store)
        assert (row.turn_id, row.attempts, row.lone_deaths) == ("t_a", 1, 1)
        await store.turns.commit_turn(full_commit(row))
        assert len(await store.sessions.messages("s_k")) == 2
    finally:
        await store.close()


@pytest.mark.slow
async def test_what_was_said_to_be_committed_is_there_after_kill_9_at_any_moment(path: Path) -> None:
    """Row 1."""
    accepted: set[str] = set()
    answered: set[str] = set()
    for life, lines in enumerate((40, 173, 391)):
        process = start(_ACCEPTS_AND_ANSWERS, path, f"{life}")
        assert process.stdout is not None
        said_lines = [process.stdout.readline() for _ in range(lines)]
        assert all(said_lines), "it ran until it was killed"
        said_lines += end(process).splitlines(keepends=True)
        for line in said_lines:
            if line.endswith("\n"):  # the last line may be cut
                kind, name = line.split()
                (accepted if kind == "in" else answered).add(name)
    store = open_store(path)
    try:
        rows = {row.turn_id: row for row in await store.deliveries.rows("inbox", chosen="all", limit=10**6)}
        assert {f"t_{name}" for name in accepted} <= set(rows)
        for turn_id in answered:
            assert rows[turn_id].state == "done"
        done = {turn_id for turn_id, row in rows.items() if row.state == "done"}
        replies = await store.deliveries.rows("outbox", chosen="all", limit=10**6)
        assert sorted(row.id for row in replies) == sorted(f"r{n}-{turn_id}" for turn_id in done for n in (1, 2))
        messages = await store.sessions.messages("s_k")
        assert sorted(message.turn_id for message in messages) == sorted([*done, *done])
        assert {scope.turn_id for scope, _ in await store.turns.unsettled_memory()} == done
        assert await store.problems() == []
    finally:
        await store.close()
