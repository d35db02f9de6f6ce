"""How fast a store is copied: SQLite to PostgreSQL and back, and to another file, with search and verification.

    python -m benchmarks.copying                        # 20 000 messages
    python -m benchmarks.copying --messages 1000000     # some minutes, 3 GB of disk

The texts are made up, as in `benchmarks.search`. A server of its own is started; without one, only SQLite is measured.
What is printed for each copy: rows a second while they are written, and the time for all, with the index of the target
and every row read back.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.messages import corpus_of, fill
from gateway.ops.moving import Place, opened, upgrade_database
from gateway.store.copying import Copying
from tests.servers import postgres

GOAL_S = 300.0
OF_MESSAGES = 1_000_000


async def copy(source: Place, target: Place) -> tuple[int, float, float]:
    """Rows, and seconds for writing them and for all."""
    began_s = time.monotonic()
    written_s = began_s
    async with opened(source) as one, opened(target) as other:
        index = other.index

        async def noted() -> None:
            nonlocal written_s
            written_s = time.monotonic()
            await index()

        other.index = noted  # type: ignore[method-assign]
        tables = await Copying(one, other, told=lambda _table, _amount: None).back_up()
    return sum(table.amount for table in tables), written_s - began_s, time.monotonic() - began_s


@contextmanager
def places(root: Path) -> Iterator[list[tuple[str, Place]]]:
    """An empty place of each engine that there is."""
    directories: list[tuple[str, Place]] = [("SQLite", root / name) for name in ("one", "two", "three")]
    for _, place in directories:
        assert isinstance(place, Path)
        place.mkdir(mode=0o700)
    if postgres.MISSING:
        yield directories[:2]
        return
    with postgres.postgres_server() as server:
        yield [directories[0], ("PostgreSQL", server.url()), directories[1], directories[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast a store is copied.")
    parser.add_argument("--messages", type=int, default=20_000)
    messages: int = parser.parse_args().messages
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as root, places(Path(root)) as found:
        first = found[0][1]
        assert isinstance(first, Path)
        upgrade_database(first)
        fill(first / "ethos.sqlite", messages, corpus_of(rng), rng)
        print(f"| from | to | rows | rows/s while written | all, with index and verification | of {OF_MESSAGES:,} |")
        print("|---|---|---|---|---|---|")
        for (source_name, source), (target_name, target) in itertools.pairwise(found):
            rows, written_s, all_s = asyncio.run(copy(source, target))
            scaled_s = all_s * OF_MESSAGES / messages
            speed = rows / written_s
            print(f"| {source_name} | {target_name} | {rows:,} | {speed:,.0f} | {all_s:.1f} s | {scaled_s:,.0f} s |")
    print(f"\nGoal: {GOAL_S:.0f} s for {OF_MESSAGES:,} messages.")


if __name__ == "__main__":
    main()
