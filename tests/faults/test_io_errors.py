"""The kernel says no: EIO and ENOSPC in place of writes, syncs and renames. Nothing acknowledged is lost."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.platform import WirePlatform
from tests.faults.process import Nursery
from tests.faults.stream import Fault
from tests.faults.traced import TracedStream, strace_missing

# In each thread of its own, the calls from FIRST on, and then every STEPth.
INJECTIONS = [
    "fdatasync:error=EIO:when=6+5",
    "fsync:error=EIO:when=4+3",
    "pwrite64:error=ENOSPC:when=80+17",
    "pwrite64:error=EIO:when=80+13",
    "rename,renameat2:error=EIO:when=3+3",
    "link:error=EIO:when=2+2",
    "ftruncate:error=EIO:when=1+2",
]


class FailingKernelStream(TracedStream):
    """One life with errors, through three bursts of messages, begun again where an error ends it; then a sound one."""

    has_colors = False

    async def _one_fault(self) -> None:
        for _ in range(3):
            if self._serving is None:
                self._serving = await self._start("")
            await self._write()
            await asyncio.wait([self._serving.status], timeout=0.8)
            if self._serving.status.done():
                self._serving = None
        self._tally.kills += 1

    async def _last_life(self) -> None:
        if self._serving is not None:
            await self._killed(self._serving)
        self._options = ["-e", "trace=none"]
        await super()._last_life()


@pytest.mark.slow
@pytest.mark.parametrize("injection", INJECTIONS)
async def test_an_error_of_the_disk_delays_and_loses_nothing(injection: str) -> None:
    """Row 8."""
    if (missing := strace_missing()) is not None:
        pytest.skip(missing)
    calls = injection.partition(":")[0]
    async with Nursery() as nursery:
        stream = FailingKernelStream(
            Fault("none"), WirePlatform("lookup"), nursery, seed=injection, kills=1,
            options=["-e", f"trace={calls}", "-e", f"inject={injection}"],
        )  # fmt: skip
        tally = await stream.run()
    assert tally.is_clean, (tally.problems, tally.notes)
