"""What the gateway itself costs: from the message to the answer, every turn durable, an instant model.

    python -m benchmarks.turn_overhead [--turns 2000] [--model offline|real|both]

With the real model client, what `benchmarks.real_turns` prints: from the API to its event stream, in processes of their
own. With the offline model, from `accept` to the answer at a channel, in this process: the time of a quiet turn alone,
turns per second at 1, 10 and 100 conversations, how often a turn asks the store (each time is a hop to another thread
and back; `tests/gateway/way/test_round_trips.py` keeps the number), the number of
fsyncs per turn (counted by strace, where it is installed), and what a bare fsync costs on this disk in the same minute.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import real_turns
from benchmarks.loopback import LoopbackAdapter
from benchmarks.start import resident_mb
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.runtime.logs import configure_logs
from gateway.store.sqlite.engine import SqliteEngine

CONFIG = "channels: {loopback: {kind: benchmarks.loopback}}\n"
QUIET = "hello there"
REMEMBER = "remember that fact number {} is true"


@asynccontextmanager
async def running_gateway(home: Path) -> AsyncIterator[LoopbackAdapter]:
    (home / "config.yaml").write_text(CONFIG)
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        adapter = gateway.adapters[0]
        assert isinstance(adapter, LoopbackAdapter)
        running = asyncio.create_task(gateway.run(stop))
        try:
            yield adapter
        finally:
            stop.set()
            await running


async def talk(adapter: LoopbackAdapter, conversations: int, turns: int, text: str) -> tuple[list[float], float]:
    """Each conversation asks again when it is answered; seconds of each turn, and of all."""
    left = iter(range(turns))
    times: list[float] = []

    async def one(name: str) -> None:
        for number in left:
            times.append(await adapter.ask(name, text.format(number)))  # noqa: PERF401 (the lists of all are one)

    started_at = time.perf_counter()
    await asyncio.gather(*(one(f"person{number}") for number in range(conversations)))
    return times, time.perf_counter() - started_at


@contextmanager
def counted_trips() -> Iterator[Iterator[int]]:
    """The next number of what is given is one more for every question to the store meanwhile, counted from 0."""
    trips = itertools.count()
    write, read = SqliteEngine.write, SqliteEngine.read

    def counting(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **kwargs: Any) -> Any:
            next(trips)
            return ask(*args, **kwargs)

        return asked

    SqliteEngine.write, SqliteEngine.read = counting(write), counting(read)  # type: ignore[method-assign]
    try:
        yield trips
    finally:
        SqliteEngine.write, SqliteEngine.read = write, read  # type: ignore[method-assign]


def bare_fsync_ms(directory: Path) -> float:
    path = directory / "bare"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    started_at = time.perf_counter()
    for _ in range(100):
        os.write(fd, b"x" * 4096)
        os.fsync(fd)
    os.close(fd)
    return (time.perf_counter() - started_at) * 10


def fsyncs_per_turn(text: str) -> float | None:
    """Counted in a process of its own, as the difference between a short and a longer run."""
    if shutil.which("strace") is None:
        return None
    counts = []
    for turns in (50, 250):
        with tempfile.TemporaryDirectory() as home, tempfile.NamedTemporaryFile() as trace:
            command = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", trace.name, sys.executable, "-m"]
            subprocess.run(
                [*command, "benchmarks.turn_overhead", "--only", str(turns), "--home", home, "--text", text], check=True
            )
            counts.append(len(re.findall(r"f(?:data)?sync\(", Path(trace.name).read_text())))
    return (counts[1] - counts[0]) / 200


async def measure(turns: int) -> None:
    print(
        f"{'conversations':>14} {'turns':>6} {'median ms':>10} {'p99 ms':>8} {'turns/s':>8} {'CPU ms/turn':>12} "
        f"{'store trips':>12} {'MB before':>10} {'MB after':>9}"
    )
    for conversations in (1, 10, 100):
        with tempfile.TemporaryDirectory() as name:
            async with running_gateway(Path(name)) as adapter:
                await talk(adapter, conversations, 20 * conversations, QUIET)
                cpu_s, before_mb = _cpu_s(), resident_mb(os.getpid())
                with counted_trips() as trips:
                    times, took_s = await talk(adapter, conversations, turns, QUIET)
                cpu_ms = (_cpu_s() - cpu_s) / turns * 1e3
                after_mb = resident_mb(os.getpid())
            ordered = sorted(times)
            print(
                f"{conversations:>14} {turns:>6} {statistics.median(ordered) * 1e3:>10.2f} "
                f"{ordered[int(len(ordered) * 0.99)] * 1e3:>8.2f} {turns / took_s:>8.0f} {cpu_ms:>12.2f} "
                f"{next(trips) / turns:>12.1f} {before_mb:>10.1f} {after_mb:>9.1f}"
            )
    with tempfile.TemporaryDirectory() as name:
        fsync_ms = bare_fsync_ms(Path(name))
        async with running_gateway(Path(name)) as adapter:
            quiet, _ = await talk(adapter, 1, 300, QUIET)
            noting, _ = await talk(adapter, 1, 300, REMEMBER)
        print(f"\nbare fsync: {fsync_ms:.2f} ms")
        for what, text, times in (("quiet turn", QUIET, quiet), ("turn with one memory file", REMEMBER, noting)):
            median_ms = statistics.median(times) * 1e3
            count = fsyncs_per_turn(text)
            if count is None:
                print(f"{what}: median {median_ms:.2f} ms (install strace to count fsyncs)")
            else:
                beyond = median_ms - count * fsync_ms
                print(f"{what}: median {median_ms:.2f} ms, {count:.2f} fsyncs, {beyond:.2f} ms beyond them")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _only(home: Path, turns: int, text: str) -> None:
    async with running_gateway(home) as adapter:
        await talk(adapter, 1, turns, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--model", choices=("offline", "real", "both"), default="both")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--text", default=QUIET, help=argparse.SUPPRESS)
    options = parser.parse_args()
    configure_logs("error")
    if options.only:
        asyncio.run(_only(options.home, options.only, options.text))
        return
    if options.model != "real":
        print("with the offline model, from the channel to the channel:\n")
        asyncio.run(measure(options.turns))
    if options.model != "offline":
        print()
        real_turns.show(real_turns.TITLE, asyncio.run(real_turns.measure(options.turns, 200)), 200, options.turns)


if __name__ == "__main__":
    main()
