"""What is more than one lot comes in whole, in every format; and an import says what it could not take."""

from __future__ import annotations

import json
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import Everything, OfPerson
from gateway.traces.transfer.detection import EXPORT_FORMATS, ExportFormat
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import LOT, import_traces
from tests.gateway.memory.traces.people import ADA, of
from tests.gateway.memory.traces.transfer.corpora import Held, fill, new_trace_store

ADAS = OfPerson(ADA)
MANY = 2 * LOT + 101


@pytest.mark.slow
@pytest.mark.parametrize("form", EXPORT_FORMATS)
async def test_many_traces_leave_and_come_back(trace_store: TraceStore, tmp_path: Path, form: ExportFormat) -> None:
    traces = [of(ADA, f"fact {number} about tea", created_at=trace_store.now()) for number in range(MANY)]
    edges = [(one.id, other.id, "related_to", 1.0, "{}", 0) for one, other in pairwise(traces)]
    await fill(trace_store, Held(traces, edges))
    assert await export_traces(trace_store, tmp_path / "out", form=form) == MANY
    async with new_trace_store(tmp_path) as other:
        result = await import_traces(other, tmp_path / "out", bounds=ADAS)
        assert (result.form, result.imported, result.skipped, result.errors) == (form, MANY, 0, [])
        assert result.is_whole
        count = "SELECT (SELECT count(*) FROM traces), (SELECT count(*) FROM edges)"
        found = await other.database.read(lambda connection: tuple(connection.execute(count).fetchone()))
        assert found == (MANY, MANY - 1)
        pieces = "SELECT count(DISTINCT segid) FROM search_idx"
        assert await other.database.read(lambda connection: connection.execute(pieces).fetchone()[0]) <= 3


async def test_many_traces_come_from_a_brain_of_agentos(trace_store: TraceStore, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "agent.sqlite") as theirs:
        theirs.execute(
            "CREATE TABLE memory_traces (id TEXT, type TEXT, scope TEXT, content TEXT, strength REAL, created_at INT, "
            "last_accessed INT, retrieval_count INT, tags TEXT, emotions TEXT, metadata TEXT, deleted INT)"
        )
        theirs.executemany(
            "INSERT INTO memory_traces VALUES (?, 'episodic', 'user', ?, 1, 1.7e12, NULL, 0, '[]', '{}', '{}', 0)",
            [(f"mt_{number}", f"fact {number}") for number in range(MANY)],
        )
    theirs.close()
    result = await import_traces(trace_store, tmp_path / "agent.sqlite", bounds=ADAS)
    assert (result.imported, result.errors, result.is_whole) == (MANY, [], True)


async def test_many_rows_and_many_conversations_come_in(trace_store: TraceStore, tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("content\n" + "".join(f"row {number}\n" for number in range(MANY)))
    result = await import_traces(trace_store, tmp_path / "facts.csv", bounds=ADAS)
    assert (result.imported, result.is_whole) == (MANY, True)

    def conversation(number: int) -> dict[str, object]:
        message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [f"question {number}"]}}
        return {"mapping": {"a": {"parent": None, "message": message}}, "current_node": "a"}

    (tmp_path / "conversations.json").write_text(json.dumps([conversation(number) for number in range(MANY)]))
    result = await import_traces(trace_store, tmp_path / "conversations.json", bounds=ADAS)
    assert (result.imported, result.is_whole) == (MANY, True)


async def test_what_was_left_out_is_counted_and_a_file_that_breaks_off_says_so(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    lines = [json.dumps({"content": f"fact {number}"}) for number in range(MANY)]
    (tmp_path / "whole.json").write_text(f"[{','.join([*lines, '7', '{}'])}]")
    result = await import_traces(trace_store, tmp_path / "whole.json", bounds=ADAS)
    assert (result.imported, result.left_out, result.is_broken_off, result.is_whole) == (MANY, 2, False, False)
    (tmp_path / "broken.json").write_text(f"[{','.join(lines)},{{")
    result = await import_traces(trace_store, tmp_path / "broken.json", bounds=ADAS)
    assert (result.skipped, result.left_out, result.is_broken_off, result.is_whole) == (MANY, 0, True, False)


async def test_that_nobody_is_named_is_said_once_and_counted(trace_store: TraceStore, tmp_path: Path) -> None:

    (tmp_path / "facts.csv").write_text("content\n" + "".join(f"row {number}\n" for number in range(MANY)))
    result = await import_traces(trace_store, tmp_path / "facts.csv", bounds=Everything())
    assert (result.imported, result.left_out, len(result.errors)) == (0, MANY, 1)
    assert result.errors[0] == (
        "facts.csv: line 2: it does not say whose it is; name the person. Others like it are counted, not listed"
    )
