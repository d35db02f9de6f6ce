"""Imports: read in a thread, put in by lots; one bad record never stops the rest."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Literal

from gateway.errors import TraceError
from gateway.store.payloads import to_ms
from gateway.traces.trace import TYPES
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import Bounds
from gateway.traces.transfer.chatgpt import read_conversations
from gateway.traces.transfer.csv_format import read_csv
from gateway.traces.transfer.detection import (
    ImportFormat,
    conversation_files,
    detect_format,
    is_of_conversations,
    is_records,
)
from gateway.traces.transfer.exporting import ignore_progress
from gateway.traces.transfer.import_records import CarriedTrace, ImportItem, ImportResult, Progress, UnreadableRest
from gateway.traces.transfer.import_sink import ImportSink
from gateway.traces.transfer.json_format import read_json
from gateway.traces.transfer.markdown_format import notes_in, read_notes
from gateway.traces.transfer.source import GROWS, RECORD_BYTES, TOO_SLOW, Pace, Source, TooSlow, most_unpacked_bytes
from gateway.traces.transfer.sqlite_format import read_sqlite

LOT = 500
_LOT_CHARS = 4_000_000
"""A lot of long texts is a smaller one."""
MOST_NOTES = 2_000_000
_PIECE_BYTES = 1 << 20
_FOR_READING = ".obsidian"


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one file holds, as it is read, and how far that is."""

    name: str
    items: Iterator[ImportItem]
    report: Callable[[], None]


async def import_traces(
    trace_store: TraceStore,
    path: Path,
    *,
    bounds: Bounds,
    form: ImportFormat | Literal["auto"] = "auto",
    dedup: bool = True,
    is_dry_run: bool = False,
    progress: Progress = ignore_progress,
    scratch: Path | None = None,
    pace: Pace | None = None,
) -> ImportResult:
    """Bring in what a file or a directory holds.

    A trace with the content, owner and type of a stored one is skipped, and its tags are merged with those of the one
    that is there. So the same file may be imported again, after a crash too.

    Args:
        path: what is imported; notes may be in a zip.
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
        wanted = await asyncio.to_thread(detect_format, place) if form == "auto" else form
        try:
            readings = await asyncio.to_thread(_readings, place, wanted, to_ms(trace_store.now()), progress, pace)
        except zipfile.BadZipFile as error:
            raise TraceError(f"{path} is a damaged zip ({error}). Download it once more.") from error
        result = ImportResult(form=wanted)
        for reading in readings:
            file = path.name if place != path else reading.name
            with ImportSink(trace_store, bounds, file=file, dedup=dedup, is_dry_run=is_dry_run, result=result) as sink:
                await _import_items(reading, sink, pace, file)
            if pace.is_given_up:
                break
    return result


async def _import_items(reading: _Reading, sink: ImportSink, pace: Pace, file: str) -> None:
    while not pace.is_given_up and (lot := await asyncio.to_thread(_lot, reading.items, pace)):
        await sink.take(lot)
        reading.report()
    reading.report()
    await sink.link(file)
    await sink.merge_index()


def _lot(items: Iterator[ImportItem], pace: Pace) -> Sequence[ImportItem]:
    lot: list[ImportItem] = []
    chars = 0
    try:
        with pace:
            for item in islice(items, LOT):
                lot.append(item)
                content_chars = len(item.trace.content) if isinstance(item, CarriedTrace) else 0
                pace.count(RECORD_BYTES + content_chars)
                chars += content_chars
                if chars > _LOT_CHARS:
                    break
    except TooSlow:
        lot.append(UnreadableRest("", TOO_SLOW))
    return lot


def _readings(path: Path, form: ImportFormat, now_ms: int, progress: Progress, pace: Pace) -> Sequence[_Reading]:
    if form in ("markdown", "obsidian"):
        return [_of_notes(path, form, now_ms, progress, pace)]
    if path.is_dir() and form != "chatgpt":
        raise TraceError(f"{path} is a directory; the format {form} is a file.")
    if form == "sqlite":
        return [_Reading(path.name, read_sqlite(path, now_ms=now_ms, progress=progress, pace=pace), _nothing)]
    if form == "chatgpt":
        sources = conversation_files(path)
        for source in sources:
            source.pace = pace
        return [_of_source(source, read_conversations(source, now_ms=now_ms), progress) for source in sources]
    source = Source(path)
    source.pace = pace
    read = read_json if form == "json" else read_csv
    return [_of_source(source, read(source, now_ms=now_ms), progress)]


def _of_source(source: Source, items: Iterator[ImportItem], progress: Progress) -> _Reading:
    return _Reading(source.name, items, lambda: progress(*source.progress()))


def _of_notes(path: Path, form: ImportFormat, now_ms: int, progress: Progress, pace: Pace) -> _Reading:
    total, done = sum(1 for _ in notes_in(path)), 0

    def counted() -> Iterator[ImportItem]:
        nonlocal done
        for item in read_notes(path, is_obsidian=form == "obsidian", now_ms=now_ms, pace=pace):
            done += isinstance(item, CarriedTrace)
            yield item

    return _Reading(path.name, counted(), lambda: progress(done, total))


def _nothing() -> None:
    """Progress that the reader reports already."""


@asynccontextmanager
async def unpacked(path: Path, *, beside: Path | None = None) -> AsyncIterator[Path]:
    """The directory of a zip of notes, unpacked `beside` or where the system keeps such things; else the path itself.

    Raises:
        TraceError: it is damaged, or a trap.
        OSError: the disk is full.
    """
    if not await asyncio.to_thread(_holds_notes, path):
        yield path
        return
    is_given_up = threading.Event()
    place = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ethos-notes-", dir=beside))
    try:
        root = place / path.stem
        await asyncio.to_thread(_unpack, path, root, is_given_up)
        yield _inner(root)
    finally:
        is_given_up.set()
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)


def pack(directory: Path, target: Path) -> None:
    """A zip of what an import takes of a directory; blocks. Nothing is compressed, so that it is no trap."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
        for root, _, names in os.walk(directory):
            for name in sorted(names):
                file = Path(root, name)
                member = zipfile.ZipInfo(file.relative_to(directory).as_posix())
                if _is_wanted(member) and file.is_file():
                    archive.write(file, member.filename)


