"""`make faults`: starts real gateways, kills them, starts them again, and compares what was sent with what was seen.

Each row of the table is one fault: N kills of it, spread over streams. A stream is one data directory on which messages
come in all the while, and which is looked through at its end. The same seed repeats the same messages and the same
moments; what the machine makes of them is its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from gateway.runtime import failpoints
from gateway.testing.hammer import HammerReport
from tests.faults import memory, workers, workers_platform
from tests.faults.acting import FAULTS as TOOL_FAULTS
from tests.faults.acting import ActingStream
from tests.faults.calling import FAULTS as HOOK_FAULTS
from tests.faults.calling import CallingStream
from tests.faults.channels import CHANNELS, unavailable
from tests.faults.evidence import Tally
from tests.faults.full_disk import DISK_MB, FullDiskStream
from tests.faults.platform import Platform, WirePlatform
from tests.faults.process import ROOT, Nursery, small_disk_missing
from tests.faults.scheduling import FAULTS as SCHEDULE_FAULTS
from tests.faults.scheduling import OF_WORKERS, SchedulingStream, SchedulingWorkersStream
from tests.faults.speaking import FAULTS as SPEECH_FAULTS
from tests.faults.speaking import SpeakingStream, VoicePlatform
from tests.faults.stream import Fault, NeverReached, Stream
from tests.faults.table import (
    SCHEDULES,
    SPEECH,
    TOOLS,
    WORKERS,
    publish,
    schedules_table,
    short_table,
    speech_table,
    table,
    tools_table,
)
from tests.servers import postgres

KILLS_PER_STREAM = 20
# Of what is wrong with a stream; the stacks of its workers are among them.
MOST_NOTES = 400
SENDS = ("plain", "lookup", "idempotent")


@dataclass(frozen=True, slots=True)
class Row:
    """A fault, how often, and on which platform."""

    name: str
    fault: Fault
    kills: int
    platform: Callable[[int], Platform]
    per_stream: int = KILLS_PER_STREAM
    max_people: int = 8
    stream: Callable[..., Stream | workers.WorkersStream] = Stream

    def pieces(self) -> list[int]:
        """The kills of each stream."""
        whole, rest = divmod(self.kills, self.per_stream)
        return [self.per_stream] * whole + ([rest] if rest else [])


def wire(index: int) -> Platform:
    """By turns a platform that cannot be asked, one that can, and one that takes an id once."""
    return WirePlatform(SENDS[index % len(SENDS)])  # type: ignore[arg-type]


def spoken_wire(index: int) -> Platform:
    """The same, where people record what they say."""
    return VoicePlatform(SENDS[index % len(SENDS)])  # type: ignore[arg-type]


def rows(options: argparse.Namespace, servers: workers.Servers) -> list[Row]:
    """All that is to be done, in the order of the table."""
    found = [Row(f"`{name}`", Fault(name), options.kills, wire) for name in failpoints.POINTS]
    names = [f"platform: {effect}" for effect in WirePlatform.effects]
    found += [Row(name, Fault(name), options.kills, wire) for name in names]
    found.append(Row("SIGTERM at random", Fault("SIGTERM"), options.kills, wire))
    found.append(Row("kill -9 at random", Fault("at random"), options.random, wire, per_stream=40))
    if (missing := small_disk_missing()) is None:
        found.append(Row("full disk", Fault("full disk"), options.disk, wire, stream=FullDiskStream))
    else:
        sys.stderr.write(f"full disk: not run: {missing}\n")
    for name, channel in CHANNELS.items():
        if unavailable(name) is not None:
            sys.stderr.write(f"{name}: not run: {unavailable(name)}\n")
            continue
        faults = ["at random", *(f"platform: {effect}" for effect in channel.make().effects), *channel.points]
        found += [
            Row(
                f"{name}: {fault.removeprefix('platform: ')}",
                Fault(fault),
                options.channel_kills or channel.kills,
                channel.make,
                per_stream=channel.per_stream,
                max_people=channel.max_people,
            )
            for fault in faults
        ]
    found += [
        Row(f"{TOOLS}{name}", Fault(name.strip("`")), options.kills, wire, stream=ActingStream) for name in TOOL_FAULTS
    ]
    found += [
        Row(f"{SCHEDULES}{name}", Fault(name.strip("`")), options.kills, wire, stream=SchedulingStream)
        for name in SCHEDULE_FAULTS
    ]
    found += [
        Row(f"{SCHEDULES}hook: {name}", Fault(name.strip("`")), options.kills, wire, stream=CallingStream)
        for name in HOOK_FAULTS
    ]
    found += [
        Row(
            f"{SCHEDULES}{WORKERS}{name}",
            Fault(name),
            options.worker_kills,
            partial(workers_platform.platform, row=number),
            per_stream=workers.KILLS_PER_STREAM,
            stream=partial(SchedulingWorkersStream, servers),
        )
        for number, name in enumerate(OF_WORKERS if postgres.MISSING is None else ())
    ]
    found += [
        Row(f"{SPEECH}{name}", Fault(name.strip("`")), options.kills, spoken_wire, stream=SpeakingStream)
        for name in SPEECH_FAULTS
    ]
    found += _of_workers(options, servers)
    wanted = [row for row in found if not options.only or any(word in row.name for word in options.only)]
    if not wanted and not memory.wanted(options.only):
        names = [*(row.name for row in found), *(f"memory: {name}" for name in memory.wanted(()))]
        raise SystemExit(f"no fault is named {' or '.join(options.only)}; there are {', '.join(names)}")
    return wanted


def _of_workers(options: argparse.Namespace, servers: workers.Servers) -> list[Row]:
    found = []
    for number, (name, missing) in enumerate(workers.faults().items()):
        if missing is not None:
            sys.stderr.write(f"workers: {name}: not run: {missing}\n")
            continue
        fault = Fault(name)
        found.append(
            Row(
                f"{WORKERS}{name}",
                fault,
                options.worker_kills,
                partial(workers_platform.platform, row=number),
                per_stream=workers.KILLS_PER_STREAM,
                stream=servers.stream,
            )
        )
    return found


async def run(options: argparse.Namespace, wanted: Sequence[Row]) -> dict[str, Tally]:
    """Every row's streams, `jobs` of them at a time; each row gets its first stream before any its second."""
    began_at = time.monotonic()
    tallies = {row.name: Tally(streams=0) for row in wanted}
    by_row = [[(row, index, kills) for index, kills in enumerate(row.pieces())] for row in wanted]
    todo = [work for turn in zip_longest(*by_row) for work in turn if work is not None]
    skipped = 0

    parts = [channel.part for name, channel in CHANNELS.items() if unavailable(name) is None]
    parts += workers.PARTS if any(WORKERS in row.name for row in wanted) else ()
    disk_is_free = asyncio.Lock()  # two streams on it would be in each other's way

    async def play(row: Row, index: int, kills: int, nursery: Nursery) -> None:
        seed = f"{options.seed}/{row.name}/{index}"
        platform = row.platform(index)
        stream = row.stream(row.fault, platform, nursery, seed=seed, kills=kills, max_people=row.max_people)
        try:
            tally = await stream.run()
        except (NeverReached, TimeoutError) as error:
            tally = Tally(problems=[str(error) or repr(error)])
        tallies[row.name].add(tally)
        _report(row, index, seed, tally)

    async def work_off(nursery: Nursery) -> None:
        nonlocal skipped
        while todo:
            row, index, kills = todo.pop(0)
            if options.seconds and time.monotonic() - began_at > options.seconds:
                skipped += 1
            elif row.fault.needs_small_disk:
                async with disk_is_free, Nursery(disk_mb=DISK_MB) as small:
                    await play(row, index, kills, small)
            else:
                await play(row, index, kills, nursery)

    async with Nursery(parts) as nursery, asyncio.TaskGroup() as tasks:
        for _ in range(options.jobs):
            tasks.create_task(work_off(nursery))
    if skipped:
        sys.stderr.write(f"{skipped} streams were left out: {options.seconds:g} s are over\n")
    return tallies


