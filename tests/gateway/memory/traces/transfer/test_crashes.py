"""An import or an export that is killed leaves nothing half done, and is simply begun anew."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from tests.gateway.memory.traces.people import ADA, Clock, of
from tests.gateway.memory.traces.transfer.corpora import EVERYTHING, Held, fill

pytestmark = pytest.mark.slow

COUNT = 6_000
IMPORT = """
import asyncio, sys
from pathlib import Path
from gateway.traces.trace_store import open_trace_store
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.importing import import_traces
from tests.gateway.memory.traces.people import ADA

async def main():
    async with open_trace_store(Path(sys.argv[1])) as trace_store:
        await import_traces(trace_store, Path(sys.argv[2]), bounds=OfPerson(ADA))

asyncio.run(main())
"""


async def test_an_import_that_is_killed_and_repeated_neither_loses_nor_doubles(tmp_path: Path) -> None:
    source, place = tmp_path / "x.json", tmp_path / TRACES_NAME
    traces = [{"id": f"mt_{number}", "content": f"fact number {number}"} for number in range(COUNT)]
    edges = [{"source": f"mt_{number}", "target": f"mt_{number + 1}", "kind": "next"} for number in range(50)]
    source.write_text(json.dumps({"traces": traces, "edges": edges}))
    async with open_trace_store(place, now=Clock()) as trace_store:
        for wanted in (500, 3_000):
            process = subprocess.Popen([sys.executable, "-c", IMPORT, place, source], cwd=Path(__file__).parents[5])
            try:
                until = time.monotonic() + 60
                while await trace_store.count(ADA) < wanted and process.poll() is None and time.monotonic() < until:
                    pass  # the next look is the wait: it goes through the store's thread
            finally:
                process.kill()
                process.wait()
            assert wanted <= await trace_store.count(ADA) <= COUNT
        result = await import_traces(trace_store, source, bounds=OfPerson(ADA))
        assert (result.imported + result.skipped, result.errors) == (COUNT, [])
        assert result.skipped >= 3_000
        assert await trace_store.count(ADA) == COUNT
        sql = "SELECT (SELECT count(*) FROM edges), (SELECT count(DISTINCT id) FROM traces)"
        assert tuple(await trace_store.database.read(lambda connection: connection.execute(sql).fetchone())) == (
            50,
            COUNT,
        )


@pytest.mark.parametrize("form", ["sqlite", "json", "markdown", "obsidian"])
async def test_an_export_that_fails_leaves_nothing_under_its_name_and_can_be_repeated(
    trace_store: TraceStore, tmp_path: Path, form: Any
) -> None:
    await fill(trace_store, Held([of(ADA, f"fact {number}") for number in range(600)]))

    def broken(_done: int, _total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await export_traces(trace_store, tmp_path / "out", form=form, progress=broken)
    assert {path.name for path in tmp_path.iterdir()} <= {TRACES_NAME, f"{TRACES_NAME}-wal", f"{TRACES_NAME}-shm"}
    assert await export_traces(trace_store, tmp_path / "out", form=form, bounds=EVERYTHING) == 600


@pytest.mark.parametrize("form", ["json", "markdown"])
async def test_an_export_that_is_given_up_stops_and_leaves_nothing(
    trace_store: TraceStore, tmp_path: Path, form: Any
) -> None:
    await fill(trace_store, Held([of(ADA, f"fact {number}") for number in range(3_000)]))
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def held_up(_done: int, _total: int) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(20)

    export = asyncio.create_task(export_traces(trace_store, tmp_path / "out", form=form, progress=held_up))
    await asyncio.wait_for(begun.wait(), 60)
    export.cancel()
    with pytest.raises(asyncio.CancelledError):
        await export
    go_on.set()
    async with asyncio.timeout(60):
        while any(tmp_path.glob("out*")):
            await trace_store.count(ADA)  # the thread takes its file away in its own time
    assert {path.name for path in tmp_path.iterdir()} <= {TRACES_NAME, f"{TRACES_NAME}-wal", f"{TRACES_NAME}-shm"}
