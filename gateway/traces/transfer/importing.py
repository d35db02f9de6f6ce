"""Imports: read in a thread, put in by lots; one bad record never stops the rest."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from gateway.errors import TraceError
from gateway.store.payloads import to_ms
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import Bounds
from gateway.traces.transfer.chatgpt import read_conversations
from gateway.traces.transfer.csv_format import read_csv
from gateway.traces.transfer.detection import ImportFormat, conversation_files, detected
from gateway.traces.transfer.exporting import unwatched
from gateway.traces.transfer.import_records import Arrival, ArrivedTrace, BrokenOff, ImportResult, Progress
from gateway.traces.transfer.import_sink import Landing
from gateway.traces.transfer.json_format import read_json
from gateway.traces.transfer.markdown_format import notes_in, read_notes
from gateway.traces.transfer.pace import RECORD_BYTES, TOO_SLOW, Pace, TooSlow
from gateway.traces.transfer.source import Source
from gateway.traces.transfer.sqlite_format import read_brain
from gateway.traces.transfer.unpacking import unpacked

LOT = 500
_LOT_CHARS = 4_000_000
"""A lot of long texts is a smaller one."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one file holds, as it is read, and how far that is."""

    name: str
    arrivals: Iterator[Arrival]
    report: Callable[[], None]


async def import_traces(
    trace_store: TraceStore,
    path: Path,
    *,
    bounds: Bounds,
    form: ImportFormat | Literal["auto"] = "auto",
    dedup: bool = True,
    is_dry_run: bool = False,
    progress: Progress = unwatched,
    scratch: Path | None = None,
    pace: Pace | None = None,
) -> ImportResult:
    """Bring in what a file or a directory holds.

    What says the same as a trace of the same owner and type is skipped, and its tags are united with those of the one
    that is there. So the same file may be imported again, after a crash too.

    Args:
        trace_store: may be in use.
        path: what is imported; notes may be in a zip.
        bounds: whose the traces become.
        form: the format; `auto` looks.
        dedup: False brings in what is there already once more.
        is_dry_run: say what would happen, and change nothing.
        progress: called from any thread, in bytes, traces or notes.
        scratch: where a zip of notes is unpacked; None: where the system keeps such things.
        pace: how slow the reading may be; what is slower ends as a file that breaks off. None: as everywhere.

    Raises:
        TraceError: the path is not there, or is nothing that can be imported.
        StoreUnavailable: the disk is full or broken; what was put in before is in.
        OSError: it cannot be read at all.
    """
    if not await asyncio.to_thread(path.exists):
        raise TraceError(f"{path} is not there.")
    pace = pace or Pace()
    async with unpacked(path, beside=scratch) as place:
        wanted = await asyncio.to_thread(detected, place) if form == "auto" else form
        try:
            readings = await asyncio.to_thread(_readings, place, wanted, to_ms(trace_store.now()), progress, pace)
        except zipfile.BadZipFile as error:
            raise TraceError(f"{path} is a damaged zip ({error}). Download it once more.") from error
        result = ImportResult(form=wanted)
        for reading in readings:
            file = path.name if place != path else reading.name
            with Landing(trace_store, bounds, file=file, dedup=dedup, is_dry_run=is_dry_run, result=result) as landing:
                await _land(reading, landing, pace, file)
            if pace.is_given_up:
                break
    return result


async def _land(reading: _Reading, landing: Landing, pace: Pace, file: str) -> None:
    while not pace.is_given_up and (lot := await asyncio.to_thread(_lot, reading.arrivals, pace)):
        await landing.take(lot)
        reading.report()
    reading.report()
    await landing.link(file)
    await landing.merge_index()


def _lot(arrivals: Iterator[Arrival], pace: Pace) -> Sequence[Arrival]:
    lot: list[Arrival] = []
    chars = 0
    try:
        with pace:
            for arrival in islice(arrivals, LOT):
                lot.append(arrival)
                content_chars = len(arrival.trace.content) if isinstance(arrival, ArrivedTrace) else 0
                pace.count(RECORD_BYTES + content_chars)
                chars += content_chars
                if chars > _LOT_CHARS:
                    break
    except TooSlow:
        lot.append(BrokenOff("", TOO_SLOW))
    return lot


def _readings(path: Path, form: ImportFormat, now_ms: int, progress: Progress, pace: Pace) -> Sequence[_Reading]:
    if form in ("markdown", "obsidian"):
        return [_of_notes(path, form, now_ms, progress, pace)]
    if path.is_dir() and form != "chatgpt":
        raise TraceError(f"{path} is a directory; the format {form} is a file.")
    if form == "sqlite":
        return [_Reading(path.name, read_brain(path, now_ms=now_ms, progress=progress, pace=pace), _nothing)]
    if form == "chatgpt":
        sources = conversation_files(path)
        for source in sources:
            source.pace = pace
        return [_of_source(source, read_conversations(source, now_ms=now_ms), progress) for source in sources]
    source = Source(path)
    source.pace = pace
    read = read_json if form == "json" else read_csv
    return [_of_source(source, read(source, now_ms=now_ms), progress)]


def _of_source(source: Source, arrivals: Iterator[Arrival], progress: Progress) -> _Reading:
    return _Reading(source.name, arrivals, lambda: progress(*source.progress()))


def _of_notes(path: Path, form: ImportFormat, now_ms: int, progress: Progress, pace: Pace) -> _Reading:
    total, done = sum(1 for _ in notes_in(path)), 0

    def counted() -> Iterator[Arrival]:
        nonlocal done
        for arrival in read_notes(path, is_obsidian=form == "obsidian", now_ms=now_ms, pace=pace):
            done += isinstance(arrival, ArrivedTrace)
            yield arrival

    return _Reading(path.name, counted(), lambda: progress(done, total))


def _nothing() -> None:
    """The reader reports by itself."""
