"""What a trace store asks of its index of words, whatever the database; the language is that of FTS5.

https://www.sqlite.org/fts5.html#full_text_query_syntax: `"word"`, `"two words"`, `"begin" *`, AND, OR, NOT, brackets.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.memory.query import WordCounts
from gateway.store.engine import Row
from gateway.traces.trace import TraceType

PLACED = "traces.number, traces.owner, traces.conversation, traces.position, traces.speaker"
"""With these begins a row of a trace that was found."""
TAGGED = """
    (SELECT count(DISTINCT value) FROM json_each({tags}) AS own WHERE value IN (SELECT value FROM json_each({wanted})))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFilters:
    """What is wanted besides the words, so that only that takes up the candidates."""

    type: TraceType | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """The best matches, each a row that begins with `PLACED`, and its score; and how many were ranked at least."""

    best: Sequence[tuple[Row, float]]
    among: int


def tag_values(tags: Sequence[str]) -> tuple[str, int]:
    """The tags as a list for `TAGGED`, and how many they are."""
    wanted = list(dict.fromkeys(tags))
    return json.dumps(wanted, ensure_ascii=False), len(wanted)


class WordIndex(Protocol):
    """The index of one database, on one connection."""

    def keep(self, number: int) -> None:
        """A trace is new, or says something else now."""

    def counts(self, owners: Sequence[int]) -> WordCounts:
        """How many traces these owners have, or all, and how many of them hold a word."""

    def best(
        self,
        owners: Sequence[int],
        needed: str,
        *,
        more: str = "",
        context_weight: float = 0.3,
        filters: IndexFilters = IndexFilters(),
        limit: int,
        documents: int | None = None,
    ) -> Ranked:
        """The owners' traces that match best, by BM25.

        Args:
            needed: an expression that each of them matches.
            more: words, as an expression, that raise what matches, and need not stand in it.
            context_weight: of who said it and when; 0: the text alone counts.
            documents: how many traces of all owners match at most; None where that is not known.
        """

    def holders(self, owner: int, word: str, most: int) -> Sequence[int]:
        """Traces that hold a word in their text, the owner's among them, by number."""

    def holding(self, expression: str, ids: Collection[str]) -> Collection[int]:
        """Which of these traces match, by number."""

    def merge(self, pages: int) -> bool:
        """Put parts of the index together, because a search reads each of them; False: there was nothing to do.

        Args:
            pages: of 4 KB, as many as are written at most; some 16 take half a millisecond.
        """
