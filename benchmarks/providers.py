"""What each kind of memory costs a turn, what it loses under the hammer, and what one that hangs adds to a turn.

    python -m benchmarks.providers [--samples 400] [--updates 10000] [--only redis] [--tree ../old]

Each kind lies on a real server, which the program starts on 127.0.0.1 and ends. What a warm `prefetch` takes is
compared with one bare round trip of the same client library to the same server (PING, SELECT 1, a GET that is answered
with 304). Both are measured alternately, in one process and one event loop, uvloop's, as `ethos serve` has it. Files
and traces have no server, so there nothing is taken off.

The hammer is that of `gateway.testing.hammer`: 8 processes, killed at every step of a write and at random, and a person
who edits by `write` and past the gateway. If a line is lost, doubled or left over, the exit code is 1.

With `--tree`, the quiet turn with `markdown` is measured in another checkout, too, in alternating rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import uvloop
from redis.asyncio import Redis

from gateway.errors import MemoryUnavailable
from gateway.memory.sync import MemorySync
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate, SyncReport
from gateway.runtime.logs import configure_logs
from tests.faults import memory as faults
from tests.gateway.testing.places import SERVERS, Place

GOALS_MS = {"markdown": 0.1, "redis": 1.0, "postgres": 2.0, "webdav": 3.0}
ROOT = Path(__file__).parents[1]
SCOPE = MemoryScope(personality_id="assistant", user_id="u_1", session_id="s", turn_id="t")
USER = "users/u_1/USER.md"
NOTES = "Prefers short answers, and green tea in the morning. Works on the harbour crane project.\n"
Ask = Callable[[], Awaitable[Any]]


# ---- one round trip of each client ----------------------------------------------------------------------------------


@asynccontextmanager
async def bare(place: Place) -> AsyncIterator[Ask | None]:
    """What asks the place's server once, by its client library alone; None where there is no server."""
    arguments = place.arguments
    async with AsyncExitStack() as stack:
        if arguments["kind"] == "redis":
            redis = await stack.enter_async_context(Redis.from_url(arguments["url"]))
            yield redis.ping
        elif arguments["kind"] == "postgres":
            connection = await psycopg.AsyncConnection.connect(arguments["url"], autocommit=True)
            await stack.enter_async_context(connection)
            yield lambda: connection.execute("SELECT 1")
        elif arguments["kind"] == "webdav":
            auth = httpx.BasicAuth(arguments["username"], arguments["password"])
            client = await stack.enter_async_context(httpx.AsyncClient(auth=auth))
            url = f"{arguments['url']}/{USER}"
            headers = {"Accept-Encoding": "identity"}
            headers["If-None-Match"] = (await client.get(url, headers=headers)).headers["ETag"]
            yield lambda: client.get(url, headers=headers)
        else:
            yield None


async def timed(ask: Ask | None) -> float:
    """Milliseconds."""
    if ask is None:
        return 0.0
    started_at = time.perf_counter()
    await ask()
    return (time.perf_counter() - started_at) * 1e3


async def prefetch_ms(place: Place, samples: int) -> tuple[list[float], list[float]]:
    """Of `samples` bare round trips and as many warm prefetches, by turns; both documents have some 4 KB."""
    async with place.memory() as provider:
        await provider.sync(SCOPE, [MemoryUpdate.add("memory", NOTES * 45), MemoryUpdate.add("user", NOTES * 45)])
        if hasattr(provider, "settle"):
            await provider.settle()
        await asyncio.sleep(1.1)  # so long Apache calls an ETag weak, and a file is not known to be quiet
        async with bare(place) as ask:
            trips, prefetches = [], []
            for number in range(samples + 20):
                trip, prefetch = await timed(ask), await timed(lambda: provider.prefetch(SCOPE))
                if number >= 20:
                    trips.append(trip)
                    prefetches.append(prefetch)
    return trips, prefetches