def _report(row: Row, index: int, seed: str, tally: Tally) -> None:
    sys.stderr.write(f"{row.name} #{index}: {tally.kills} kills in {tally.seconds:.1f} s\n")
    if not tally.is_clean:
        sys.stderr.write(f"  FAILED, seed {seed!r}\n")
        for line in (*tally.problems, *tally.notes[:MOST_NOTES]):
            sys.stderr.write(f"  {line}\n")


async def _memories(options: argparse.Namespace, began_at: float) -> dict[str, HammerReport]:
    """The memory of each kind, in what is left of the time."""
    names = memory.wanted(options.only) if options.memory else []
    left_s = max(1.0, options.seconds - (time.monotonic() - began_at)) if options.seconds else None
    return await memory.run(names, updates=options.memory, kills=options.memory_kills, seconds=left_s)


def main() -> int:
    """The exit code: 0 only if nothing was lost, doubled outside of the window, or out of order."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", default="1", help="any text; the same one repeats a run")
    parser.add_argument("--kills", type=int, default=100, help="at each failpoint")
    parser.add_argument("--random", type=int, default=1000, help="kills at random moments")
    parser.add_argument("--channel-kills", type=int, help="for each fault on each real channel")
    parser.add_argument("--worker-kills", type=int, default=24, help="at each fault of two and four workers by turns")
    parser.add_argument("--disk", type=int, default=40, help="times that the disk is filled")
    parser.add_argument("--memory", type=int, default=10_000, help="updates of each kind of memory; 0 for none")
    parser.add_argument("--memory-kills", type=int, default=6, help="of each of the processes that write a memory")
    parser.add_argument("--seconds", type=float, help="begin no more streams after so long")
    parser.add_argument("--only", action="append", default=[], help="rows with this in their name; may be repeated")
    parser.add_argument("--publish", action="store_true", help="put the tables into README and docs")
    parser.add_argument("--jobs", type=int, default=2, help="gateways side by side")
    options = parser.parse_args()
    with workers.Servers() as servers:
        wanted = rows(options, servers)
        began_at = time.monotonic()
        tallies = asyncio.run(run(options, wanted)) if wanted else {}
    memories = asyncio.run(_memories(options, began_at))
    minutes = (time.monotonic() - began_at) / 60
    kinds = (WORKERS, TOOLS, SCHEDULES, SPEECH)
    together, tools, due, speech = ({name: tallies[name] for name in tallies if name.startswith(of)} for of in kinds)
    alone = {name: tally for name, tally in tallies.items() if not name.startswith(kinds)}
    memory_tables = [memory.table(memories)] if memories else []
    published = [
        ("faults", [table(alone), *memory_tables] if alone else memory_tables, alone and short_table(alone)),
        ("worker-faults", [table(together)] if together else [], together and short_table(together)),
        ("tool-faults", [tools_table(tools)] if tools else [], tools and tools_table(tools)),
        ("schedule-faults", [schedules_table(due)] if due else [], due and schedules_table(due)),
        ("speech-faults", [speech_table(speech)] if speech else [], speech and speech_table(speech)),
    ]
    printed = [each for _, tables, _ in published for each in tables]
    sys.stdout.write("\n\n".join([f"Seed {options.seed}, {minutes:.0f} minutes.", *printed]) + "\n")
    if options.publish:
        command = f"`python -m tests.faults {' '.join(each for each in sys.argv[1:] if each != '--publish')}`"
        measured = f"Measured with {command}: seed {options.seed}, {minutes:.0f} minutes on {os.cpu_count()} cores."
        for place, tables, short in published:
            if short:
                publish(ROOT / "docs" / "reliability.md", "\n\n".join([*tables, measured]), place)
                publish(ROOT / "README.md", f"{short}\n\n{measured}", place)
    failed = [name for name, tally in tallies.items() if not tally.is_clean or not tally.kills]
    failed += [f"memory: {name}" for name, report in memories.items() if not report.is_clean]
    if failed:
        sys.stdout.write(f"\nFAILED: {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
