"""The driver's platform for several workers: it knows which of them has the channel."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from typing import Any

from tests.faults.platform import WirePlatform
from tests.faults.wire import Sends


class WorkersPlatform(WirePlatform):
    """Of several workers the one that connected last has the channel.

    Attributes:
        workers: how many there are.
        ends: how much was shown at each fault, and whenever another worker had the channel.
        holder: its process, 0 before the first.
    """

    def __init__(self, sends: Sends, workers: int) -> None:
        super().__init__(sends)
        self.workers = workers
        self.ends: list[int] = []
        self.holder = 0

    def note_fault(self) -> None:
        """From here on a reply may be one that a worker was sending."""
        self.ends.append(len(self._shown))

    def _take(self, frame: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if frame["type"] == "ready":
            self.note_fault()
            asked = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            self.holder = struct.unpack("3i", asked)[0]
        super()._take(frame, writer)


def platform(index: int, *, row: int = 0) -> WorkersPlatform:
    """By turns two and four workers, and each kind of sending; one row begins with two, the next with four."""
    kinds: Sequence[Sends] = ("plain", "lookup", "idempotent")
    return WorkersPlatform(kinds[(index + row) // 2 % 3], (2, 4)[(index + row) % 2])
