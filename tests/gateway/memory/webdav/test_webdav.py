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
