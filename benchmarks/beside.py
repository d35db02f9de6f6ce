"""What a turn costs in this checkout and in another one, slice by slice in turns, so that a busy machine slows both.

    python -m benchmarks.beside OTHER [--slices 60] [--turns 100]

OTHER is a checkout of another version, such as one that `git worktree add /tmp/before HEAD~20` makes. Each of the two
runs one gateway in a process of its own, with this interpreter, SQLite, an instant model and the loopback channel, and
waits while the other has its slice. A slice is `--turns` quiet turns at 1, 10 and 100 conversations. Which one begins
changes from slice to slice. Printed are the medians of all slices, and the median of the ratios of neighbours, with its
quartiles: what lies between 0.97 and 1.03 on a shared machine is no difference.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parents[1]
CONVERSATIONS = (1, 10, 100)

# Run in each checkout, with the modules of that checkout. What it is told: conversations and turns, a line each time.
SIDE = """
import asyncio, json, os, resource, sys, tempfile, time
from pathlib import Path
started_at = time.perf_counter()
from benchmarks.start import resident_mb
from benchmarks.turn_overhead import QUIET, running_gateway, talk
from gateway.runtime.logs import configure_logs

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

async def main():
    with tempfile.TemporaryDirectory() as home:
        async with running_gateway(Path(home)) as adapter:
            print(json.dumps({"start_s": time.perf_counter() - started_at}), flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                conversations, turns = map(int, line.split())
                used_s = cpu_s()
                _, took_s = await talk(adapter, conversations, turns, QUIET)
                row = {"turns_s": turns / took_s, "cpu_ms": (cpu_s() - used_s) / turns * 1e3}
                print(json.dumps(row | {"mb": resident_mb(os.getpid())}), flush=True)

configure_logs("error")
asyncio.run(main())
"""


class Side:
    """A gateway of one checkout, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.start_s = self._answer()["start_s"]

    def slice(self, conversations: int, turns: int) -> dict[str, float]:
        """`turns_s`, `cpu_ms` of a turn, and `mb` of the process afterwards."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{conversations} {turns}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the gateway in {self._process.args} ended with {self._process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer


@contextmanager
def side(checkout: Path) -> Iterator[Side]:
    """Raises SystemExit where the checkout has no gateway that these benchmarks can run."""
    if not (checkout / "benchmarks" / "turn_overhead.py").is_file():
        raise SystemExit(
            f"{checkout} is no checkout of this project. Make one with: git worktree add {checkout} VERSION"
        )
    paths = os.pathsep.join(map(str, (checkout, checkout / "gateway" / "sdk" / "src")))
    process = subprocess.Popen(
        [sys.executable, "-c", SIDE],
        cwd=checkout, env=os.environ | {"PYTHONPATH": paths}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield Side(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def measure(ours: Side, other: Side, slices: int, turns: int) -> None:
    for conversations in CONVERSATIONS:  # both are warm before the first slice that counts
        ours.slice(conversations, turns)
        other.slice(conversations, turns)
    print(f"{'conversations':>14}  {'figure':<12} {'other':>9} {'here':>9} {'here/other':>11}  quartiles")
    for conversations in CONVERSATIONS:
        pairs = []
        for number in range(slices):
            first, second = (ours, other) if number % 2 else (other, ours)
            rows = {id(side): side.slice(conversations, turns) for side in (first, second)}
            pairs.append((rows[id(other)], rows[id(ours)]))
        for key, name in (("turns_s", "turns/s"), ("cpu_ms", "CPU ms/turn"), ("mb", "MB")):
            low, ratio, high = statistics.quantiles([mine[key] / its[key] for its, mine in pairs], n=4)
            its, mine = (statistics.median(row[key] for row in rows) for rows in zip(*pairs, strict=True))
            print(f"{conversations:>14}  {name:<12} {its:>9.2f} {mine:>9.2f} {ratio:>11.3f}  {low:.3f} to {high:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--slices", type=int, default=60)
    parser.add_argument("--turns", type=int, default=100, help="turns of a slice")
    options = parser.parse_args()
    if options.slices < 2:
        parser.error("--slices: expected 2 or more, since quartiles are printed")
    with side(HERE) as ours, side(options.other.resolve()) as other:
        print(f"start: {other.start_s:.2f} s there, {ours.start_s:.2f} s here\n")
        measure(ours, other, options.slices, options.turns)


if __name__ == "__main__":
    main()
