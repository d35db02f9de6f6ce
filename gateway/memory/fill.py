"""What of a memory that is too long stands before the model: the newest of it, and what the question needs.

The text is cut into passages (paragraphs, lines of long ones). The newest fill half of the room; of the rest those that
match the question best; what room is left goes to the newest again. They stand in the order of the file.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256

from gateway.memory.traces.search_words import read_query
from gateway.store.words import words_of

GAP = "[...truncated]"
LONGEST_PASSAGE_CHARS = 800
_GAP_CHARS = len(GAP) + 2
_TEXTS_KEPT = 16
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n+")

# As the traces are searched; `read_query` looks here how rare a word is.
_SCHEMA = """
    CREATE VIRTUAL TABLE search USING fts5 (context, text, content = '', tokenize = 'porter ascii');
    CREATE TABLE traces (number INTEGER PRIMARY KEY);
"""
_ADD = "INSERT INTO search (rowid, text) VALUES (?, ?)"
_MATCHES = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rank LIMIT 500"


@dataclass(frozen=True, slots=True)
class _Passage:
    start: int
    end: int


class _Choice:
    """Passages that fit into a room together, with a mark wherever one is left out."""

    def __init__(self, passages: Sequence[_Passage], room_chars: int) -> None:
        self._passages = passages
        self._left_chars = room_chars - _GAP_CHARS
        self.taken: set[int] = set()

    def take(self, number: int, keep_chars: int = 0) -> bool:
        """Take the passage if more than `keep_chars` are left then; whether it is taken."""
        if number in self.taken:
            return True
        gaps = 1 - (number - 1 in self.taken) - (number + 1 in self.taken)
        passage = self._passages[number]
        left_chars = self._left_chars - (passage.end - passage.start) - gaps * _GAP_CHARS
        if left_chars < keep_chars:
            return False
        self.taken.add(number)
        self._left_chars = left_chars
        return True


_Kept = OrderedDict[bytes, tuple[Sequence[_Passage], sqlite3.Connection]]


class Filler:
    """Fills rooms; keeps the indexes of the texts that it saw last."""

    def __init__(self) -> None:
        self._kept: _Kept = OrderedDict()
        weakref.finalize(self, _close, self._kept)

    def fill(self, text: str, question: str, room_chars: int) -> str | None:
        """The chosen passages, with a mark at each gap, at most `room_chars`; None where nothing fits."""
        passages, index = self._indexed(text)
        choice = _Choice(passages, room_chars)
        newest_first = range(len(passages) - 1, -1, -1)
        for number in newest_first:
            if not choice.take(number, keep_chars=room_chars // 2):
                break
        for number in (*_matching(index, question), *newest_first):
            choice.take(number)
        return _joined(text, [passages[number] for number in sorted(choice.taken)]) if choice.taken else None

    def _indexed(self, text: str) -> tuple[Sequence[_Passage], sqlite3.Connection]:
        key = sha256(text.encode("utf-8", "surrogatepass")).digest()
        if key not in self._kept:
            passages = list(_passages(text))
            self._kept[key] = (passages, _index(text, passages))
        self._kept.move_to_end(key)
        while len(self._kept) > _TEXTS_KEPT:
            _, (_, index) = self._kept.popitem(last=False)
            index.close()
        return self._kept[key]


def _close(kept: _Kept) -> None:
    for _, index in kept.values():
        index.close()


def _passages(text: str) -> Iterator[_Passage]:
    start = 0
    ends = [match.end() for match in _PARAGRAPH_END.finditer(text)]
    for end in (*ends, len(text)):
        if not text[start:end].strip():
            continue
        if end - start <= LONGEST_PASSAGE_CHARS:
            yield _Passage(start, end)
        else:
            yield from _lines(text, start, end)
        start = end


def _lines(text: str, start: int, end: int) -> Iterator[_Passage]:
    """The lines of a long paragraph; of a line that is too long pieces, cut between words where there are any."""
    while start < end:
        line_end = text.find("\n", start, end) + 1 or end
        if line_end - start > LONGEST_PASSAGE_CHARS:
            space = text.rfind(" ", start + 1, start + LONGEST_PASSAGE_CHARS) + 1
            line_end = space or start + LONGEST_PASSAGE_CHARS
        yield _Passage(start, line_end)
        start = line_end


def _index(text: str, passages: Sequence[_Passage]) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.executescript(_SCHEMA)
    words = ((number, words_of(text[passage.start : passage.end])) for number, passage in enumerate(passages, start=1))
    with index:
        index.executemany(_ADD, words)
        index.execute("INSERT INTO traces VALUES (?)", (len(passages),))
    return index


def _matching(index: sqlite3.Connection, question: str) -> list[int]:
    """Numbers of passages, the best match first."""
    expression = read_query(question, index).expression
    if not expression:
        return []
    with closing(index.execute(_MATCHES, (expression,))) as rows:
        return [int(row[0]) - 1 for row in rows]


def _joined(text: str, passages: Sequence[_Passage]) -> str:
    parts: list[str] = []
    last = 0
    for passage in passages:
        if passage.start > last or (not parts and passage.start):
            parts.append(f"{GAP}\n" if not parts or parts[-1].endswith("\n") else f"\n{GAP}\n")
        parts.append(text[passage.start : passage.end])
        last = passage.end
    return "".join(parts).rstrip() + (f"\n{GAP}" if last < len(text.rstrip()) else "")
