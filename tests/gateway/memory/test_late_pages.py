"""What is late is found wherever it stands in the journal: many workers do not commit in the order of its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.memory import sync
from gateway.memory.sync import MemorySync
from gateway.protocols import MemoryScope, MemoryUpdate, SyncReport
from gateway.store.stores import Stores, open_store
from tests.conformance.stores import turn
from tests.small_memories import NotedMemory


def scope(turn_id: str) -> MemoryScope:
    return MemoryScope(personality_id="assistant", user_id="u", session_id=None, turn_id=turn_id)


async def commits(store: Stores, turn_id: str, number: int) -> None:
    """A turn whose update has this number in the journal."""
    await turn(store, memory=(scope(turn_id), (MemoryUpdate.add("user", turn_id),)))
    sql = "UPDATE memory_journal SET id = ? WHERE turn_id = ?"
    await store.engine.write(lambda connection: connection.execute(sql, (number, turn_id)).rowcount)


class Beside(NotedMemory):
    """Another worker commits what stands before it, while this is brought into the memory."""

    def __init__(self, store: Stores) -> None:
        super().__init__()
        self._store = store

    async def sync(self, scope: MemoryScope, updates: list[MemoryUpdate]) -> SyncReport:  # type: ignore[override]
        if scope.turn_id == "second":
            await commits(self._store, "committed later", 15)
        return await super().sync(scope, updates)


async def test_what_is_committed_later_and_stands_before_what_was_read_is_applied_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "PAGE_TURNS", 1)
    store = open_store(tmp_path / "ethos.db")
    try:
        for number, name in enumerate(("first", "second", "third"), 1):
            await commits(store, name, number * 10)
        memory = Beside(store)
        assert await MemorySync(memory, store.turns).replay() == 4
        assert [*memory.texts.values()] == ["first\nsecond\nthird\ncommitted later\n"]
        assert await store.turns.unsettled_memory() == []
    finally:
        await store.close()
