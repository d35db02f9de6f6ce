"""The memory section of the system prompt; of a memory that is too long, the newest and what the question needs.

The text is cut into passages (paragraphs, lines of long ones). The newest fill an eighth of the room; then come those
that match the question, the best first, each with the heading that it stands under, and a numbered list that is among
the best whole; what room is left goes to the newest again. They stand in the order of the file. A passage is weighed as
a trace is, see `matching.py`: by its words, by what stands beside it, by the best of its section, by the name that
it begins with, and by the day that it or a heading above it begins with, where the question is about one.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from operator import attrgetter

from gateway.config import LiveConfig
from gateway.memory.days import day_of, days_asked_for
from gateway.memory.matching import QUESTION_MARKS, REACH, Match, lift, prefer_days, prefer_speakers
from gateway.memory.query import Fts5Counts, read_query
from gateway.memory.tokenizer import words_of
from gateway.protocols import MemoryContext

MAX_CHARS = 20_000
_PROFILE = "## About You"
_MEMORY = "## Memory"
HEADINGS_CHARS = 64  # more than they take

Fill = Callable[[str, int], str | None]
"""Chooses of a text what fits into so many characters; None where nothing does."""

GAP = "[...truncated]"
LATER_GAP = "[...]"
LONGEST_PASSAGE_CHARS = 800
_GAP_CHARS = len(GAP) + 2
_LATER_GAP_CHARS = len(LATER_GAP) + 2
_TEXTS_KEPT = 16
_NEWEST_SHARE = 8
_LIST_SHARE = 8
_WHOLE_LISTS = 3  # among so many of the best
_WITH_NEIGHBOURS = 100  # of the best by their own words
_DAY_WITHIN_CHARS = 40
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n+")
_HEADING = re.compile(r"(#{1,6}) ")
_NUMBERED = re.compile(r"\s*\d{1,3}[.)]\s")
_NAME = re.compile(r"\W{0,4}(\w[\w'-]*(?: \w[\w'-]*)?)\W{0,2}:\W{0,2} ")  # `Ada: yes`, `- **Ada:** yes`
# As the traces are searched; `read_query` looks here how rare a word is.
_SCHEMA = """
    CREATE VIRTUAL TABLE search USING fts5 (context, text, content = '', tokenize = 'porter ascii');
    CREATE TABLE traces (number INTEGER PRIMARY KEY);
"""
_ADD = "INSERT INTO search (rowid, text) VALUES (?, ?)"
# So many that a name, which every other line may begin with, leaves room for what the rarer words find.
_MATCHES = "SELECT rowid - 1, -rank FROM search WHERE search MATCH ? ORDER BY rank LIMIT 400"


class MemorySection:
    """Makes the section of what is remembered and what is asked, as the configuration is at that moment."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self._filler = Filler()

    def is_chosen(self, section: str) -> bool:
        """Whether a section is a choice for one question: another question gets other parts of the memory."""
        return self._config.current.memory.traces.recall != "tail" and (GAP in section or LATER_GAP in section)

    async def render(self, context: MemoryContext, question: str) -> str | None:
        """The section; None where nothing is remembered."""
        memory = self._config.current.memory
        chars = len(context.user_memory or "") + len(context.project_memory or "") + HEADINGS_CHARS
        if memory.traces.recall == "tail" or chars <= memory.max_chars:
            return render_memory(context, memory.max_chars)

        def fill(text: str, room_chars: int) -> str | None:
            return self._filler.fill(text, question, room_chars, datetime.now(UTC).date())

        return await asyncio.to_thread(render_memory, context, memory.max_chars, fill=fill)


def render_memory(context: MemoryContext, max_chars: int = MAX_CHARS, *, fill: Fill | None = None) -> str | None:
    """Headings and texts, never longer than `max_chars`; None where there is nothing to say.

    Of a project's memory that does not fit `fill` chooses; without it the tail is kept. The profile is cut only after
    nothing of the memory is left to cut.
    """
    profile = (context.user_memory or "").strip()
    memory = (context.project_memory or "").strip()
    sections = [f"{_PROFILE}\n\n{profile}"] if profile else []
    if not memory:
        return _fit(_PROFILE, profile, max_chars) if profile else None
    whole = "\n\n".join([*sections, f"{_MEMORY}\n\n{memory}"])
    if len(whole) <= max_chars:
        return whole
    room = max_chars - sum(len(section) + 2 for section in sections)
    chosen = None if fill is None else fill(memory, room - len(_MEMORY) - 2)
    tail = _fit(_MEMORY, memory, room) if chosen is None else f"{_MEMORY}\n\n{chosen}"
    if tail is not None:
        return "\n\n".join([*sections, tail])
    return _fit(_PROFILE, profile, max_chars) if profile else None