def _holds_notes(path: Path) -> bool:
    return path.is_file() and zipfile.is_zipfile(path) and not is_of_conversations(path)


def _unpack(path: Path, root: Path, is_given_up: threading.Event) -> None:
    left_bytes = most_unpacked_bytes(path)
    root.mkdir(mode=0o700)
    try:
        with zipfile.ZipFile(path) as archive:
            wanted = [member for member in archive.infolist() if _is_wanted(member)]
            if len(wanted) > MOST_NOTES:
                raise TraceError(f"{path.name} holds more than {MOST_NOTES:,} notes.")
            if not wanted:
                raise TraceError(f"{path.name} holds no notes (*.md) and no conversations.json.")
            for member in wanted:
                left_bytes = _extract(archive, member, root, left_bytes)
                if is_given_up.is_set():
                    return
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise TraceError(f"{path.name} is a damaged or locked zip ({error}). Pack it once more.") from error


def _is_wanted(member: zipfile.ZipInfo) -> bool:
    name = PurePosixPath(member.filename)
    is_safe = not name.is_absolute() and ".." not in name.parts and "\\" not in member.filename
    is_note = name.suffix.lower() == ".md" or is_records(member.filename) or _FOR_READING in name.parts
    return is_safe and is_note and not member.is_dir()


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, root: Path, left_bytes: int) -> int:
    """Write one file, piece by piece; how many bytes may still come."""
    target = root / member.filename
    if _FOR_READING in target.parts:  # its settings tell us that it is a vault, and nothing else
        (root / _FOR_READING).mkdir(exist_ok=True)
        return left_bytes
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with archive.open(member) as packed, target.open("wb") as file:
        while piece := packed.read(_PIECE_BYTES):
            left_bytes -= len(piece)
            if left_bytes < 0:
                raise TraceError(GROWS.format(name=archive.filename))
            file.write(piece)
    return left_bytes


def _inner(root: Path) -> Path:
    """A directory that was packed as a whole is the only thing in its zip; a folder that gives the type is not one."""
    inside = list(root.iterdir())
    is_packed = (
        len(inside) == 1 and inside[0].is_dir() and inside[0].name not in TYPES and not inside[0].name.startswith(".")
    )
    return inside[0] if is_packed else root