def show_prefetch(name: str, samples: int) -> None:
    """A row of the table."""
    with SERVERS[name]() as server, tempfile.TemporaryDirectory() as directory:
        trips, prefetches = uvloop.run(prefetch_ms(server(Path(directory, "home")), samples))
    trip, prefetch = statistics.median(trips), statistics.median(prefetches)
    slow = sorted(prefetches)[int(len(prefetches) * 0.99)]
    goal = GOALS_MS.get(name.partition("-")[0])
    verdict = "" if goal is None else f"{goal:g} {'reached' if prefetch - trip <= goal else 'MISSED'}"
    print(f"| `{name}` | {trip:.3f} | {prefetch:.3f} | {prefetch - trip:.3f} | {slow:.2f} | {verdict} |", flush=True)


# ---- a memory that hangs --------------------------------------------------------------------------------------------


class Hanging:
    """A memory that never answers; a journal that has nothing, too."""

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:  # noqa: D102
        await asyncio.Event().wait()
        raise AssertionError(scope)

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:  # noqa: D102
        await asyncio.Event().wait()
        raise AssertionError(scope, updates)

    async def unsettled_memory(self, **_: object) -> Sequence[Any]:  # noqa: D102
        return ()

    async def settle_memory(self, turn_id: str, outcomes: Sequence[str]) -> None:  # noqa: D102
        raise AssertionError(turn_id, outcomes)


async def hanging_s(turns: int) -> list[float]:
    """What it adds to each of the first turns."""
    hanging = Hanging()
    sync = MemorySync(hanging, hanging)
    times = []
    for _ in range(turns):
        started_at = time.perf_counter()
        try:
            await sync.prefetch(SCOPE)
        except MemoryUnavailable:
            times.append(time.perf_counter() - started_at)
    await sync.close()
    return times


# ---- a quiet turn, beside another checkout --------------------------------------------------------------------------


def quiet_turn_ms(tree: Path, turns: int) -> float:
    """The median of a turn in one conversation, as the checkout's own `turn_overhead` prints it."""
    command = [sys.executable, "-m", "benchmarks.turn_overhead", "--turns", str(turns), "--model", "offline"]
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'gateway' / 'sdk' / 'src'}"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"^ +1 +\d+ +(\d+\.\d+)", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{tree}: {done.stderr or done.stdout}")
    return float(found[1])


def show_quiet_turns(old: Path, *, turns: int, rounds: int) -> None:
    pairs = [(quiet_turn_ms(ROOT, turns), quiet_turn_ms(old, turns)) for _ in range(rounds)]
    new_ms, old_ms = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"\nquiet turn with markdown, median of {rounds} rounds: {new_ms:.2f} ms; in {old.name}: {old_ms:.2f} ms")
    print(f"each round, new divided by old: {', '.join(f'{new / old:.2f}' for new, old in pairs)}")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=400, help="of each prefetch")
    parser.add_argument("--updates", type=int, default=10_000, help="under the hammer, of each kind; 0 for none")
    parser.add_argument("--kills", type=int, default=6, help="of each of its processes")
    parser.add_argument("--hanging-turns", type=int, default=4, help="with a memory that hangs; 0 for none")
    parser.add_argument("--only", action="append", default=[], help="kinds with this in their name; may be repeated")
    parser.add_argument("--tree", type=Path, help="another checkout, to compare a quiet turn with")
    parser.add_argument("--turns", type=int, default=1000, help="of a round of that comparison")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    configure_logs("error")
    names = faults.wanted(options.only)
    if options.samples:
        print("| memory | bare round trip, ms | warm prefetch | beyond it | p99 of prefetch | goal |")
        print("| --- | ---: | ---: | ---: | ---: | --- |")
        for name in names:
            show_prefetch(name, options.samples)
    if options.hanging_turns:
        times = uvloop.run(hanging_s(options.hanging_turns))
        print(f"\na memory that hangs adds, turn by turn: {', '.join(f'{each:.3f} s' for each in times)}", flush=True)
    reports = {}
    if options.updates:
        reports = asyncio.run(faults.run(names, updates=options.updates, kills=options.kills, seconds=None))
        print(f"\n{faults.table(reports)}")
    if options.tree:
        show_quiet_turns(options.tree.resolve(), turns=options.turns, rounds=options.rounds)
    return 0 if all(report.is_clean for report in reports.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
