"""What a question means to a full-text index, in FTS5's language: the words that say something, the rarest first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from gateway.memory.tokenizer import MAX_QUERY_CHARS, MAX_TERMS, Term, parse, words_of

RANKED_AT_MOST = 8_000
"""Of more matches the newest are ranked."""
_LOOKED_AT = 2_000
_WALKED_AT_MOST = 100_000  # a word in more traces does not raise what others find
_NEWEST = """
    SELECT count(*), min(number) FROM (
        SELECT rowid AS number FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?
    )
"""
_LAST = "SELECT ifnull(max(number), 0) FROM traces"

# English words that say nothing about what is asked for; of other languages, see `COMMON_SHARE`.
_FUNCTION_WORDS = frozenset(
    """
    a about after all also am an and any are as at be been before being but by can could did do does doing ever first
    for from get got had has have having he her here him his how i if in into is it its just last less many may me might
    mine more most much must my no not of on or our ours shall she should so some than that the their theirs them then
    there these they this those to us was we were what when where which who whom whose why will with would you your
    yours
    """.split()  # noqa: SIM905 (legible as a text)
)
COMMON_SHARE = 0.2
"""A word that more of all traces hold is left out of a query, where rarer ones are left."""
_GROUPS_AT_MOST = 3
_COMMON_FROM = 200  # traces; among fewer a share means little

_OPERATORS = frozenset(["AND", "OR", "NOT"])
_TOKEN = re.compile(r'"[^"]*"?\*?|[()]|[^\s"()]+')
_SHORTEST_STEM_CHARS = 3
_LONGEST_ENDING_CHARS = 3


class IndexedTexts(Protocol):
    """A connection to a database whose table `search` is a full-text index."""

    def execute(self, sql: str, values: Any = ..., /) -> Any:
        """Run one statement; its cursor."""


class WordCounts(Protocol):
    """How rare words are among some texts."""

    def texts(self) -> int:
        """How many texts there are."""

    def documents_with(self, word: str) -> int:
        """In how many of them a word stands, as FTS5's language has it; many may be estimated."""


class Fts5Counts:
    """The `WordCounts` of a full-text index of SQLite."""

    def __init__(self, index: IndexedTexts) -> None:
        self._index = index

    def texts(self) -> int:
        """As many as there ever were."""
        return int(self._index.execute(_LAST).fetchone()[0])

    def documents_with(self, word: str) -> int:
        """Counted, or estimated from the newest of them."""
        return documents_with(self._index, word)


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    Attributes:
        groups: expressions in FTS5's language, https://www.sqlite.org/fts5.html#full_text_query_syntax. Any of them
            finds; the first are looked for first, because they are the rarest words. None: nothing is looked for.
        words: all words of the question, those without weight too.
        documents: how many traces of all owners any group finds at most; None where that is not known.
    """

    groups: tuple[str, ...]
    words: tuple[str, ...]
    documents: int | None = None

    @property
    def expression(self) -> str:
        """All groups in one; empty: nothing."""
        return " OR ".join(self.groups)

    def beside(self, group: int) -> str:
        """All groups but one."""
        return " OR ".join((*self.groups[:group], *self.groups[group + 1 :]))


def read_query(text: str, counts: WordCounts) -> Query:
    """Plain words find any of them; `"phrases"`, `AND`, `OR`, `NOT`, brackets and `prefix*` mean what they say.

    No text is an error: what makes no sense as an expression is taken for words.
    """
    text = text[:MAX_QUERY_CHARS].replace("\0", " ")
    words = tuple(words_of(text).split())
    tokens = _TOKEN.findall(text)
    if _OPERATORS.intersection(tokens):
        expression = _Expression(tokens).read()
        if expression is not None:
            return Query((expression,), words)
    groups, documents = _by_rarity(telling_terms(text), counts)
    return Query(tuple(" OR ".join(map(quoted, group)) for group in groups), words, documents)


def telling_terms(text: str) -> Sequence[Term]:
    """The words of a text that say something, if any does, each once."""
    tokens = _TOKEN.findall(text[:MAX_QUERY_CHARS].replace("\0", " "))
    terms = [term for written in tokens if written not in ("(", ")") for term in _plain_terms(written)]
    terms = list(dict.fromkeys(terms))[:MAX_TERMS]
    return [term for term in terms if term.text not in _FUNCTION_WORDS] or terms


def is_plain(text: str) -> bool:
    """Whether it is words alone: a phrase, an operator or a prefix asks for what is written, and nothing like it."""
    return not any(
        token in _OPERATORS or token.startswith('"') or (token.endswith("*") and len(token) > 1)
        for token in _TOKEN.findall(text)
    )


def _plain_terms(written: str) -> Iterator[Term]:
    """The terms of a word that stands alone; an unspaced script's words are found by their pairs of characters."""
    for term in parse(written):
        parts = term.text.split(" ")
        if written.startswith('"') or len(parts) == 1:
            yield term
        elif all(len(part) == 1 and not part.isascii() for part in parts):
            yield from (Term(f"{first} {second}") for first, second in pairwise(parts))
        else:
            yield from (Term(part) for part in parts if len(part) > 1)


