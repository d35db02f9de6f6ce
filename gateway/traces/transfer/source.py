"""A file that is imported: opened as often as needed, how far it has been read, and how fast, at least.

One that is read more slowly would hold a thread for hours, and bring in next to nothing.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Self, cast

GROWS = "{name} grows too large when it is unpacked. Unpack it by hand."
_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 65_536
_LEAST_UNPACKED_BYTES = 1 << 30
_MOST_TIMES = 30  # text is packed to a tenth, more or less
_FIRST_WEIGHS = 20
"""What is read later is skimmed for a little: so much longer the first time takes."""
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
WINDOWS = "Windows-1252"
"""What spreadsheets write in Europe and America when they do not write Unicode."""

LEAST_BYTES = 1 << 20
"""Of the file, or of its records, in each window; a slow machine reads an honest export a hundred times as fast."""
PACE_WINDOW_S = 60.0
RECORD_BYTES = 4096
"""What a record counts besides its text: 256 of them in a window are enough."""
TOO_SLOW = (
    f"it is read too slowly (less than {LEAST_BYTES >> 20} MB and {LEAST_BYTES // RECORD_BYTES} records in a minute), "
    "so the import ended here; what came before is in. Split the file, and import what is missing"
)


class TooSlow(Exception):
    """The file is not read any further."""


class Pace:
    """Counts what a reader has read and how long that took. It is entered for the time of the reading alone.

    Attributes:
        is_given_up: whether that was too slow once; then it stays so.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._resumed_at = clock()
        self._spent_s = 0.0
        self._read_bytes = 0
        self.is_given_up = False

    def __enter__(self) -> Self:
        self._resumed_at = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._spent_s += self._clock() - self._resumed_at

    def count(self, read_bytes: int) -> None:
        """So much was read now.

        Raises:
            TooSlow: that and what was read before is too little for the time.
        """
        self._read_bytes += read_bytes
        if self.gives_up():
            raise TooSlow
        if self._is_window_over():
            self._spent_s, self._read_bytes, self._resumed_at = 0.0, 0, self._clock()

    def gives_up(self) -> bool:
        """Whether a window has passed, by now, in which too little was read."""
        self.is_given_up |= self._read_bytes < LEAST_BYTES and self._is_window_over()
        return self.is_given_up

    def _is_window_over(self) -> bool:
        return self._spent_s + self._clock() - self._resumed_at >= PACE_WINDOW_S


class PacedFile(io.BufferedIOBase):
    """A file that counts what is read of it. Closing it is left to the caller that opened it."""

    def __init__(self, file: IO[bytes], pace: Pace) -> None:
        self._file = file
        self._pace = pace

    def readable(self) -> bool:
        """Always."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """As of the file; raises `TooSlow` where that takes too long."""
        data = self._file.read(-1 if size is None else size)
        self._pace.count(len(data))
        return data

    def read1(self, size: int = -1, /) -> bytes:
        """The same: a file of the disk has what is asked for."""
        return self.read(size if size >= 0 else io.DEFAULT_BUFFER_SIZE)

    def tell(self) -> int:
        """The position in the file."""
        return self._file.tell()


def most_unpacked_bytes(path: Path) -> int:
    """How many bytes may come out of a zip; one that grows by more is a trap."""
    return max(_LEAST_UNPACKED_BYTES, _MOST_TIMES * path.stat().st_size)


class Source:
    """One file, or a file inside of a zip.

    Attributes:
        passes: how often it will be read from its beginning.
        pace: counts what is read of it; None: nothing does.
    """

    def __init__(self, path: Path, member: str | None = None) -> None:
        self.path = path
        self.member = member
        self.passes = 1
        self.pace: Pace | None = None
        self._passed = 0
        self._file: IO[bytes] | None = None
        self._position = 0
        if member is None:
            self.size_bytes = path.stat().st_size
        else:
            with zipfile.ZipFile(path) as archive:
                self.size_bytes = archive.getinfo(member).file_size

    @property
    def name(self) -> str:
        """The file's name, for error texts."""
        return self.path.name if self.member is None else f"{self.path.name}/{self.member}"

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """From its beginning; a mark of the byte order that some editors write is left out.

        Raises:
            OSError, zipfile.BadZipFile: it cannot be read.
        """
        with contextlib.ExitStack() as stack:
            if self.member is None:
                file: IO[bytes] = stack.enter_context(self.path.open("rb"))
            else:
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                file = stack.enter_context(archive.open(self.member))
            if file.read(3) != _BOM:
                file.seek(0)
            self._file = file
            try:
                yield file if self.pace is None else cast(IO[bytes], PacedFile(file, self.pace))
            finally:
                self._position = self.size_bytes if file.closed else file.tell()
                self._file = None

    def head(self) -> bytes:
        """How it begins, without blanks in front."""
        with self.opened() as file:
            head = file.read(_HEAD_BYTES)
        self._position = 0
        return head.lstrip()

    def next_pass(self) -> None:
        """It is read from its beginning once more."""
        self._passed += 1
        self._position = 0

    def progress(self) -> tuple[int, int]:
        """How much is done of how much: bytes, those of the first pass weighed by the work they make."""
        file = self._file
        position = self._position if file is None or file.closed else file.tell()
        first, later = _FIRST_WEIGHS * self.size_bytes, (self.passes - 1) * self.size_bytes
        before = first + (self._passed - 1) * self.size_bytes
        done = before + position if self._passed else _FIRST_WEIGHS * position
        return min(first + later, done), first + later


def decode_text(data: bytes) -> tuple[str, str | None]:
    """The text; and the encoding, where it had to be guessed."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace"), None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace"), WINDOWS
