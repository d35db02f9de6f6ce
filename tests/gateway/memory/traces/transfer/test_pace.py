"""A file that is read too slowly ends the import; what was taken of it stays, and an honest one is never stopped."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.importing import import_traces
from gateway.traces.transfer.source import LEAST_BYTES, PACE_WINDOW_S, RECORD_BYTES, TOO_SLOW, Pace, TooSlow
from tests.gateway.memory.traces.people import ADA

ADAS = OfPerson(ADA)
MANY = 1_200


def ticking(step_s: float) -> Callable[[], float]:
    """A clock that goes on by so much whenever it is looked at."""
    ticks: Iterator[int] = count()
    return lambda: next(ticks) * step_s


def written(directory: Path, form: str) -> Path:
    """So many facts in a file of a form."""
    facts = [f"fact {number}" for number in range(MANY)]
    path = directory / f"facts.{form}"
    if form == "json":
        path.write_text(json.dumps([{"content": fact} for fact in facts]))
    elif form == "csv":
        path.write_text("content\n" + "".join(f"{fact}\n" for fact in facts))
    else:
        path.mkdir()
        for fact in facts:
            (path / f"{fact}.md").write_text(f"{fact}\n")
    return path


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
async def test_a_file_that_is_read_too_slowly_ends_the_import_and_says_what_is_missing(
    trace_store: TraceStore, tmp_path: Path, form: str
) -> None:
    path = written(tmp_path, form)
    slow = Pace(ticking(PACE_WINDOW_S / (LEAST_BYTES / RECORD_BYTES)))  # a record needs more than one look
    result = await import_traces(trace_store, path, bounds=ADAS, pace=slow)
    assert 0 < result.imported < MANY
    assert (result.is_broken_off, result.is_whole) == (True, False)
    assert result.errors == [f"{path.name}: {TOO_SLOW}"]
    again = await import_traces(trace_store, path, bounds=ADAS)
    assert (again.imported, again.skipped, again.is_whole) == (MANY - result.imported, result.imported, True)


@pytest.mark.slow
async def test_a_database_whose_next_row_never_comes_is_given_up(trace_store: TraceStore, tmp_path: Path) -> None:
    path = tmp_path / "endless.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE memory_traces (content, deep AS (hex(zeroblob(30000000)) || content))")
        connection.executemany("INSERT INTO memory_traces VALUES (?)", [(f"fact {number}",) for number in range(50)])
    result = await import_traces(trace_store, path, bounds=ADAS, pace=Pace(ticking(PACE_WINDOW_S)))
    assert (result.is_broken_off, result.errors[-1]) == (True, f"endless.sqlite: {TOO_SLOW}")


def test_the_time_between_two_readings_does_not_count() -> None:
    now_s = 0.0
    pace = Pace(lambda: now_s)
    for _ in range(10):
        with pace:
            now_s += PACE_WINDOW_S / 20
            pace.count(1)
        now_s += 10 * PACE_WINDOW_S
    assert not pace.is_given_up
    now_s += PACE_WINDOW_S
    with pace:
        now_s += PACE_WINDOW_S
        with pytest.raises(TooSlow):
            pace.count(1)
    assert pace.is_given_up


def test_who_reads_the_least_in_each_window_goes_on_for_as_long_as_it_takes() -> None:
    now_s = 0.0
    pace = Pace(lambda: now_s)
    for _ in range(1_000):
        with pace:
            now_s += PACE_WINDOW_S
            pace.count(LEAST_BYTES)
    assert not pace.is_given_up
