"""A dry run says exactly what an import would do, in every format, and changes nothing."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.store.payloads import from_ms
from gateway.traces.rows import as_json
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import Bounds, OfPerson
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.import_records import ImportResult
from gateway.traces.transfer.importing import import_traces
from tests.gateway.memory.traces.people import ADA, of
from tests.gateway.memory.traces.transfer.corpora import EVERYTHING, Held, all_of, fill, new_trace_store
from tests.gateway.memory.traces.transfer.test_formats import AGENTOS, EDITED, vault

ADAS = OfPerson(ADA)


def held() -> Held:
    """Traces with edges between them, to a node, and to what is not there."""
    traces = [of(ADA, f"fact {n}", tags=("a",), created_at=from_ms(n), last_accessed_at=from_ms(n)) for n in range(6)]
    ids = [trace.id for trace in traces]
    edges = [(ids[0], ids[1], "near", 1.0, "{}", 1), (ids[2], "node:1:n1", "about", 1.0, "{}", 1)]
    records = [
        ("node", "n1", ADA.owner("user"), as_json({"id": "n1"})),
        ("message", "m", ADA.owner("user"), as_json({"id": "m"})),
    ]
    return Held(traces, edges, (), records)


def agentos(root: Path) -> Path:
    (root / "x.json").write_text(json.dumps(AGENTOS))
    return root / "x.json"


def agentos_brain(root: Path) -> Path:
    with sqlite3.connect(root / "x.sqlite") as database:
        database.execute("CREATE TABLE memory_traces (id, type, scope, content, tags, metadata, created_at, deleted)")
        row = "INSERT INTO memory_traces VALUES (?, 'semantic', 'user', ?, '[]', '{}', 5, ?)"
        rows = [("mt_1", "Tea", 0), ("mt_2", "Tea", 0), ("mt_3", "", 0), ("mt_4", "Gone", 1)]
        database.executemany(row, rows)
        database.execute("CREATE TABLE knowledge_edges (id, source_id, target_id, type)")
        edges = [("e1", "mt_1", "mt_2", "x"), ("e2", "mt_1", "mt_9", "x"), ("e3", "mt_1", None, "x")]
        database.executemany("INSERT INTO knowledge_edges VALUES (?, ?, ?, ?)", edges)
    database.close()
    return root / "x.sqlite"


def chatgpt(root: Path) -> Path:
    with zipfile.ZipFile(root / "x.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps([EDITED, {"title": "Broken"}, EDITED]))
    return root / "x.zip"


def table(root: Path) -> Path:
    (root / "x.csv").write_text("content;tags\nOne;a\nOne;b\n;c\nTwo;d;more\n")
    return root / "x.csv"


def broken(root: Path) -> Path:
    (root / "y.json").write_text(json.dumps({"traces": [{"content": "a"}, {"content": "b"}]})[:-4])
    return root / "y.json"


async def both(trace_store: TraceStore, path: Path, bounds: Bounds, **more: Any) -> ImportResult:
    """What a dry run says, which then happens; twice, because the second time all is there."""
    for _ in range(2):
        before = await all_of(trace_store)
        dry = await import_traces(trace_store, path, bounds=bounds, is_dry_run=True, **more)
        assert await all_of(trace_store) == before
        assert await import_traces(trace_store, path, bounds=bounds, **more) == dry
    return dry


@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize(
    "written", [agentos, agentos_brain, chatgpt, table, broken, lambda root: vault(root / "vault")]
)
async def test_of_a_file_of_another_program_s(
    trace_store: TraceStore, tmp_path: Path, written: Callable[[Path], Path], dedup: bool
) -> None:
    """New ones, doubles, what is broken, and edges that lead nowhere: the same numbers and the same words."""
    last = await both(trace_store, written(tmp_path), ADAS, dedup=dedup)
    assert (last.imported == 0) is dedup


@pytest.mark.parametrize("bounds", [EVERYTHING, ADAS])
@pytest.mark.parametrize("form", ["sqlite", "json", "markdown", "obsidian"])
async def test_of_an_export_of_which_a_part_is_there(
    trace_store: TraceStore, tmp_path: Path, form: Any, bounds: Any
) -> None:
    whole = held()
    await fill(trace_store, Held(whole.traces[:3]))
    async with new_trace_store(tmp_path) as other:
        await fill(other, whole)
        await export_traces(other, tmp_path / "out", form=form)
    dry = await import_traces(trace_store, tmp_path / "out", bounds=bounds, is_dry_run=True)
    assert (dry.imported, dry.skipped, dry.errors) == (3, 3, [])
    assert (await both(trace_store, tmp_path / "out", bounds)).skipped == 6
    assert len((await all_of(trace_store))["edges"]) == 2


async def test_of_edges_that_lead_nowhere_the_dry_run_tells_as_the_import_does(
    trace_store: TraceStore, tmp_path: Path
) -> None:
    result = await import_traces(trace_store, agentos(tmp_path), bounds=ADAS, is_dry_run=True)
    assert result.errors[-1] == "x.json: edges[1]: it leads to nowhere, which is not there; it was left out"