def _by_rarity(telling: Sequence[Term], counts: WordCounts) -> tuple[Sequence[Sequence[Term]], int]:
    """In groups, the rarest first, without those that are nearly everywhere; and in how many traces those are."""
    if not telling:
        return (), 0
    traces = counts.texts()
    if traces < _COMMON_FROM:
        return (telling,), traces
    counted = ((counts.documents_with(quoted(term)), term) for term in telling)
    rarest_first = sorted(counted, key=lambda pair: pair[0])
    rare = [pair for pair in rarest_first if pair[0] <= COMMON_SHARE * traces] or rarest_first[:1]
    return _grouped(rare), sum(documents for documents, _ in rare)


def _grouped(rarest_first: Sequence[tuple[int, Term]]) -> Sequence[Sequence[Term]]:
    """Part the words so that not too many traces have to be ranked for one group of them.

    To rank a trace costs fifteen times what it costs to find it, and the rare words decide which are the best: a trace
    that has none of them gets into the first ten hardly ever. Turtle and Flood, Query Evaluation: Strategies and
    Optimizations (1995), call this max score.
    """
    groups: list[list[Term]] = [[]]
    found = 0
    for documents, term in rarest_first:
        if groups[-1] and found + documents > RANKED_AT_MOST:
            if len(groups) == _GROUPS_AT_MOST or documents > _WALKED_AT_MOST:
                break
            groups.append([])
            found = 0
        groups[-1].append(term)
        found += documents
    return groups


def quoted(term: Term) -> str:
    """A term in FTS5's language."""
    if not term.is_prefix:
        return f'"{term.text}"'
    # The index holds stems: `runni*` must find `run`, which `running` has become.
    ends = range(len(term.text) - 1, max(_SHORTEST_STEM_CHARS, len(term.text) - _LONGEST_ENDING_CHARS) - 1, -1)
    stems = [f'"{term.text[:end]}"' for end in ends] if " " not in term.text else []
    return "(" + " OR ".join([f'"{term.text}" *', *stems]) + ")"


class _Expression:
    """Reads `AND`, `OR`, `NOT` and brackets; words beside each other mean any of them.

    NOT binds closest, then AND, then OR: as in FTS5.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def read(self) -> str | None:
        """The expression; None if it is none."""
        found = self._any_of()
        return found if self._at == len(self._tokens) else None

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _takes(self, written: str) -> bool:
        if self._peek() != written:
            return False
        self._at += 1
        return True

    def _any_of(self) -> str | None:
        parts = [self._all_of()]
        while self._takes("OR"):
            parts.append(self._all_of())
        return _joined(parts, "OR")

    def _all_of(self) -> str | None:
        parts = [self._without()]
        while self._takes("AND"):
            parts.append(self._without())
        return _joined(parts, "AND")

    def _without(self) -> str | None:
        found = self._words()
        while found is not None and self._takes("NOT"):
            other = self._words()
            found = None if other is None else f"({found} NOT {other})"
        return found

    def _words(self) -> str | None:
        parts = []
        while (written := self._peek()) is not None and written not in _OPERATORS and written != ")":
            self._at += 1
            if written == "(":
                inner = self._any_of()
                if inner is None or not self._takes(")"):
                    return None
                parts.append(inner)
            else:
                parts.extend(quoted(term) for term in parse(written))
        return f"({' OR '.join(parts)})" if parts else None


def _joined(parts: Sequence[str | None], operator: str) -> str | None:
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts):
        return None
    return whole[0] if len(whole) == 1 else f"({f' {operator} '.join(whole)})"


def documents_with(index: IndexedTexts, word: str, *, looked_at: int = _LOOKED_AT) -> int:
    """In how many traces a word stands, as FTS5's language has it: counted, or estimated from the newest of them."""
    found, first = index.execute(_NEWEST, (f"{{context text}} : ({word})", looked_at)).fetchone()
    if found < looked_at:
        return int(found)
    (last,) = index.execute(_LAST).fetchone()
    estimate: int = found * last // max(1, last - first + 1)
    return max(int(found), estimate)
