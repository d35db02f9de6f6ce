"""CSV, as spreadsheets write it: a mark of the byte order, semicolons, line breaks in quotes, no Unicode."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from gateway.memory.traces.transfer.arrivals import Arrival, PassedOver, Problem
from gateway.memory.traces.transfer.source import Source
from gateway.memory.traces.transfer.texts import WINDOWS
from gateway.memory.traces.transfer.wire import Unreadable, read_tags, read_trace

_SEPARATORS = (",", ";", "\t", "|")
_LONGEST_FIELD_CHARS = 16 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024


def read_csv(source: Source, *, now_ms: int) -> Iterator[Arrival]:
    """A trace for each row with something in the column `content`; columns of other names go to the metadata."""
    csv.field_size_limit(_LONGEST_FIELD_CHARS)
    encoding = _encoding(source)
    if encoding == "cp1252":
        yield Problem("", f"it is not UTF-8; it was read as {WINDOWS}")
    with source.opened() as file, io.TextIOWrapper(file, encoding, errors="replace", newline="") as text:
        first = _first_line(source, encoding)
        if not first.strip():
            yield Problem("", "CSV import failed: file is empty.")
            return
        separator = separator_of(first)
        if separator is None:
            yield Problem("", 'CSV import failed: missing required "content" column.')
            return
        yield from _rows(text, separator, now_ms=now_ms)


def separator_of(header: str) -> str | None:
    """What parts the columns of a header line; None where none of them is called `content`."""
    for separator in _SEPARATORS:
        names = next(csv.reader([header], delimiter=separator, skipinitialspace=True), [])
        if "content" in (name.strip().lower() for name in names):
            return separator
    return None


def _rows(text: IO[str], separator: str, *, now_ms: int) -> Iterator[Arrival]:
    rows = csv.reader(text, delimiter=separator, skipinitialspace=True)
    names: Sequence[str] = []
    begins_at = 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield Problem(f"line {rows.line_num}", f"it cannot be read ({error}); it was left out")
            begins_at = rows.line_num + 1
            continue
        if row is None:
            return
        place, begins_at = f"line {begins_at}", rows.line_num + 1
        if not any(value.strip() for value in row):
            continue
        if not names:
            names = [name.strip() for name in row]
            continue
        if len(row) > len(names):
            yield Problem(place, f"it has {len(row)} values for {len(names)} columns; the last were left out")
        yield from _row(dict(zip(names, row, strict=False)), place, now_ms=now_ms)


def _row(given: Mapping[str, str], place: str, *, now_ms: int) -> Iterator[Arrival]:
    known = {name.lower(): value for name, value in given.items() if name.lower() in ("content", "type", "tags")}
    others = {name: value for name, value in given.items() if name and name.lower() not in known and value != ""}
    values = {
        "content": known["content"].replace("\r\n", "\n"),
        "type": known.get("type", "").strip().lower() or None,
        "tags": read_tags(known.get("tags")),
        "metadata": others,
    }
    try:
        arrived, problems = read_trace(values, place, now_ms=now_ms)
    except Unreadable as error:
        yield Problem(place, f"{error}; it was left out")
        return
    yield from (Problem(place, problem) for problem in problems)
    yield PassedOver() if arrived is None else arrived


def _encoding(source: Source) -> str:
    """Read it once, because only the last byte may tell."""
    with source.opened() as file:
        head = file.read(4)
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            decoder.decode(head)
            while chunk := file.read(_CHUNK_BYTES):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8"


def _first_line(source: Source, encoding: str) -> str:
    """The first line that has something in it."""
    with source.opened() as file, io.TextIOWrapper(file, encoding, errors="replace", newline="") as text:
        for line in text:
            if line.strip():
                return line
    return ""
