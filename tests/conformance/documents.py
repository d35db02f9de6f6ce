"""What documents in the gateway's own database must do besides what every memory must.

A turn commits what the memory shall become to the journal of the same database. So the next reader of a document
applies that first, in the order of the commits, however many workers there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise

import pytest

from gateway.errors import MemoryConflict
from gateway.memory import rules
from gateway.memory.stored.memory import StoredMemory
from gateway.memory.stored.whole import WholeDocument
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate
from gateway.store.documents import SqlDocuments
from gateway.store.engine import Engine
from gateway.store.memory_journal import ask_unsettled, insert_pending
from gateway.testing.memory import (
    EditableMemorySuite,
    ErasableMemorySuite,
    HistoricMemorySuite,
    MemoryProviderSuite,
    UnionSuite,
    add,
    remove,
    replace,
    scope,
)

SHARED = "personalities/assistant/MEMORY.md"


class DocumentMemorySuite(
    MemoryProviderSuite, EditableMemorySuite, HistoricMemorySuite, ErasableMemorySuite, UnionSuite
):
    """Give it a fixture `provider`: a `StoredMemory` over empty `SqlDocuments`."""


async def committed(engine: Engine, at: MemoryScope, *updates: MemoryUpdate) -> None:
    """As the commit of a turn leaves it, whose worker dies before it has applied anything."""
    await engine.write(partial(insert_pending, scope=at, updates=updates, at=datetime.now(UTC)))


async def unsettled(engine: Engine) -> int:
    """Turns whose updates are not in the memory yet."""
    return len(await engine.ask(ask_unsettled))


async def project(memory: StoredMemory, at: MemoryScope) -> str | None:
    found = await memory.prefetch(at)
    return None if found is None else found.project_memory


class DocumentSuite:
    """Give it a fixture `engine`, an empty database, and `worker`: makes the memory as one more worker has it."""

    async def test_a_turn_reads_what_was_committed_before_it_whoever_left_it(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        await committed(engine, scope("t1"), add("memory", "Tea."), add("user", "Ada."))
        assert await worker().prefetch(scope("t2")) == MemoryContext(user_memory="Ada.\n", project_memory="Tea.\n")
        assert await unsettled(engine) == 0

    async def test_what_is_applied_by_a_reader_is_not_applied_again(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        await committed(engine, scope("t1"), add("memory", "Tea."))
        await worker().prefetch(scope("t2"))
        report = await worker().sync(scope("t1"), [add("memory", "Tea.")])
        assert report.outcomes == ("replayed",)
        assert await project(worker(), scope("t3")) == "Tea.\n"

    async def test_all_that_was_committed_for_a_document_is_applied_in_the_order_of_the_commits(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        await committed(engine, scope("t1", user="u_1"), add("memory", "One."))
        await committed(engine, scope("t2", user="u_2"), replace("memory", "Two."))
        await committed(engine, scope("t3", user="u_1"), add("memory", "Three."))
        report = await worker().sync(scope("t3", user="u_1"), [add("memory", "Three.")])
        assert report.outcomes == ("applied",)
        assert await project(worker(), scope("t4")) == "Two.\n\nThree.\n"
        entries = await worker().log(scope("t4"))
        assert [entry.turn_id for entry in entries] == ["t3", "t2", "t1"]

    async def test_many_who_read_at_once_apply_what_waits_once(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        for number in range(20):
            await committed(engine, scope(f"t{number}"), add("memory", f"<{number}>"))
        found = await asyncio.gather(*(project(worker(), scope(f"r{n}")) for n in range(8)))
        assert set(found) == {"\n\n".join(f"<{number}>" for number in range(20)) + "\n"}

    async def test_what_found_nothing_is_settled_too(self, engine: Engine, worker: Callable[[], StoredMemory]) -> None:
        await committed(engine, scope("t1"), remove("memory", "no such line"))
        assert await worker().prefetch(scope("t2")) is None
        assert await unsettled(engine) == 0

    async def test_malformed_ids_of_another_turn_hold_up_no_reader(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        await committed(engine, scope("t1", user="no id"), add("memory", "Tea."), add("user", "Bad."))
        assert await project(worker(), scope("t2")) == "Tea.\n"

    async def test_many_workers_change_one_document_and_none_loses_an_update(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        async def write(name: int) -> None:
            memory = worker()
            for number in range(10):
                at = scope(f"w{name}-{number}")
                await committed(engine, at, add("memory", f"<{name}-{number}>"))
                await memory.sync(at, [add("memory", f"<{name}-{number}>")])

        await asyncio.gather(*(write(name) for name in range(8)))
        found = (await project(worker(), scope("r")) or "").split()
        assert sorted(found) == sorted(f"<{name}-{number}>" for name in range(8) for number in range(10))
        log = [entry for entry in await worker().log(scope("r"), limit=200) if entry.outcome == "applied"]
        assert len(log) == 80
        assert all(newer.hash_before == older.hash_after for newer, older in pairwise(log))

    async def test_a_version_counts_the_changes_of_a_document(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        await worker().sync(scope("t1"), [add("memory", "Tea."), add("memory", "Milk.")])
        read = await worker().read(scope("p"), "memory")
        await worker().write(scope("p"), "memory", "Tea and milk.\n", read.version)
        row = await engine.row("SELECT version, sha256 FROM documents WHERE path = ?", (SHARED,))
        assert tuple(row) == (2, rules.version(b"Tea and milk.\n"))

    async def test_a_person_who_writes_over_another_text_gets_both(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        read = await worker().read(scope("p"), "memory")
        await committed(engine, scope("t1"), add("memory", "Tea."))
        await worker().prefetch(scope("t2"))
        with pytest.raises(MemoryConflict) as caught:
            await worker().write(scope("p"), "memory", "Coffee.\n", read.version)
        assert (caught.value.current, caught.value.proposed) == ("Tea.\n", "Coffee.\n")
        assert await project(worker(), scope("t3")) == "Tea.\n"

    async def test_what_an_erased_person_has_committed_comes_into_no_document_any_more(
        self, engine: Engine, worker: Callable[[], StoredMemory]
    ) -> None:
        await committed(engine, scope("t1", user="u_1"), add("memory", "Of u_1."))
        await committed(engine, scope("t2", user="u_2"), add("memory", "Of u_2."))
        await worker().erase(["u_1"], {})
        assert await project(worker(), scope("t3", user="u_2")) == "Of u_2.\n"
        assert await unsettled(engine) == 0

    async def test_an_erasure_is_one_more_version(self, engine: Engine, worker: Callable[[], StoredMemory]) -> None:
        await worker().sync(scope("t1", user="u_1"), [add("memory", "Of u_1.")])
        await worker().sync(scope("t2", user="u_2"), [add("memory", "Of u_2.")])
        await worker().erase(["u_1"], {SHARED: ["Of u_1."]})
        row = await engine.row("SELECT version FROM documents WHERE path = ?", (SHARED,))
        assert row[0] == 3
        assert await project(worker(), scope("t3", user="u_2")) == "Of u_2.\n"

    async def test_documents_that_are_none_of_the_memory_are_not_listed(
        self, engine: Engine, worker: Callable[[], StoredMemory], documents: SqlDocuments
    ) -> None:
        del engine
        await worker().sync(scope("t1"), [add("memory", "Tea.")])
        whole = await documents.whole(SHARED)
        soul = "personalities/assistant/SOUL.md"
        [nothing] = await documents.load([soul])
        assert await documents.put_whole(soul, WholeDocument(document=whole.document), instead_of=nothing)
        assert await worker().keys() == [SHARED]
