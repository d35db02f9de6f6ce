"""The table of a run: one row for each fault, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults.evidence import Tally

_HEAD = (
    "fault", "N", "messages", "lost", "dead letters", "duplicated", "repeated, marked", "uncertain", "resolved",
    "out of order", "memory updates", "missing", "doubled",
)  # fmt: skip


def table(tallies: Mapping[str, Tally]) -> str:
    """All rows and their sum."""
    total = Tally(streams=0)
    rows = [_HEAD, ("---", *["---:"] * (len(_HEAD) - 1))]
    for name, tally in tallies.items():
        rows.append(_row(name, tally))
        total.add(tally)
    rows.append(_row("all", total))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(name: str, tally: Tally) -> tuple[str, ...]:
    numbers = (
        tally.kills, tally.messages, tally.lost, tally.dead, tally.duplicated, tally.repeated, tally.uncertain,
        tally.resolved, tally.misordered, tally.updates, tally.missing, tally.doubled,
    )  # fmt: skip
    return (name, *(f"{number:,}".replace(",", " ") for number in numbers))
