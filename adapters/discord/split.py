"""A text in pieces that Discord takes: 2000 code points each, counted as Python counts.

The unit is a code point (Discord's staff, discord-api-docs issue 1315). Nothing is lost or doubled: the bodies of the
pieces, put together, are the text.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from dataclasses import dataclass

MAX_CHARS = 2000

_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,20}|~{3,20})(?P<info>[^`\n]*)$", re.MULTILINE)
_JOINER, _TAGS, _SKIN_TONES = 0x200D, range(0xE0020, 0xE0080), range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)  # two of these letters are one flag
_LONGEST_CHARACTER = 40  # code points of one that is kept whole; a family of four has 7
_MAX_INFO_CHARS = 40  # of a fence's first line, repeated on the next piece


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text.

    Attributes:
        before: opens again what the piece before had to close.
        body: the part itself.
        after: closes a code block that goes on in the next piece.
    """

    before: str
    body: str
    after: str

    @property
    def content(self) -> str:
        """What is sent."""
        return f"{self.before}{self.body}{self.after}"


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced code block: where its first line begins, where its code begins and ends, and its last line ends."""

    start: int
    code: int
    code_end: int
    end: int
    mark: str
    info: str


def split(text: str, max_chars: int = MAX_CHARS) -> list[Piece]:
    """Cut between paragraphs, lines, sentences or words, in this order of preference, and never in a character.

    A code block that fits into one piece stays whole; a longer one is closed and opened again, between two lines.
    """
    blocks = list(_blocks(text))
    pieces, start = [], 0
    while start < len(text):
        inside = _block_at(blocks, start)
        before = "" if inside is None else f"{inside.mark}{inside.info}\n"
        if len(text) - start + len(before) <= max_chars:
            pieces.append(Piece(before, text[start:], ""))
            break
        end = _end(text, blocks, start, max_chars - len(before), max_chars)
        after = ""
        cut = _block_at(blocks, end)
        if cut is not None:
            after = cut.mark if text[end - 1] == "\n" else f"\n{cut.mark}"
        pieces.append(Piece(before, text[start:end], after))
        start = end
    return pieces


def _blocks(text: str) -> list[_Block]:
    """All fenced code blocks; one that is never closed ends with the text (CommonMark 4.5)."""
    found: list[_Block] = []
    fences = _FENCE.finditer(text)
    for opening in fences:
        if opening["mark"][0] == "~":  # Discord knows backticks only; `render` has changed the others
            continue
        code = min(opening.end() + 1, len(text))
        closing = next((each for each in fences if _closes(each, opening["mark"])), None)
        code_end, end = (len(text), len(text)) if closing is None else (closing.start(), closing.end())
        info = opening["info"].strip()[:_MAX_INFO_CHARS]
        found.append(_Block(opening.start(), code, code_end, end, opening["mark"], info))
    return found


def _closes(fence: re.Match[str], mark: str) -> bool:
    return fence["mark"].startswith(mark) and not fence["info"].strip()


def _block_at(blocks: list[_Block], position: int) -> _Block | None:
    """The code block that a cut here would go through."""
    return next((block for block in blocks if block.code <= position < block.code_end), None)


def _end(text: str, blocks: list[_Block], start: int, room: int, max_chars: int) -> int:
    """Where the piece ends that begins at `start`; after it there is more."""
    limit = start + room
    block = next((each for each in blocks if each.start < limit < each.end), None)
    if block is not None:
        if block.start > start and (block.end - block.start <= max_chars or block.start - start > room // 2):
            return block.start
        # room for the fence that closes it, and not between the code and its own last line
        limit = max(start + 1, min(limit - len(block.mark) - 1, block.code_end - 1))
        return _cut(text, block.code if start < block.code < limit else start, limit, start)
    return _cut(text, start, limit)


def _cut(text: str, earliest: int, limit: int, start: int | None = None) -> int:
    """The best place for a cut at or before `limit`; after `earliest`, but for want of one, anywhere after `start`."""
    start = earliest if start is None else start
    least = max(earliest, start + (limit - start) // 3)  # pieces that are too short read badly too
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, least, limit)
        if found >= 0 and found + len(mark) <= limit:
            return found + len(mark)
    for position in range(limit, start, -1):
        if text[position - 1].isspace() and not _is_joined(text, position):
            return position
    for position in range(limit, max(start, limit - _LONGEST_CHARACTER), -1):
        if not _is_joined(text, position):
            return position
    return limit


def _is_joined(text: str, position: int) -> bool:
    """Whether what stands before and behind the position is one character to a reader (roughly UAX 29)."""
    before, behind = ord(text[position - 1]), ord(text[position])
    if _JOINER in (before, behind) or behind in _SKIN_TONES or behind in _TAGS:
        return True
    if unicodedata.category(text[position])[0] == "M" or (before == 13 and behind == 10):
        return True
    if before in _FLAGS and behind in _FLAGS:
        backwards = (ord(text[index]) for index in range(position - 1, -1, -1))
        return sum(1 for _ in itertools.takewhile(_FLAGS.__contains__, backwards)) % 2 == 1
    return False
