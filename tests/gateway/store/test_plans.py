"""Lists of a full store are read by an index, from its end: no list reads every row, or sorts what it reads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.messages import ConversationRef
from gateway.store.session_edits import SessionFilter, SqlSessionEdits
from gateway.store.sqlite.engine import connect
from gateway.store.stores import Stores, open_store
from tests.conformance.stores import said

MOST = {"": 9, "local": 9}
PAGE_BYTES, FRAME_HEADER_BYTES = 4096, 24  # https://www.sqlite.org/fileformat2.html#walformat


def plan_of(path: Path, statements: list[str]) -> list[str]:
    """What SQLite says it would do, step by step."""
    with closing(sqlite3.connect(path)) as database:
        return [row[3] for statement in statements for row in database.execute(f"EXPLAIN QUERY PLAN {statement}")]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that the store reads with, with its values in it."""
    seen: list[str] = []
    connect = sqlite3.connect

    def connecting(*args: object, **kwargs: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)  # type: ignore[call-overload]
        connection.set_trace_callback(seen.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connecting)
    return seen


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (SessionFilter(), "sessions_by_time"),
        (SessionFilter(user_id="u"), "sessions_of_user"),
        (SessionFilter(channel="web"), "sessions_of_channel"),
        (SessionFilter(personality_id="assistant"), "sessions_of_personality"),
        (SessionFilter(is_pinned=True), "sessions_pinned"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_page_of_sessions_is_read_from_the_end_of_an_index(
    tmp_path: Path, statements: list[str], wanted: SessionFilter, index: str
) -> None:
    path = tmp_path / "ethos.sqlite"
    store: Stores = open_store(path)
    edits: SqlSessionEdits = store.session_edits
    for before in (None, (1, 1)):
        statements.clear()
        await edits.listed(wanted, limit=50, before=before)
        steps = plan_of(path, [text for text in statements if "message_count" in text])
        assert any(f"INDEX {index}" in step for step in steps), steps
        is_of_several_ids = wanted.user_id is not None  # a person's ids are few lists, which are sorted into one
        assert is_of_several_ids or not [step for step in steps if "TEMP B-TREE" in step], steps
    await store.close()


async def test_what_was_spent_is_added_up_in_the_order_of_an_index(tmp_path: Path, statements: list[str]) -> None:
    path = tmp_path / "ethos.sqlite"
    store = open_store(path)
    statements.clear()
    await store.usage.by_day(since="2026-11-01")
    await store.usage.summed(since="2026-11-01")
    steps = plan_of(path, [text for text in statements if "usage_days" in text])
    assert len(steps) == 2
    assert any("PRIMARY KEY (day>?)" in step for step in steps), steps
    assert any("INDEX usage_days_by_spender" in step for step in steps), steps
    await store.close()


@pytest.mark.parametrize("newest", [False, True])
async def test_a_conversation_is_read_with_one_statement_from_the_indexes_of_both_queues(
    tmp_path: Path, statements: list[str], newest: bool
) -> None:
    """One statement sees both queues at one moment, and costs half of a transaction around two."""
    path = tmp_path / "ethos.sqlite"
    store = open_store(path)
    where = ConversationRef(channel="local", conversation="c")
    await store.log.read(where)
    statements.clear()
    await store.log.read(where, newest=newest)
    asked = [text for text in statements if not text.startswith("PRAGMA")]  # of a connection that is new
    assert len(asked) == 1
    steps = plan_of(path, asked)
    assert any("inbox USING INDEX sqlite_autoindex_inbox" in step for step in steps), steps
    assert any("outbox USING INDEX sqlite_autoindex_outbox" in step for step in steps), steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps
    await store.close()


async def test_a_claim_reads_the_lanes_in_their_order_and_writes_two_pages(
    tmp_path: Path, statements: list[str]
) -> None:
    """The lane's row, and the index of those that are claimed: what decides who is next stays as it is."""
    path = tmp_path / "ethos.sqlite"
    store = open_store(path)
    for number in range(3):
        await store.inbox.add(
            said(f"m{number}", ConversationRef(channel="fake", conversation=f"c{number}")), f"t{number}"
        )
    await store.lanes.claim("w", lease_s=60, limit=1, turns_of_one=MOST)
    log = path.with_name(f"{path.name}-wal")
    size_bytes = log.stat().st_size
    statements.clear()
    assert len((await store.lanes.claim("w", lease_s=60, limit=1, turns_of_one=MOST)).rows) == 1
    assert (log.stat().st_size - size_bytes) / (PAGE_BYTES + FRAME_HEADER_BYTES) == 2
    [choice] = [text for text in statements if text.lstrip().startswith("SELECT id, channel, sender, claim")]
    with closing(connect(path, prepare=None, now_ms=lambda: 0)) as database:
        steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {choice}")]
    assert any("INDEX lanes_waiting" in step for step in steps), steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps
    await store.close()
