"""Where a text may be cut: between paragraphs, lines, sentences or words, and never inside of a character.

A character is what people see as one: https://unicode.org/reports/tr29, the rules for marks, emoji and flags.
"""

from __future__ import annotations

import re
import unicodedata

_JOINER = "\u200d"
_SENTENCE = re.compile(r"[.!?。！？](?:[\s\"')\]]+|(?=[。！？]))|[。！？]")  # noqa: RUF001 (those of other scripts)
_LONGEST_CHARACTER = 64
"""Code points that are kept together at most; longer heaps of marks are no writing."""


def cut_before(text: str, following: str) -> int:
    """How much of `text` to keep, where it must be cut and `following` comes next.

    The best place in the second half counts: the end of a paragraph, else of a line, a sentence, a word, a character.
    An end may also lie in `following`, which need not be more than two characters.
    """
    whole, half = text + following, len(text) // 2
    for separator in ("\n\n", "\n"):
        found = whole.rfind(separator, half, len(text) + len(separator))
        if found >= 0:
            return min(found + len(separator), len(text))
    sentences = [match.end() for match in _SENTENCE.finditer(whole, half) if match.start() < len(text)]
    if sentences:
        return min(sentences[-1], len(text))
    found = whole.rfind(" ", half, len(text) + 1)
    if found >= 0:
        return min(found + 1, len(text))
    return _between_characters(text, following)


def _between_characters(text: str, following: str) -> int:
    whole = text + following
    for cut in range(len(text), max(len(text) - _LONGEST_CHARACTER, 1), -1):
        if not _is_inside(whole, cut):
            return cut
    return len(text)


def _is_inside(text: str, cut: int) -> bool:
    """The cut would tear a character."""
    if cut >= len(text):
        return False
    before, after = text[cut - 1], text[cut]
    if _JOINER in {before, after} or unicodedata.category(after).startswith("M"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":  # skin tones, tags of flags
        return True
    if _is_flag_letter(after):
        letters = 0
        while letters < cut and _is_flag_letter(text[cut - 1 - letters]):
            letters += 1
        return letters % 2 == 1
    return False


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
