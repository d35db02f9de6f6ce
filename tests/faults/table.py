"""The table of a run: one row for each fault, in Markdown; and a short one, which sums up rows of a kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.evidence import Tally

_HEAD = (
    "fault", "N", "messages", "lost", "stranded", "dead letters", "duplicated", "repeated, marked", "uncertain",
    "resolved", "out of order", "memory updates", "missing", "doubled",
)  # fmt: skip
_SHORT_HEAD = (
    "fault",
    "N",
    "messages",
    "lost",
    "stranded",
    "duplicated",
    "repeated, marked",
    "memory updates",
    "missing",
    "doubled",
)
_TOOLS_HEAD = (
    "fault", "N", "messages", "lost", "duplicated", "repeated, marked", "calls of tools", "not done", "done twice",
)  # fmt: skip
_SCHEDULES_HEAD = (*_TOOLS_HEAD[:6], "what was due", "not done", "done twice")
_SPEECH_HEAD = (*_TOOLS_HEAD[:6], "heard and said", "missing", "paid twice")
WORKERS, TOOLS, SCHEDULES, SPEECH = "workers: ", "tools: ", "schedules: ", "speech: "
"""How the rows begin that have a table of their own: of several workers, of tools, of schedules, and of voice notes."""


def table(tallies: Mapping[str, Tally]) -> str:
    """All rows and their sum."""
    return _markdown(_HEAD, {**tallies, "all": _sum(list(tallies.values()))})


def tools_table(tallies: Mapping[str, Tally]) -> str:
    """The rows of tools and their sum. A call of which nobody can know is told to the person, and counts as done."""
    rows = {name.removeprefix(TOOLS): tally for name, tally in tallies.items()}
    return _markdown(_TOOLS_HEAD, {**rows, "all": _sum(list(tallies.values()))})


def schedules_table(tallies: Mapping[str, Tally]) -> str:
    """The same of what was due, and of pauses that were to be told."""
    rows = {name.removeprefix(SCHEDULES): tally for name, tally in tallies.items()}
    return _markdown(_SCHEDULES_HEAD, {**rows, "all": _sum(list(tallies.values()))})


def speech_table(tallies: Mapping[str, Tally]) -> str:
    """The rows of voice notes and their sum: each message has a recording that is heard, and an answer that is said."""
    rows = {name.removeprefix(SPEECH): tally for name, tally in tallies.items()}
    return _markdown(_SPEECH_HEAD, {**rows, "all": _sum(list(tallies.values()))})


def short_table(tallies: Mapping[str, Tally]) -> str:
    """One row for all failpoints, and one for each channel."""
    groups: dict[str, list[Tally]] = {}
    for name, tally in tallies.items():
        groups.setdefault(_group(name), []).append(tally)
    points = len(groups.get("failpoints", ()))
    rows = {
        f"kill -9 at each of {points} failpoints" if name == "failpoints" else name: _sum(found)
        for name, found in groups.items()
    }
    return _markdown(_SHORT_HEAD, {**rows, "all": _sum(list(tallies.values()))})


def publish(page: Path, text: str, place: str = "faults") -> None:
    """Put a text into its place in a page."""
    marks = re.compile(rf"(<!-- {place}:start -->\n).*(<!-- {place}:end -->)", re.DOTALL)
    page.write_text(marks.sub(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page.read_text()))


def _group(name: str) -> str:
    if name.startswith("`"):
        return "failpoints"
    if name.startswith(WORKERS):
        return "failpoints" if "`" in name else name.removeprefix(WORKERS)
    kind, _, fault = name.partition(": ")
    if kind == "platform":
        return "kill -9 by the platform, in the middle of a request"
    return f"kill -9, {kind}" if fault else name


def _sum(tallies: Sequence[Tally]) -> Tally:
    total = Tally(streams=0)
    for tally in tallies:
        total.add(tally)
    return total


def _markdown(head: Sequence[str], rows: Mapping[str, Tally]) -> str:
    lines = [head, ("---", *["---:"] * (len(head) - 1))]
    for name, tally in rows.items():
        cells = {
            "N": tally.kills, "messages": tally.messages, "lost": tally.lost, "stranded": tally.stranded,
            "dead letters": tally.dead, "duplicated": tally.duplicated, "repeated, marked": tally.repeated,
            "uncertain": tally.uncertain, "resolved": tally.resolved, "out of order": tally.misordered,
            "memory updates": tally.updates, "missing": tally.missing, "doubled": tally.doubled,
            "calls of tools": tally.updates, "what was due": tally.updates, "heard and said": tally.updates,
            "not done": tally.missing, "done twice": tally.doubled, "paid twice": tally.doubled,
        }  # fmt: skip
        lines.append((name, *(f"{cells[column]:,}".replace(",", " ") for column in head[1:])))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
