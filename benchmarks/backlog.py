"""A start with ten thousand messages waiting: when people get their first answer, and what new people cost.

    python -m benchmarks.backlog [--messages 10000] [--people 1000]

Prints, for people who are known and for people who write for the first time: the seconds from the start of the gateway
to the first answer and to the first answer of 95 of 100 people, and the answers in a second. The model answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.flood import message
from benchmarks.loopback import LoopbackAdapter
from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.runtime.logs import configure_logs

MOST_S = 5.0
AT_ONCE = 250
CONFIG = "channels: {loopback: {kind: benchmarks.loopback}}\nshutdown_s: 0\n"


class QuickModel:
    """Answers at once."""

    name = "quick"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """One word."""
        del request
        usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1, cost_usd=0.0)
        yield ModelReply(message=ChatMessage(role="assistant", text="here"), usage=usage)


def gateway_in(home: Path) -> Gateway:
    return Gateway(home, load_config(home=home).config, is_served=False, model=lambda _name: QuickModel())


async def fill(home: Path, messages: int, people: int, *, are_known: bool) -> None:
    """Accept the messages, one person after the other in turns, and answer none of them."""
    async with gateway_in(home) as gateway:
        adapter = gateway.adapters[0]
        assert isinstance(adapter, LoopbackAdapter)
        if are_known:
            keys = [(f"loopback:p{person}", f"p{person}") for person in range(people)]
            await asyncio.gather(*(gateway.identities.resolve(*key) for key in keys))
        for begin in range(0, messages, AT_ONCE):
            numbers = range(begin, min(messages, begin + AT_ONCE))
            ones = (message(adapter, f"m{n}", f"p{n % people}", f"p{n % people}") for n in numbers)
            await asyncio.gather(*(gateway.inbox.accept(one) for one in ones))


async def measure(home: Path, messages: int, people: int) -> tuple[float, float, float]:
    began_s, stop = time.perf_counter(), asyncio.Event()
    async with gateway_in(home) as gateway:
        adapter = gateway.adapters[0]
        assert isinstance(adapter, LoopbackAdapter)
        loop = asyncio.get_running_loop()
        begin = loop.time() - (time.perf_counter() - began_s)
        answers = [loop.create_future() for _ in range(messages)]
        adapter.expect({f"m{n}": answer for n, answer in enumerate(answers)})
        running = asyncio.create_task(gateway.run(stop))
        firsts = [await answer - begin for answer in answers[:people]]
        last_s = max(await asyncio.gather(*answers)) - begin
        stop.set()
        await running
    return min(firsts), statistics.quantiles(firsts, n=20)[-1], messages / last_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--people", type=int, default=1_000)
    parser.add_argument("--only", choices=("known", "new"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    configure_logs("critical")
    if options.only is None:
        print(f"{'people':>12} {'messages':>9} {'first s':>8} {'p95 of firsts s':>16} {'answers/s':>10}", flush=True)
        for only in ("known", "new"):
            size = ["--messages", str(options.messages), "--people", str(options.people)]
            subprocess.run([sys.executable, "-m", "benchmarks.backlog", *size, "--only", only], check=True)
        return
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "config.yaml").write_text(CONFIG)
        asyncio.run(fill(home, options.messages, options.people, are_known=options.only == "known"))
        first_s, p95_s, rate = asyncio.run(measure(home, options.messages, options.people))
    print(f"{options.people:>6} {options.only:>5} {options.messages:>9} {first_s:>8.2f} {p95_s:>16.2f} {rate:>10.0f}")
    assert p95_s < MOST_S, f"95 of 100 people waited up to {p95_s:.1f} s for their first answer"


if __name__ == "__main__":
    main()
