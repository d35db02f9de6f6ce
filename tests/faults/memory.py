"""The memory of each kind under the hammer: processes that are killed, and a person who edits."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.testing.hammer import HammerReport, hammer
from tests.gateway.testing.places import FACTORY, MISSING, SERVERS

PROCESSES = 8
# So long for each kind, at most.
TIMEOUT_S = 1800.0
_HEAD = ("memory", "N", "updates", "edits by hand", "lost", "doubled", "left over")


def wanted(only: Sequence[str]) -> list[str]:
    """The kinds that this machine has, and whose rows have one of these words in their name."""
    found = [name for name in SERVERS if not only or any(word in f"memory: {name}" for word in only)]
    for name in found:
        if MISSING.get(name):
            sys.stderr.write(f"memory: {name}: not run: {MISSING[name]}\n")
    return [name for name in found if not MISSING.get(name)]


async def run(names: Sequence[str], *, updates: int, kills: int, seconds: float | None) -> dict[str, HammerReport]:
    """One kind after the other; begin no more of them after so many seconds."""
    reports: dict[str, HammerReport] = {}
    began_at = time.monotonic()
    for name in names:
        if seconds and time.monotonic() - began_at > seconds:
            sys.stderr.write(f"memory: {name}: left out: {seconds:g} s are over\n")
            continue
        with SERVERS[name]() as server, tempfile.TemporaryDirectory() as directory:
            place = server(Path(directory, "home"))
            async with place.editing() as edit:
                report = await hammer(
                    FACTORY,
                    place.arguments,
                    updates=updates,
                    processes=PROCESSES,
                    kills=kills,
                    steps=place.steps,
                    edit=edit if place.is_safe_to_edit else None,
                    timeout_s=TIMEOUT_S,
                )
        reports[name] = report
        sys.stderr.write(f"memory: {name}: {sum(report.kills.values())} kills in {report.seconds:.1f} s\n")
        if not report.is_clean:
            sys.stderr.write(f"  FAILED: {report}\n")
    return reports


def table(reports: Mapping[str, HammerReport]) -> str:
    """One row for each kind, in Markdown."""
    lines = [_HEAD, ("---", *["---:"] * (len(_HEAD) - 1))]
    for name, report in reports.items():
        counts = (
            sum(report.kills.values()), report.updates, report.edits, len(report.lost), len(report.doubled),
            len(report.left),
        )  # fmt: skip
        lines.append((f"`{name}`", *(f"{count:,}".replace(",", " ") for count in counts)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
