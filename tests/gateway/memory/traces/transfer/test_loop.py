"""An import and an export leave the event loop to others: no piece of them holds it for long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.detection import EXPORT_FORMATS, ExportFormat
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from tests.gateway.memory.traces.people import ADA
from tests.gateway.memory.traces.transfer.corpora import new_trace_store
from tests.loop_watchdog import LIMIT_S, shortest_of

MANY = 600


def facts(path: Path) -> Path:
    rows = [{"content": f"fact {number} " + "about tea and cake " * 20, "tags": ["a"]} for number in range(MANY)]
    path.write_text(json.dumps({"traces": rows}))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("form", EXPORT_FORMATS)
async def test_an_import_and_an_export_hold_the_loop_for_no_piece_above_five_milliseconds(
    tmp_path: Path, form: ExportFormat
) -> None:
    source = facts(tmp_path / "facts.json")
    numbers = iter(range(100))

    async def there_and_back() -> None:
        target = tmp_path / f"out-{next(numbers)}"
        async with new_trace_store(tmp_path) as trace_store, new_trace_store(tmp_path) as other:
            assert (await import_traces(trace_store, source, bounds=OfPerson(ADA))).imported == MANY
            assert await export_traces(trace_store, target, form=form) == MANY
            assert (await import_traces(other, target, bounds=OfPerson(ADA), form=form)).imported == MANY

    watch = await shortest_of(there_and_back)
    assert watch.longest_cpu_s < LIMIT_S, watch.report


@pytest.mark.slow
async def test_a_zip_of_notes_and_a_table_hold_it_no_longer(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text(
        "content,type\n" + "".join(f"row {number},semantic\n" for number in range(MANY))
    )

    async def once() -> None:
        async with new_trace_store(tmp_path) as trace_store:
            assert (await import_traces(trace_store, tmp_path / "facts.csv", bounds=OfPerson(ADA))).imported == MANY

    watch = await shortest_of(once)
    assert watch.longest_cpu_s < LIMIT_S, watch.report
