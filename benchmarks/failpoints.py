"""What failpoints cost while they are off: one call against that of an empty function, and all of a turn against it.

python -m benchmarks.failpoints [--turns 500]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import timeit
from pathlib import Path

from benchmarks.turn_overhead import REMEMBER, running_gateway, talk
from gateway.runtime import failpoints
from gateway.runtime.logs import configure_logs

CALLS = 1_000_000


def _empty(_name: str) -> None:
    """Do nothing."""


def cost_ns(function: str) -> float:
    """Of one call; the best of five rounds, because whatever disturbs a round makes it longer."""
    names = {"empty": _empty, "reach": failpoints.reach}
    return min(timeit.repeat(f"{function}('inbox.committed')", globals=names, number=CALLS, repeat=5)) / CALLS * 1e9


async def turn_ms(turns: int) -> float:
    """The median of a turn that remembers something, which comes to the most points."""
    with tempfile.TemporaryDirectory() as home:
        async with running_gateway(Path(home)) as adapter:
            times, _ = await talk(adapter, 1, turns, REMEMBER)
    return statistics.median(times) * 1e3


async def points_per_turn(turns: int) -> float:
    """Counted, so that the counting is not timed."""
    count = 0

    def act(_name: str) -> None:
        nonlocal count
        count += 1

    with tempfile.TemporaryDirectory() as home:
        async with running_gateway(Path(home)) as adapter:
            await talk(adapter, 1, 20, REMEMBER)
            failpoints._act = act  # noqa: SLF001 (there is no setting that counts, and none is needed elsewhere)
            try:
                await talk(adapter, 1, turns, REMEMBER)
            finally:
                failpoints.arm("")
    return count / turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=500)
    turns = parser.parse_args().turns
    configure_logs("error")
    off_ns, empty_ns = cost_ns("reach"), cost_ns("empty")
    points, median_ms = asyncio.run(points_per_turn(turns)), asyncio.run(turn_ms(turns))
    print(f"a failpoint that is off: {off_ns:.0f} ns, {off_ns / empty_ns:.2f} times an empty function")
    print(
        f"a turn with a memory write: {points:.0f} of them, {points * off_ns / 1e6:.4f} ms of its {median_ms:.2f} ms, "
        f"{points * off_ns / 1e6 / median_ms:.5f} of it"
    )


if __name__ == "__main__":
    main()
