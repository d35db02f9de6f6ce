"""What watching costs: turns per second with nobody listening, with metrics, with traces, in alternating runs.

    python -m benchmarks.watching [--turns 1000] [--rounds 3]

Prints, for each, the time of a turn against that without (median of the rounds of one run), and what the import takes.
Traces go to a processor that throws them away, so that no collector is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import SpanProcessor

from benchmarks.turn_overhead import QUIET, running_gateway, talk
from gateway.ops.telemetry.metrics import Metrics
from gateway.ops.telemetry.traces import Traces
from gateway.runtime.logs import configure_logs
from gateway.runtime.observe import listening

CONVERSATIONS = 10
WAYS = ("nobody", "metrics", "traces", "both")


def listeners(way: str) -> list[Any]:
    metrics = [Metrics()] if way in ("metrics", "both") else []
    return [*metrics, *([Traces(SpanProcessor())] if way in ("traces", "both") else [])]


async def seconds_per_turn(way: str, turns: int) -> float:
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        for listener in listeners(way):
            stack.enter_context(listening(listener))
        async with running_gateway(Path(home)) as adapter:
            await talk(adapter, CONVERSATIONS, turns // 10, QUIET)  # warm
            began_s = time.process_time()
            await talk(adapter, CONVERSATIONS, turns, QUIET)
            return (time.process_time() - began_s) / turns


def import_s(statement: str) -> float:
    program = f"import time; began = time.perf_counter(); {statement}; print(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    configure_logs("warning", "json")
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            taken[way].append(asyncio.run(seconds_per_turn(way, options.turns)))
    alone = statistics.median(taken["nobody"])
    for way in WAYS:
        median = statistics.median(taken[way])
        print(f"{way:8} {median * 1e3:.2f} ms of CPU a turn, {median / alone:.2f} times that of nobody")
    for name, statement in (
        ("metrics", "import prometheus_client"),
        ("traces", "import opentelemetry.sdk.trace.export, opentelemetry.exporter.otlp.proto.http.trace_exporter"),
    ):
        print(f"{name:8} {statistics.median(import_s(statement) for _ in range(5)):.3f} s to import")


if __name__ == "__main__":
    main()
