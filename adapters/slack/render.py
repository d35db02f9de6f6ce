"""From the agent's Markdown to what Slack shows: harmless, and in pieces that it takes. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

MAX_PIECE_UNITS = 11_500
"""Of `markdown_text`, which ends at 12,000 characters: https://docs.slack.dev/reference/methods/chat.postMessage.

Whether Slack counts code points or UTF-16 units is not said; units are safe under both. What it adds when it makes
blocks of the text counts, too: 13,297 was refused (slackapi/bolt-js#2509, 2025-05).
"""

# What Slack, and every reader of Markdown, would turn into another character.
_ENTITY = re.compile(r"&(?=(?:[A-Za-z][A-Za-z0-9]*|#[0-9]+|#[xX][0-9A-Fa-f]+);)")
_OPEN_ENTITY = re.compile(r"&#?[A-Za-z0-9]*\Z")
_QUOTE = re.compile(r"^(?: {0,3}>)+", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_BREAKS = ("\n\n", "\n", " ")
_LONGEST_FENCE_LINE = 100
_JOINERS = "\u200d\ufe0e\ufe0f\u20e3"
_SKIN = ("\U0001f3fb", "\U0001f3ff")
_FLAG = ("\U0001f1e6", "\U0001f1ff")
_LONGEST_CHARACTER = 64


def harmless(text: str) -> str:
    """The Markdown with Slack's own tokens taken out of effect, and nothing else changed for the reader.

    Slack obeys `<!channel>`, `<@U…>`, `<#C…>` and `<https://…|label>` in `markdown_text`, too, and shows `&lt;` and
    `&gt;` as the characters that they mean without reading the result as a token again (measured on a workspace in
    PostHog/posthog#95054, 2026-09). A lone `&` stays: in the address of a link Slack would not turn `&amp;` back.
    A `>` that begins a line is a quotation.
    """
    text = _ENTITY.sub("&amp;", text).replace("<", "&lt;")
    parts, end = [], 0
    for found in _QUOTE.finditer(text):
        parts += [text[end : found.start()].replace(">", "&gt;"), found[0]]
        end = found.end()
    return "".join([*parts, text[end:].replace(">", "&gt;")])


def settled(text: str) -> str:
    """The text without an end that could become part of an entity, and would then be escaped otherwise.

    So for texts that grow, `harmless(settled(…))` of the earlier one is how that of the later one begins.
    """
    return _OPEN_ENTITY.sub("", text)


def plain(text: str) -> str:
    """The text for `text=`, without any markup of ours: the three characters that Slack wants escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def units(text: str) -> int:
    """At most so many UTF-16 units are in the escaped text."""
    return sum(_cost(character) for character in text)


def pieces(text: str, limit_units: int = MAX_PIECE_UNITS) -> Sequence[str]:
    """The Markdown in pieces of at most `limit_units`, none of them blank.

    Cut between paragraphs, lines or words where there are any, never within a character that is made of several; a
    code block that is cut is closed and opened again. Joined they are the text, but for the fences that were added.
    A text that grows keeps its pieces but the last.
    """
    found, opening, rest = [], "", text
    while rest:
        room = limit_units - units(opening)
        if units(rest) <= room:
            head, rest = rest, ""
        else:
            cut = _cut(rest, room - _LONGEST_FENCE_LINE)
            head, rest = rest[:cut], rest[cut:]
        piece, opening = _closed(opening + head) if rest else (opening + head, "")
        found.append(piece)
    return [piece for piece in found if piece.strip()]


def _closed(piece: str) -> tuple[str, str]:
    """The piece with the fence of its code block closed, and the line that opens it again in the next one."""
    fence = _open_fence(piece)
    if fence is None or len(fence[1]) >= _LONGEST_FENCE_LINE // 2:
        return piece, ""
    opening = fence[0] if len(fence[0]) < _LONGEST_FENCE_LINE else fence[1]
    return f"{piece}{'' if piece.endswith(chr(10)) else chr(10)}{fence[1]}", f"{opening}\n"


def _open_fence(text: str) -> re.Match[str] | None:
    """The first line of the code block that is open at the end of the text."""
    fence = None
    for line in _FENCE.finditer(text):
        marks, rest = line[1], line[2].strip()
        if fence is None:
            if not (marks[0] == "`" and "`" in rest):  # which would be inline code
                fence = line
        elif marks[0] == fence[1][0] and len(marks) >= len(fence[1]) and not rest:
            fence = None
    return fence


def _cut(text: str, room_units: int) -> int:
    """Where to cut so that what stands before fits into the room; before a code block rather than in it."""
    size, end = 0, 0
    for end, character in enumerate(text):  # noqa: B007 (the index is what is looked for)
        size += _cost(character)
        if size > room_units:
            break
    opened = _open_fence(text[:end])
    if opened is not None and opened.start() > end // 2 and text[: opened.start()].strip():
        return opened.start()
    for mark in _BREAKS:
        at = text.rfind(mark, end // 2, end)
        if at >= 0 and text[: at + len(mark)].strip():
            return at + len(mark)
    cut = end
    while cut > 1 and end - cut < _LONGEST_CHARACTER and _is_within_one(text, cut):
        cut -= 1
    return max(cut, 1)


def _is_within_one(text: str, cut: int) -> bool:
    """A reader sees what stands before and behind the cut as one character."""
    before, after = text[cut - 1], text[cut]
    if unicodedata.combining(after) or after in _JOINERS or before == "\u200d" or (before, after) == ("\r", "\n"):
        return True
    if _SKIN[0] <= after <= _SKIN[1]:
        return True
    letters = 0  # of flags, which are made of two
    while letters < cut and _FLAG[0] <= text[cut - 1 - letters] <= _FLAG[1]:
        letters += 1
    return letters % 2 == 1 and _FLAG[0] <= after <= _FLAG[1]


def _cost(character: str) -> int:
    if character in "&<>":
        return 5
    return 2 if character > "\uffff" else 1
