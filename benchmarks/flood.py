"""One person sends ten thousand messages: what the others notice, and what it takes.

    python -m benchmarks.flood [--messages 10000]

Prints, for a flood in one conversation and for one in as many conversations as messages: how many of the flood's turns
begin between another person's message and the turn that answers it, how long 95 of 100 others wait for their answer
with and without the flood, and the resident memory before and at its peak. One turn runs at a time, where a flood is at
its worst. Each flood has a process of its own. With the default limits nearly all of it is refused, so the bound of the
queue is raised for the first two, and left for the third.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.loopback import LoopbackAdapter
from benchmarks.start import resident_mb
from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.runtime.logs import configure_logs

MOST_MB = 300.0
MOST_TURNS = 1
# Of one turn of the flood, and of what its acceptance costs the others; on a busy machine.
MOST_WAIT_MS = 1_000.0
FLOODER = "flooder"
OTHERS = 50
AT_ONCE = 200
TURN_S = 0.02


class SteadyModel:
    """Takes twenty milliseconds for every answer, and counts the turns that it began."""

    name = "steady"

    def __init__(self) -> None:
        self.flooded = 0
        self.flooded_before: dict[str, int] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer; note how far the flood had come when another person's turn began."""
        text = request.messages[-1].text
        if text.startswith(FLOODER):
            self.flooded += 1
        else:
            self.flooded_before[text] = self.flooded
        await asyncio.sleep(TURN_S)
        usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1, cost_usd=0.0)
        yield ModelReply(message=ChatMessage(role="assistant", text="here"), usage=usage)


def message(adapter: LoopbackAdapter, name: str, person: str, conversation: str) -> InboundMessage:
    return InboundMessage(
        id=name,
        event_id=name,
        conversation=ConversationRef(channel=adapter.name, conversation=conversation),
        sender=Sender(channel=adapter.name, user=person, display_name=person, is_verified=True),
        text=name,
        sent_at=datetime.now(UTC),
    )


async def flood(gateway: Gateway, adapter: LoopbackAdapter, messages: int, conversations: int) -> None:
    """Accept them all; each is committed."""
    for begin in range(0, messages, AT_ONCE):
        numbers = range(begin, min(messages, begin + AT_ONCE))
        all_at_once = (
            message(adapter, f"{FLOODER} {number} {'x' * 500}", FLOODER, f"flood{number % conversations}")
            for number in numbers
        )
        await asyncio.gather(*(gateway.inbox.accept(one) for one in all_at_once))


async def delay_turns(gateway: Gateway, adapter: LoopbackAdapter, model: SteadyModel, name: str) -> tuple[int, float]:
    """Turns of the flood that began between another person's message and its own turn; how long that took, in ms."""
    began_s = time.perf_counter()
    await gateway.inbox.accept(message(adapter, name, name, name))
    flooded = model.flooded
    while name not in model.flooded_before:
        await asyncio.sleep(TURN_S / 10)
    return max(0, model.flooded_before[name] - flooded), (time.perf_counter() - began_s) * 1000


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


async def measure(home: Path, messages: int, conversations: int, queued: int | None) -> None:
    limits = "running_turns: 1" + ("" if queued is None else f", queued_messages_per_user: {queued}")
    config = f"channels: {{loopback: {{kind: benchmarks.loopback}}}}\nshutdown_s: 0\nlimits: {{{limits}}}\n"
    (home / "config.yaml").write_text(config)
    model, stop = SteadyModel(), asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False, model=lambda _name: model) as gateway:
        adapter = gateway.adapters[0]
        assert isinstance(adapter, LoopbackAdapter)
        running = asyncio.create_task(gateway.run(stop))
        await adapter.ask("first", "hello")
        quiet = [await delay_turns(gateway, adapter, model, f"early{number}") for number in range(OTHERS)]
        before_mb = resident_mb(os.getpid())
        flooding = asyncio.create_task(flood(gateway, adapter, messages, conversations))
        during = [await delay_turns(gateway, adapter, model, f"other{number}") for number in range(OTHERS)]
        await flooding
        delays = [turns for turns, _ in during]
        quiet_ms, wait_ms = p95([wait for _, wait in quiet]), p95([wait for _, wait in during])
        counts = await gateway.store.deliveries.counts("inbox")
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{messages:>9} {conversations:>13} {sum(counts.values()):>10} {max(delays):>14} {quiet_ms:>10.0f} "
            f"{wait_ms:>8.0f} {before_mb:>10.1f} {peak_mb:>8.1f}"
        )
        stop.set()
        await running
    assert max(delays) <= MOST_TURNS, f"others were delayed by {max(delays)} turns"
    assert wait_ms < MOST_WAIT_MS, f"95 of 100 others waited up to {wait_ms:.0f} ms"
    assert peak_mb < MOST_MB, f"it took {peak_mb:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--conversations", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--queued", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    configure_logs("critical")
    if options.conversations:
        with tempfile.TemporaryDirectory() as home:
            asyncio.run(measure(Path(home), options.messages, options.conversations, options.queued))
        return
    print(
        f"{'messages':>9} {'conversations':>13} {'still open':>10} {'turns of delay':>14} {'p95 before':>10} "
        f"{'p95 ms':>8} {'MB before':>10} {'MB peak':>8}",
        flush=True,
    )
    many = str(options.messages)
    for extra in (
        ["--conversations", "1", "--queued", many],
        ["--conversations", many, "--queued", many],
        ["--conversations", "1"],
    ):
        subprocess.run([sys.executable, "-m", "benchmarks.flood", "--messages", many, *extra], check=True)


if __name__ == "__main__":
    main()
