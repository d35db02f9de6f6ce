"""How fast a file is read, at least: one that is slower would hold a thread for hours, and bring in next to nothing."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import IO, Self

LEAST_BYTES = 1 << 20
"""Of the file, or of its records, in each window; a slow machine reads an honest export a hundred times as fast."""
WINDOW_S = 60.0
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
        return self._spent_s + self._clock() - self._resumed_at >= WINDOW_S


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
