"""A brain of an older schema: its index is made once more, and finds what it found."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from gateway.store.schema import migrate, migrations
from gateway.traces.rows import insert
from gateway.traces.search import Wanted
from gateway.traces.search_words import register_functions
from gateway.traces.trace_store import BRAIN_NAME, open_brain
from tests.gateway.memory.traces.people import ADA, of


async def test_traces_of_a_brain_from_before_the_step_are_found_changed_and_hidden(tmp_path: Path) -> None:
    path = tmp_path / BRAIN_NAME
    steps = migrations("gateway.traces")
    migrate(path, prepare=register_functions, steps=[step for step in steps if step.version < 4])
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        register_functions(connection)
        insert(connection, of(ADA, "Rex is a dog"))
        insert(connection, of(ADA, "[user]: Where is the key?\n[assistant]: Under the stone"))
    async with open_brain(path) as brain:
        for word, content in (("dog", "Rex is a dog"), ("stone", "Under the stone")):
            hits = await brain.search(ADA, Wanted(query=word))
            assert [content in hit.trace.content for hit in hits] == [True]
        (key,) = await brain.search(ADA, Wanted(query="key"))
        assert await brain.update(ADA, key.trace.id, content="The key is lost")
        assert not await brain.search(ADA, Wanted(query="stone"))
        assert await brain.delete(ADA, key.trace.id)
        assert not await brain.search(ADA, Wanted(query="key"))
