"""Which format a file or a directory has: by what is in it, and by its name only where that does not tell."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from gateway.errors import TraceError
from gateway.traces.transfer.csv_format import separator_of
from gateway.traces.transfer.markdown_format import RECORDS_NAME, notes_in
from gateway.traces.transfer.source import GROWS, Source, decode_text, most_unpacked_bytes

ExportFormat = Literal["sqlite", "json", "markdown", "obsidian"]
ImportFormat = Literal["sqlite", "json", "markdown", "obsidian", "chatgpt", "csv"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
IMPORT_FORMATS: tuple[ImportFormat, ...] = get_args(ImportFormat)

_SQLITE = b"SQLite format 3\0"
_ZIP = b"PK\x03\x04"
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json")
_NOTES_LOOKED_AT = 200
_OBSIDIAN = re.compile(rb"\[\[|\n\n#[^\s#][^\n]*\n?\Z")  # a link, or a line of tags at the end
_LINE_END = re.compile(r"\r\n?|\n")


def detect_format(path: Path) -> ImportFormat:
    """The format.

    Raises:
        TraceError: it is none that can be imported; says which can.
        OSError: it cannot be read.
    """
    if path.is_dir():
        return _of_directory(path)
    head = Source(path).head() if path.stat().st_size else b""
    if head.startswith(_SQLITE):
        return "sqlite"
    if head.startswith(_ZIP):
        return "chatgpt"
    text = decode_text(head)[0].lstrip()
    if text[:1] in ("[", "{"):
        return "chatgpt" if re.search(r'^[\[\s]*\{[^\0]*?"mapping"\s*:\s*\{', text) else "json"
    if text.startswith(("---\n", "---\r\n")) or path.suffix.lower() in (".md", ".markdown"):
        return "markdown"
    return _of_text(path, text)


def is_of_conversations(path: Path) -> bool:
    """Whether a zip is a ChatGPT export, or at least none of notes.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return True  # its reader says what is wrong with it
    is_notes = any(name.lower().endswith(".md") or is_records(name) for name in names)
    return any(_CONVERSATIONS.fullmatch(name) for name in names) or not is_notes


def is_records(name: str) -> bool:
    """Whether a file of a zip holds the records of our export, next to its notes."""
    return name == RECORDS_NAME or name.endswith(f"/{RECORDS_NAME}")


def conversation_files(path: Path) -> Sequence[Source]:
    """The files of a ChatGPT export: the file, or those in the zip or the directory.

    Raises:
        TraceError: there is none.
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    if path.is_dir():
        found = [Source(file) for file in sorted(path.iterdir()) if _CONVERSATIONS.fullmatch(file.name)]
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist() if _CONVERSATIONS.fullmatch(each.filename)]
        if sum(each.file_size for each in members) > most_unpacked_bytes(path):  # zipfile reads no more than that
            raise TraceError(GROWS.format(name=path))
        found = [Source(path, name) for name in sorted(each.filename for each in members)]
    else:
        return [Source(path)]
    if not found:
        raise TraceError(
            f"{path} holds no conversations.json, so it is no ChatGPT export. A zip of anything else: unpack it first."
        )
    return found


def _of_directory(path: Path) -> ImportFormat:
    records = path / RECORDS_NAME
    if records.is_file():
        with records.open(encoding="utf-8", errors="replace") as file:
            first = file.readline()
        try:
            return "obsidian" if json.loads(first)["meta"]["format"] == "obsidian" else "markdown"
        except (ValueError, KeyError, TypeError):
            return "markdown"
    if (path / ".obsidian").is_dir():
        return "obsidian"
    if any(_CONVERSATIONS.fullmatch(file.name) for file in path.iterdir()):
        return "chatgpt"
    notes = list(islice(notes_in(path), _NOTES_LOOKED_AT))
    if not notes:
        raise TraceError(f"{path} holds no notes (*.md) and no conversations.json, so there is nothing to import.")
    is_obsidian = any(_OBSIDIAN.search(note.read_bytes()) for note in notes if not note.is_symlink())
    return "obsidian" if is_obsidian else "markdown"


def _of_text(path: Path, text: str) -> ImportFormat:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv") or separator_of(_LINE_END.split(text, maxsplit=1)[0]) is not None:
        return "csv"
    if suffix == ".txt":
        return "markdown"
    raise TraceError(f"{path} is none of {', '.join(IMPORT_FORMATS)}. If it is one of them, choose that format.")
