"""What a quiet turn asks of the store: counted, because a count does not depend on the machine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.store.sqlite.engine import SqliteEngine
from gateway.tools.contract import Arguments
from tests.gateway.way.conftest import House, settled

TURNS = 8
# Accepted, claimed, committed, the reply claimed, and its receipt.
WRITES = 5
# The session, and what was said in it since the last turn.
READS = 2
COMMITS = 5


async def test_a_quiet_turn_asks_the_store_no_more_often_than_it_did(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever adds a question to the way of every message has to raise the numbers above, and see that they do."""
    counted: Counter[str] = Counter()

    def count(owner: type[Any], name: str) -> None:
        plain = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    async with house.gateway() as (gateway, fake):
        for _ in range(3):  # the first contact, and what is read once
            await fake.ask("hello there")
        await settled(gateway)
        count(SqliteEngine, "write")
        count(SqliteEngine, "read")
        count(SqliteEngine, "_commit")
        count(MarkdownFileMemoryProvider, "_read_both")
        count(Arguments, "model_json_schema")
        for _ in range(TURNS):
            await fake.ask("hello there")
        await settled(gateway)
    most = {"write": WRITES, "read": READS, "_commit": COMMITS}
    per_turn = {name: counted[name] / TURNS for name in most}
    allowed = {name: number + 0.5 for name, number in most.items()}  # the search index follows now and then
    assert all(per_turn[name] <= allowed[name] for name in most), per_turn
    assert per_turn["write"] >= WRITES, "a trip was saved: lower the number"
    assert not counted["_read_both"], "nobody has touched the notes"
    assert not counted["model_json_schema"]
