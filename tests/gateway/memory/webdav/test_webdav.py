"""The Markdown files with a copy on Apache and on wsgidav do all that a memory can do."""

import pytest

from gateway.testing.memory import (
    EditableMemorySuite,
    ErasableMemorySuite,
    HistoricMemorySuite,
    MemoryProviderSuite,
    UnionSuite,
    add,
    scope,
)


class TestWebdav(MemoryProviderSuite, EditableMemorySuite, HistoricMemorySuite, ErasableMemorySuite, UnionSuite):
    @pytest.fixture
    def provider(self, memory):
        return memory


async def test_what_is_noted_here_is_there_and_an_edit_there_is_here(memory, folder):
    await memory.sync(scope("t"), [add("user", "Ada"), add("memory", "Tea.")])
    await memory.settle()
    there = folder / "personalities/assistant/MEMORY.md"
    assert there.read_text() == "Tea.\n"
    there.write_text("Tea.\n\nBy hand.\n")
    await memory.sync(scope("t2"), [add("memory", "Milk.")])
    await memory.settle()
    assert sorted(there.read_text().split()) == ["By", "Milk.", "Tea.", "hand."]
    assert (await memory.prefetch(scope("t3"))).project_memory == there.read_text()


async def test_what_is_noted_while_the_lock_of_an_exchange_is_let_go_is_sent_too(memory, folder, monkeypatch):
    bring_together = memory._bring_together
    later = [("Milk.", "t2"), ("Bread.", "t3")]

    async def and_then_a_turn(key):
        await bring_together(key)
        if later:
            content, turn = later.pop(0)
            await memory.sync(scope(turn), [add("memory", content)])

    monkeypatch.setattr(memory, "_bring_together", and_then_a_turn)
    await memory.sync(scope("t"), [add("memory", "Tea.")])
    await memory.settle()
    assert (folder / "personalities/assistant/MEMORY.md").read_text() == "Tea.\n\nMilk.\n\nBread.\n"
    assert memory.late == 0