def _fit(heading: str, text: str, max_chars: int) -> str | None:
    """A section of at most `max_chars`, with the tail of its text; None where not one character fits."""
    whole = f"{heading}\n\n{text}"
    if len(whole) <= max_chars:
        return whole
    head = f"{heading}\n\n{GAP}\n"
    room = max_chars - len(head)
    if room <= 0:
        return None
    start = len(text) - room
    line = text.find("\n", start - 1) + 1
    tail = text[line:] if line else ""
    return head + (tail.lstrip("\n") or text[start:])


@dataclass(frozen=True, slots=True)
class _Passage:
    """A part of the text.

    Attributes:
        heading: the number of the passage with the heading that it stands under, -1: none.
        name: with which it begins: who said it, or what it is about.
        day: with which it begins, or a heading that it stands under.
    """

    start: int
    end: int
    heading: int
    name: str | None
    asks: bool
    day: date | None
    is_numbered: bool


_Kept = OrderedDict[bytes, tuple[Sequence[_Passage], sqlite3.Connection]]


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
        left_chars = self._left_chars - (passage.end - passage.start) - gaps * _LATER_GAP_CHARS
        if left_chars < keep_chars:
            return False
        self.taken.add(number)
        self._left_chars = left_chars
        return True


class Filler:
    """Fills rooms, from any thread; keeps the indexes of the texts that it saw last."""

    def __init__(self) -> None:
        self._kept: _Kept = OrderedDict()
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._kept)

    def fill(self, text: str, question: str, room_chars: int, today: date) -> str | None:
        """The chosen passages, with a mark at each gap, at most `room_chars`; None where nothing fits.

        Takes time for a text that it does not know: 0.1 s for 512 KiB.
        """
        with self._lock:
            passages, index = self._indexed(text)
            matching = _matching(index, passages, question, today)
        return _filled(text, passages, matching, room_chars)

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


def fill_around(text: str, best_first: Sequence[int], room_chars: int) -> str | None:
    """As `Filler.fill`, for a memory that knows itself where in the text stands what matches."""
    passages = _passages_known(text)
    starts = [passage.start for passage in passages]
    matching = dict.fromkeys(max(0, bisect_right(starts, at) - 1) for at in best_first)
    return _filled(text, passages, [*matching], room_chars)


