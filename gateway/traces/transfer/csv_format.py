"""CSV, as spreadsheets write it: a mark of the byte order, semicolons, line breaks in quotes, no Unicode."""

from __future__ import annotations

import codecs
import csv
import io
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Self

from gateway.traces.transfer.import_records import ImportItem, ImportProblem, RefusedItem, UnreadableRest
from gateway.traces.transfer.serialization import read_tags, read_trace
from gateway.traces.transfer.source import WINDOWS, Source

_SEPARATORS = (",", ";", "\t", "|")
_LONGEST_FIELD_CHARS = 16 * 1024 * 1024
_LONGEST_ROW_CHARS = 64 * 1024 * 1024
# Of what was read behind quotes that are not closed so much is read again; a file may have one in each line.
_MOST_AGAIN_CHARS = 256 * 1024 * 1024
_UNCLOSED = "unexpected end of data"
_LEFT_OUT = "it was left out"
_CHUNK_BYTES = 1024 * 1024


def read_csv(source: Source, *, now_ms: int) -> Iterator[ImportItem]:
    """A trace for each row with something in the column `content`; columns of other names go to the metadata."""
    csv.field_size_limit(_LONGEST_FIELD_CHARS)
    encoding = _encoding(source)
    if encoding == "cp1252":
        yield ImportProblem("", f"it is not UTF-8; it was read as {WINDOWS}")
    with source.opened() as file, io.TextIOWrapper(file, encoding, errors="replace", newline="") as text:
        first = _first_line(source, encoding)
        if not first.strip():
            yield UnreadableRest("", "CSV import failed: file is empty.")
            return
        separator = separator_of(first)
        if separator is None:
            yield UnreadableRest("", 'CSV import failed: missing required "content" column.')
            return
        yield from _rows(text, separator, now_ms=now_ms)


def separator_of(header: str) -> str | None:
    """What parts the columns of a header line; None where none of them is called `content`."""
    for separator in _SEPARATORS:
        try:
            names = next(csv.reader([header], delimiter=separator, skipinitialspace=True), [])
        except csv.Error:
            continue
        if "content" in (name.strip().lower() for name in names):
            return separator
    return None


class _Lines:
    """The lines of a file, which can be read again from within the row that is being read.

    Attributes:
        number: of the last line that was read, from 1.
        row: the lines since `begin_row`.
    """

    def __init__(self, text: IO[str]) -> None:
        self._text = text
        self._again: deque[str] = deque()
        self._row_chars = 0
        self._again_chars = 0
        self.number = 0
        self.row: list[str] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        if self.row and self._again_chars > _MOST_AGAIN_CHARS:
            raise csv.Error(_UNCLOSED)
        line = self._again.popleft() if self._again else self._text.readline(_LONGEST_ROW_CHARS)
        if not line:
            raise StopIteration
        self.number += 1
        self.row.append(line)
        self._row_chars += len(line)
        if self._row_chars > _LONGEST_ROW_CHARS:
            raise csv.Error(f"a row is longer than {_LONGEST_ROW_CHARS:,} characters")
        return line

    def begin_row(self) -> None:
        """What is read now is of another row."""
        self.row, self._row_chars = [], 0

    def back(self) -> str:
        """The first line of the row; all others will be read again."""
        first, *others = self.row
        self._again.extendleft(reversed(others))
        self._again_chars += self._row_chars - len(first)
        self.number -= len(others)
        self.begin_row()
        return first


def _rows(text: IO[str], separator: str, *, now_ms: int) -> Iterator[ImportItem]:
    names: Sequence[str] = []
    for begins_at, read in _read_rows(_Lines(text), separator):
        place = f"line {begins_at}"
        if isinstance(read, str):
            yield RefusedItem(place, read) if read.endswith(_LEFT_OUT) else ImportProblem(place, read)
            continue
        if not any(value.strip() for value in read):
            continue
        if not names:
            names = [name.strip() for name in read]
            continue
        if len(read) > len(names):
            yield ImportProblem(place, f"it has {len(read)} values for {len(names)} columns; the last were left out")
        yield from _row(dict(zip(names, read, strict=False)), place, now_ms=now_ms)


def _read_rows(lines: _Lines, separator: str) -> Iterator[tuple[int, Sequence[str] | str]]:
    """Each row, or what is wrong with it, with the number of the line where it begins.

    A quote that is never closed would take all lines up to the next one, or to the end: then its line is read alone.
    """
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    while True:
        begins_at = lines.number + 1
        lines.begin_row()
        try:
            row = next(rows, None)
        except csv.Error as error:
            if not lines.row:
                return
            if len(lines.row) > 1 or _UNCLOSED in str(error):
                yield begins_at, "a quote is opened in it and not closed; the line was read alone"
            try:
                row = next(csv.reader([lines.back().rstrip("\r\n")], delimiter=separator, skipinitialspace=True), [])
            except csv.Error as again:
                yield begins_at, f"it cannot be read ({again}); {_LEFT_OUT}"
                row = []
            rows = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
        if row is None:
            return
        yield begins_at, row


def _row(given: Mapping[str, str], place: str, *, now_ms: int) -> Iterator[ImportItem]:
    known = {name.lower(): value for name, value in given.items() if name.lower() in ("content", "type", "tags")}
    others = {name: value for name, value in given.items() if name and name.lower() not in known and value != ""}
    values = {
        "content": known["content"].replace("\r\n", "\n"),
        "type": known.get("type", "").strip().lower() or None,
        "tags": read_tags(known.get("tags")),
        "metadata": others,
    }
    return read_trace(values, place, now_ms=now_ms)


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
        while line := text.readline(_LONGEST_FIELD_CHARS):
            if line.strip():
                return line
    return ""
