"""A zip of notes, as an export by the API is one, or a vault that somebody packed: unpacked to be read, and bounded."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath

from gateway.errors import TraceError
from gateway.traces.trace import TYPES
from gateway.traces.transfer.detection import is_of_conversations, is_records
from gateway.traces.transfer.source import GROWS, most_unpacked_bytes

MOST_NOTES = 2_000_000
_PIECE_BYTES = 1 << 20
_FOR_READING = ".obsidian"


@asynccontextmanager
async def unpacked(path: Path, *, beside: Path | None = None) -> AsyncIterator[Path]:
    """The directory of a zip of notes; of anything else the path itself.

    Args:
        path: what is imported.
        beside: where to unpack; None: where the system keeps such things.

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
