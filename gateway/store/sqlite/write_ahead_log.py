"""The database's log after a failed sync: all of it is written and synced once more before anything is acknowledged.

When a sync fails, Linux marks the pages that it could not write as clean. The next sync succeeds without them, and a
power cut then loses what was acknowledged meanwhile: a log is only read up to its first hole
(https://wiki.postgresql.org/wiki/Fsync_Errors; Rebello et al., "Can Applications Recover from fsync Failures?", USENIX
ATC 2020). ext4 and XFS keep the new bytes in the page cache, Btrfs goes back to the old ones.
So a second sync is of no use, and a checkpoint alone is not safe either: it copies what the page cache holds without a
look at the checksums, over the file, while the log on the disk still has its hole. What is safe, in this order:

1. a marker is committed behind everything else, so that it is known where the log ends;
2. the log is read back, and its chain of checksums must reach the marker (https://www.sqlite.org/walformat.html);
3. the same bytes are written over themselves, which makes the pages dirty again, and synced;
4. a checkpoint carries them into the file, and the log begins again.

Each step may be done again, as often as it fails. Only a chain that is cut cannot be cured here: then the process must
end without another write, and SQLite recovers the file from what is whole when it is opened again.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_MAGIC = 0x377F0682
# Of the database's first page, https://www.sqlite.org/fileformat2.html#database_header
_SCHEMA_COOKIE = slice(40, 44)


class LogCut(Exception):
    """The log does not hold what was committed: its chain of checksums ends too early."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One page in the log that its checksum vouches for; `end` is the offset behind it in the file."""

    page_number: int
    is_commit: bool
    page: memoryview
    end: int


def log_of(database: Path) -> Path:
    """The log file of the database, which SQLite appends to."""
    return database.with_name(database.name + "-wal")


def make_certain(connection: sqlite3.Connection, database: Path) -> None:
    """Bring everything that was committed to the disk, in doubt about what of it is there.

    Args:
        connection: the writer's, outside of a transaction.

    Raises:
        LogCut: what was committed is not in the log any more.
        OSError, sqlite3.Error: it failed; it may be done again.
    """
    marker = _commit_marker(connection)
    connection.execute("BEGIN IMMEDIATE")  # nothing is appended meanwhile
    try:
        _rewrite(log_of(database), marker)
    finally:
        connection.execute("ROLLBACK")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _commit_marker(connection: sqlite3.Connection) -> bytes:
    """Count the schema cookie up, as VACUUM does: a value that no earlier frame has, and harmless to everybody."""
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    connection.execute("PRAGMA synchronous = OFF")
    try:
        connection.execute("BEGIN IMMEDIATE")
        (cookie,) = connection.execute("PRAGMA schema_version").fetchone()
        marked = (cookie + 1) % 2**31
        connection.execute(f"PRAGMA schema_version = {marked}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"PRAGMA synchronous = {level}")
    return struct.pack(">I", marked)


def _rewrite(log: Path, marker: bytes) -> None:
    with log.open("r+b", buffering=0) as file:
        content = file.read()
        marked = [
            frame.end
            for frame in frames(content)
            if frame.page_number == 1 and frame.is_commit and frame.page[_SCHEMA_COOKIE] == marker
        ]
        if not marked:
            raise LogCut(f"{log} does not hold all that was committed")
        written = 0
        while written < len(content):
            written += os.pwrite(file.fileno(), content[written:], written)
        os.fsync(file.fileno())


def frames(content: bytes) -> Iterator[Frame]:
    """The frames of a log up to the first one that is not whole; https://www.sqlite.org/walformat.html."""
    if len(content) < HEADER_BYTES:
        return
    magic, _, page_bytes, _, salt_1, salt_2, *checksum = struct.unpack_from(">8I", content)
    order = ">" if magic & 1 else "<"
    view = memoryview(content)
    sums = _checksum(view[:24], order, (0, 0))
    if magic & ~1 != _MAGIC or list(sums) != checksum:
        return
    start = HEADER_BYTES
    while start + FRAME_HEADER_BYTES + page_bytes <= len(content):
        number, size, *salts_and_sums = struct.unpack_from(">6I", content, start)
        page = view[start + FRAME_HEADER_BYTES : start + FRAME_HEADER_BYTES + page_bytes]
        sums = _checksum(page, order, _checksum(view[start : start + 8], order, sums))
        if salts_and_sums != [salt_1, salt_2, *sums]:
            return
        start += FRAME_HEADER_BYTES + page_bytes
        yield Frame(number, is_commit=size > 0, page=page, end=start)


def _checksum(data: memoryview, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
