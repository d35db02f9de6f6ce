"""A disk that fills while messages come in, in the middle of turns and of memory writes, and is emptied again."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.faults.process import Serving
from tests.faults.stream import Stream

DISK_MB = 20
_BLOCK = 4096
_REFUSAL = re.compile(r"^ethos: .*(?:disk is full|No space left on device|disk I/O error)", re.MULTILINE)


class Ballast:
    """A file that takes the room away.

    A tmpfs does as a disk does: a page that is written for the first time needs a free block.
    """

    def __init__(self, disk: Path) -> None:
        self._path = disk / "ballast"

    def fill(self, spare_bytes: int) -> None:
        """Take all room but a little."""
        with self._path.open("ab") as file:
            try:
                while True:
                    os.write(file.fileno(), b"x" * _BLOCK * 16)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        size = self._path.stat().st_size
        os.truncate(self._path, max(0, size - spare_bytes) // _BLOCK * _BLOCK)

    def empty(self) -> None:
        """Give it back."""
        self._path.unlink(missing_ok=True)


class FullDiskStream(Stream):
    """Each fault is a filling at a random moment, with a random little room left, for a random time.

    Every third one is killed while the disk is full, and has to start on it.
    """

    has_colors = False

    async def _one_fault(self) -> None:
        serving = self._serving or await self._begin("")
        refused = self._refusals()
        ballast = Ballast(self._home.parent)
        await asyncio.wait([serving.status], timeout=self._numbers.uniform(0.0, 0.1))
        ballast.fill(self._numbers.choice([0, 0, 1, 2, 4, 8, 16, 64]) * _BLOCK)
        await self._write()
        await asyncio.wait([serving.status], timeout=self._numbers.uniform(0.05, 0.3))
        if self._tally.kills % 3 == 2 and self._serving is not None:
            await self._killed(serving)
            ballast.empty() if self._numbers.random() < 0.5 else None
            serving = await self._begin("")
            await asyncio.wait([serving.status], timeout=0.2)
        ballast.empty()
        if await self._answered_or_ended(serving) and self._refusals() > refused:
            # It said that the disk is full, and ended: as a service it is started again.
            self._serving = None
            serving = await self._begin("")
        self._tally.kills += 1
        if await self._answered_or_ended(serving):
            self._tally.problems.append(f"it ended although there was room, with {serving.status.result()}")
            self._serving = None

    def _refusals(self) -> int:
        """How often it has ended because the disk was full."""
        return len(_REFUSAL.findall(self._log.read_text())) if self._log.exists() else 0

    async def _last_life(self) -> None:
        if self._serving is not None:
            await self._killed(self._serving)
        await super()._last_life()


def health_of(home: Path, serving: Serving) -> dict[str, Any]:
    """What `/health` says, with the token."""
    running = json.loads((home / "run" / "gateway.json").read_text())
    assert running["pid"] == serving.pid
    token = (home / "web-token").read_text().strip()
    request = urllib.request.Request(f"{running['url']}health", headers={"Authorization": f"Bearer {token}"})  # noqa: S310 (our own address)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 (as above)
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        found = json.load(error)
    return found