def _filled(text: str, passages: Sequence[_Passage], best_first: Sequence[int], room_chars: int) -> str | None:
    """The newest, the best, and the newest again, as far as there is room."""
    choice = _Choice(passages, room_chars)
    newest_first = range(len(passages) - 1, -1, -1)
    for number in newest_first:
        if not choice.take(number, keep_chars=room_chars - room_chars // _NEWEST_SHARE):
            break
    for number in _with_lists(passages, best_first, room_chars // _LIST_SHARE):
        if choice.take(number) and (heading := passages[number].heading) >= 0:
            choice.take(heading)
    for number in newest_first:
        if not choice.take(number):
            break
    return _joined(text, [passages[number] for number in sorted(choice.taken)]) if choice.taken else None


def _close(kept: _Kept) -> None:
    for _, index in kept.values():
        index.close()


def _passages(text: str) -> Iterator[_Passage]:
    heading = -1
    headings: list[tuple[int, date | None]] = []  # above, with their levels and days
    for number, (start, end) in enumerate(_pieces(text)):
        found = _HEADING.match(text, start)
        while found is not None and headings and headings[-1][0] >= len(found[1]):
            headings.pop()
        day = day_of(text[start : min(end, start + _DAY_WITHIN_CHARS)]) or (headings[-1][1] if headings else None)
        if found is not None:
            heading = number
            headings.append((len(found[1]), day))
        named = _NAME.match(text, start, end)
        asks = any(text.find(mark, start, end) >= 0 for mark in QUESTION_MARKS)
        is_numbered = _NUMBERED.match(text, start, end) is not None
        yield _Passage(start, end, heading, named[1] if named else None, asks, day, is_numbered)


@lru_cache(maxsize=4)
def _passages_known(text: str) -> Sequence[_Passage]:
    """The same for the texts of the last turns: of a long one it takes 20 ms to find them."""
    return tuple(_passages(text))


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    ends = [match.end() for match in _PARAGRAPH_END.finditer(text)]
    for end in (*ends, len(text)):
        if not text[start:end].strip():
            continue
        if end - start <= LONGEST_PASSAGE_CHARS:
            yield start, end
        else:
            yield from _lines(text, start, end)
        start = end


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The lines of a long paragraph; of a line that is too long pieces, cut between words where there are any."""
    while start < end:
        line_end = text.find("\n", start, end) + 1 or end
        if line_end - start > LONGEST_PASSAGE_CHARS:
            space = text.rfind(" ", start + 1, start + LONGEST_PASSAGE_CHARS) + 1
            line_end = space or start + LONGEST_PASSAGE_CHARS
        yield start, line_end
        start = line_end


def _index(text: str, passages: Sequence[_Passage]) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.executescript(_SCHEMA)
    words = ((number, words_of(text[passage.start : passage.end])) for number, passage in enumerate(passages, start=1))
    with index:
        index.executemany(_ADD, words)
        index.execute("INSERT INTO traces VALUES (?)", (len(passages),))
    return index


def _matching(index: sqlite3.Connection, passages: Sequence[_Passage], question: str, today: date) -> list[int]:
    """Numbers of passages, the best match first."""
    query = read_query(question, Fts5Counts(index))
    if not query.expression:
        return []
    with closing(index.execute(_MATCHES, (query.expression,))) as rows:
        words: dict[int, float] = dict(rows)
    best_first = islice(words, _WITH_NEIGHBOURS)
    found = {*words, *(beside for number in best_first for beside in _beside(passages, number))}
    days = days_asked_for(question, today)
    if days is not None:
        found.update(number for number, passage in enumerate(passages) if passage.day in days)
    matches = [_match(passages[number], number, words.get(number, 0.0)) for number in sorted(found)]
    lift(matches, lambda numbers: {number for number in numbers if passages[number].asks})
    prefer_speakers(matches, query)
    if days is not None:
        prefer_days([match for match in matches if passages[match.number].day in days], matches, days)
    return [match.number for match in sorted(matches, key=attrgetter("score"), reverse=True)]


def _beside(passages: Sequence[_Passage], number: int) -> Iterator[int]:
    """A passage and those near it under the same heading."""
    for beside in range(max(0, number - REACH), min(len(passages), number + REACH + 1)):
        if passages[beside].heading == passages[number].heading:
            yield beside


def _match(passage: _Passage, number: int, words: float) -> Match:
    """As if the section were a conversation, and the name the speaker's."""
    return Match(number, (0, str(passage.heading)), number, passage.name, words)


def _with_lists(passages: Sequence[_Passage], best_first: Sequence[int], room_chars: int) -> Iterator[int]:
    """The same, with the whole of a numbered list after one of the best that is of it: "the 27th" needs them all."""
    for rank, number in enumerate(best_first):
        yield number
        if rank < _WHOLE_LISTS:
            whole = _list_around(passages, number)
            if sum(passages[each].end - passages[each].start for each in whole) <= room_chars:
                yield from whole


def _list_around(passages: Sequence[_Passage], number: int) -> range:
    """The numbered list that a passage is of, or introduces; empty: none."""
    first = last = number + (not passages[number].is_numbered)
    while first > 0 and passages[first - 1].is_numbered:
        first -= 1
    while last < len(passages) and passages[last].is_numbered:
        last += 1
    return range(max(0, first - 1), last) if last > first else range(0)


def _joined(text: str, passages: Sequence[_Passage]) -> str:
    parts: list[str] = []
    last = 0
    gap = GAP
    for passage in passages:
        if passage.start > last or (not parts and passage.start):
            parts.append(f"{gap}\n" if not parts or parts[-1].endswith("\n") else f"\n{gap}\n")
            gap = LATER_GAP
        parts.append(text[passage.start : passage.end])
        last = passage.end
    return "".join(parts).rstrip() + (f"\n{gap}" if last < len(text.rstrip()) else "")
