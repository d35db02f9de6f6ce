"""Markdown that is still being written, made whole: what has begun looks as it will look, and nothing jumps.

A word that becomes bold must not show its stars first, nor a paragraph become a heading because the next line begins
with a dash. So what is open at the end is closed, and a sign whose meaning is not known yet waits for what follows it.
"""

from __future__ import annotations

import re

MAX_OPEN_CHARS = 4_000
"""What stands open in more than that is left as it is."""
MAX_WAITING_CHARS = 200

_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
# The last line, while nobody knows what it will be: a dash, a number of a list, a heading, a rule, a box of a task.
_UNDECIDED = re.compile(r"\s*(?:[-=_*+#>~` ]+|[0-9]{1,9}[.)]?|[-*+] \[[ xX]?\]?)\s*")
_MARKERS = re.compile(r"(?:\s*(?:[-*+]|[0-9]{1,9}[.)]|>|#{1,6})\s+)+")
_TABLE = re.compile(r"\s*\|")
_DELIMITERS = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?")
_PLAIN_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}\s")
_BLOCK_FORMULAS = {"$$": "$$", r"\[": r"\]"}


def completed(markdown: str) -> str:
    """The text so far, to be rendered while it grows."""
    lines = markdown.split("\n")
    fence, is_in_it = _open_fence(lines)
    if is_in_it:
        is_closing = bool(lines[-1].strip()) and set(lines[-1].strip()) == {fence[0]}
        return "\n".join(lines[:-1] if is_closing else lines)
    is_closed = not fence and _FENCE.fullmatch(lines[-1])
    if fence or (lines[-1] and not is_closed and _UNDECIDED.fullmatch(lines[-1])):
        lines = lines[:-1]
    lines = _without_open_formula(lines)
    begin = next((index + 1 for index in reversed(range(len(lines))) if not lines[index].strip()), 0)
    lines = lines[: begin + _decided_rows(lines[begin:])]
    whole = "\n".join(lines)
    first = next((index for index in reversed(range(begin, len(lines))) if _MARKERS.match(lines[index])), begin)
    last = "\n".join(lines[first:])
    if not last or is_closed or len(last) > MAX_OPEN_CHARS:
        return whole
    marker = _MARKERS.match(last)
    text = last.rpartition("|")[2] if _TABLE.match(last) else last[marker.end() :] if marker else last
    return whole[: len(whole) - len(text)] + _Line(text).closed()


def _open_fence(lines: list[str]) -> tuple[str, bool]:
    """The fence of the code that is open at the end, and whether its own line is complete."""
    fence, begun = "", 0
    for number, line in enumerate(lines):
        found = _FENCE.fullmatch(line)
        if found is None:
            continue
        if not fence:
            fence, begun = found[1], number
        elif found[1][0] == fence[0] and len(found[1]) >= len(fence) and not found[2].strip():
            fence = ""
    return fence, bool(fence) and begun < len(lines) - 1


def _without_open_formula(lines: list[str]) -> list[str]:
    """A block with a formula appears once it is closed."""
    for number in range(len(lines) - 1, max(len(lines) - 40, -1), -1):
        opening = lines[number].strip()[:2]
        if opening in _BLOCK_FORMULAS:
            closing = _BLOCK_FORMULAS[opening]
            rest = [lines[number].strip()[2:], *lines[number + 1 :]]
            if opening == "$$" and not rest[0].strip() and sum(line.count("$$") for line in lines[:number]) % 2:
                return lines  # it closes one
            return lines if any(closing in line for line in rest) else lines[:number]
    return lines


def _decided_rows(block: list[str]) -> int:
    """How many lines of the last block are shown: the head of a table waits for the line that makes it one."""
    if not block or not _TABLE.match(block[0]) or len(block) > 2:
        return len(block)
    is_table = len(block) == 2 and _DELIMITERS.fullmatch(block[1]) and block[1].count("|") >= block[0].count("|")
    return len(block) if is_table else 0


class _Line:
    """One block's text, read once from the left: what is open at its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[str] = []
        self._pieces: list[str] = []

    def closed(self) -> str:
        """The text with an end for all that has begun."""
        at, is_over = 0, False
        while at < len(self._text) and not is_over:
            sign = self._text[at]
            if sign == "\\" and self._text[at + 1 : at + 2] not in ("(", "["):
                self._pieces.append(self._text[at : at + 2] if at + 1 < len(self._text) else "")
                at += 2
            elif sign in "`$\\":
                at, is_over = self._whole(at)
            elif sign in "*_~":
                at = self._mark(at)
            elif sign == "[":
                at, is_over = self._link(at)
            else:
                self._pieces.append(sign)
                at += 1
        text = "".join(self._pieces)
        return text.rstrip() + "".join(reversed(self._open)) if self._open else text

    def _whole(self, at: int) -> tuple[int, bool]:
        """Code or a formula: past it; or it is open, code is closed and a formula waits."""
        text = self._text
        opening = re.compile(r"`+|\${1,2}|\\[(\[]").match(text, at)
        if opening is None:  # (the caller has seen one of these)
            raise ValueError(text[at])
        begin, word = opening.end(), opening[0]
        closing = {r"\(": r"\)", r"\[": r"\]"}.get(word, word)
        end = text.find(closing, begin)
        if end >= 0:
            self._pieces.append(text[at : end + len(closing)])
            return end + len(closing), False
        rest = text[begin:]
        if word[0] == "`":
            if rest.strip("`"):
                self._pieces.append(text[at:].rstrip("`") + word)
            return at, True
        is_text = len(rest) > MAX_WAITING_CHARS or _PLAIN_WORD.search(rest) or rest[:1].isspace() or rest[:1].isdigit()
        if is_text:
            self._pieces.append(word)
            return begin, False
        return at, True

    def _mark(self, at: int) -> int:
        """Stars, underscores, tildes: they open, close, or at the very end wait for what they are."""
        text, sign = self._text, self._text[at]
        end = at
        while end < len(text) and text[end] == sign:
            end += 1
        run, before, after = text[at:end], text[at - 1 : at] or " ", text[end : end + 1]
        is_word = sign == "_" and before.isalnum()
        if not after:  # the text ends here: it closes what is open, or nobody knows
            return end
        if self._open and self._open[-1][0] == sign and not before.isspace() and (sign != "_" or not after.isalnum()):
            if len(run) >= len(self._open[-1]):
                self._open.pop()
        elif not after.isspace() and not is_word and (sign != "~" or len(run) == 2):
            self._open.append(run)
        self._pieces.append(run)
        return end

    def _link(self, at: int) -> tuple[int, bool]:
        """A link shows its text until it is whole; a picture, too."""
        text = self._text
        label = text.find("]", at)
        if label < 0:
            is_long = len(text) - at > MAX_WAITING_CHARS
            if not is_long and self._pieces and self._pieces[-1] == "!":
                self._pieces.pop()
            self._pieces.append("[" if is_long else "")
            return at + 1, False
        if label == len(text) - 1 or (text[label + 1] == "(" and text.find(")", label) < 0):
            if self._pieces and self._pieces[-1] == "!":
                self._pieces.pop()
            self._pieces.append(text[at + 1 : label])
            return label, True
        self._pieces.append(text[at : label + 1])
        return label + 1, False
