"""How much of what a question needs stands in the prompt when MEMORY.md is too long for it: the same at every run.

    python -m benchmarks.excerpt            # the newest part alone, and the excerpt; some seconds

The data are the two sets of `benchmarks.retrieval`, each as one MEMORY.md: a heading for each day, a paragraph for each
turn, `Ada: …` where the speaker has a name. Of the answer to a question, what counts is the share of its turns that
stand whole in a memory section of so many characters. A question is asked on its day, where the set has one. Half of
LongMemEval's questions helped to choose how the excerpt is made, the small talk did not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.retrieval import SETS, load, said_at
from gateway.memory.prompt_section import Filler, render_memory
from gateway.protocols import MemoryContext

ROOMS_CHARS = (10_000, 20_000, 40_000)


_ROLES = ("user", "assistant")


def noted(turn: Mapping[str, Any]) -> str:
    """A turn as a paragraph."""
    speaker = turn["speaker"]
    return turn["text"].strip() if not speaker or speaker in _ROLES else f"{speaker}: {turn['text'].strip()}"


def memory_of(turns: Sequence[Mapping[str, Any]]) -> str:
    """The turns as notes, in the order of their days."""
    parts: list[str] = []
    last = ""
    for turn in sorted(turns, key=lambda turn: turn["date"]):
        day, _, _ = turn["date"].partition(" ")
        if day != last:
            last = day
            parts.append(f"## {day}")
        parts.append(noted(turn))
    return "\n\n".join(parts) + "\n"


def in_one(pools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """All that was said and asked, as one memory."""
    return {name: [each for pool in pools for each in pool[name]] for name in ("docs", "queries")}


def fill(filler: Filler, question: str, today: date, text: str, room_chars: int) -> str | None:
    """As a turn does."""
    return filler.fill(text, question, room_chars, today)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Shares of the evidence, and the processor's time for each question; the first makes the index."""

    newest: float
    evidence: float
    times_ms: Sequence[float]

    def __str__(self) -> str:
        first_ms, *times_ms = self.times_ms
        times_ms.sort()
        p50, p95 = times_ms[len(times_ms) // 2], times_ms[int(len(times_ms) * 0.95)]
        return f"{self.newest:>8.3f} {self.evidence:>8.3f} {first_ms:>9.1f} {p50:>7.2f} {p95:>7.2f}"


def measured(pool: Mapping[str, Any], room_chars: int) -> Measured:
    """Ask everything of one memory."""
    newest: list[float] = []
    filled: list[float] = []
    times_ms: list[float] = []
    context = MemoryContext(user_memory=None, project_memory=memory_of(pool["docs"]))
    texts = {turn["id"]: noted(turn) for turn in pool["docs"]}
    tail = render_memory(context, room_chars) or ""
    filler = Filler()
    for query in pool["queries"]:
        today = said_at(query.get("date") or "").date()
        began_s = time.process_time()
        section = render_memory(context, room_chars, fill=partial(fill, filler, query["text"], today)) or ""
        times_ms.append((time.process_time() - began_s) * 1e3)
        gold = [texts[each] for each in query["gold"]]
        newest.append(sum(each in tail for each in gold) / len(gold))
        filled.append(sum(each in section for each in gold) / len(gold))
    return Measured(newest=fmean(newest), evidence=fmean(filled), times_ms=times_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a file of pools, JSON, or packed by xz")
    wanted = parser.parse_args().data
    for path in SETS if wanted is None else (wanted,):
        pool = in_one(load(path))
        print(f"{path.name}: {len(memory_of(pool['docs'])):,} characters, {len(pool['queries'])} questions")
        print(f"{'characters':>10} {'newest':>8} {'excerpt':>8} {'first ms':>9} {'p50 ms':>7} {'p95 ms':>7}")
        for room_chars in ROOMS_CHARS:
            print(f"{room_chars:>10} {measured(pool, room_chars)}")


if __name__ == "__main__":
    main()
