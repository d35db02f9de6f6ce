"""Text that a person must judge: nothing in it may be there and not be seen.

Unicode has characters without a picture: tags (which some models read as letters), zero-width ones, those that turn
the direction of what follows. `visible` shows each as a sign, for a person who decides; `without_hidden` takes
them out of what others want the model to read or the memory to keep. Joiners that a script or an emoji needs stay.

Sources: Default_Ignorable_Code_Point of https://www.unicode.org/Public/16.0.0/ucd/DerivedCoreProperties.txt;
RFC 5892, appendix A.1 and A.2, for joiners; UTS 51, section 2, for emoji sequences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

NAME_CHARS = 60
_MOST_MARKS = 4

# Those that are not of the category Cf: a filler, a selector, or not assigned yet.
_IGNORABLE = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065), (0x2800, 0x2800),
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF),
)  # fmt: skip
# Signs around numbers and verses, which have a picture though they are of the category Cf.
_WITH_PICTURE = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
# Python's tables may be older than an emoji or an ideograph, which is then "not assigned".
_NEWER = ((0x1F000, 0x1FBFF), (0x20000, 0x3FFFD))
_FLAGS = re.compile("\U0001f3f4(?:\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
                    "|\U000e0077\U000e006c\U000e0073)\U000e007f)")  # fmt: skip
_LINE_ENDS = frozenset("\x0b\x0c\x85\u2028\u2029")
_JOINERS = frozenset("\u200c\u200d")
_STYLES = frozenset("\ufe0e\ufe0f")
_KEYCAPS = frozenset("0123456789#*\u203c\u2049\u3030")
_JOINING = (
    "ARABIC", "SYRIAC", "NKO", "MANDAIC", "MONGOLIAN", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA",
    "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "SINHALA", "KHMER", "MYANMAR", "TIBETAN",
)  # fmt: skip
_SIGN = re.compile(r"⟨(?=U\+)")
_LINK = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:/|www\.)\S*")
# The dots of other scripts part a domain, too (UTS 46, section 2.3), and so does one that looks like a dot.
_DOT = re.compile(r"(?<=\S)([.\u2024\u3002\uff0e\uff61])(?=[^\W\d]{2})")


def visible(text: str) -> str:
    """The text with each hidden character as `⟨U+E0053⟩`; from what is shown follows what there is, byte for byte."""
    hidden = dict(_hidden_of(text))
    hidden |= {sign.start(): "⟨" for sign in _SIGN.finditer(text)}  # so that such a sign cannot be written
    return "".join(f"⟨U+{ord(char):04X}⟩" if at in hidden else char for at, char in enumerate(text))


def hidden_count(text: str) -> int:
    """How many characters of the text cannot be seen."""
    return sum(1 for _ in _hidden_of(text))


def hidden_note(text: str) -> str:
    """`holds 49 invisible characters`; empty where it holds none."""
    count = hidden_count(text)
    return f"holds {count} invisible character{'s' if count > 1 else ''}" if count else ""


def without_hidden(text: str) -> str:
    """The text without its hidden characters; a rare kind of line end becomes a common one."""
    hidden = {at: "\n" if char in _LINE_ENDS else "" for at, char in _hidden_of(text)}
    return "".join(hidden.get(at, char) for at, char in enumerate(text)) if hidden else text


def clean_name(text: str, max_chars: int) -> str:
    """What of a name may be shown: one line without control characters and hidden ones."""
    shown = "".join(" " if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} else char for char in text)
    return " ".join(_without_piles(without_hidden(shown)).split())[:max_chars].strip()


def _without_piles(text: str) -> str:
    """With four marks on a letter at most; no language has more, and a pile of them covers the lines around it."""
    kept: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in {"Mn", "Me"} else 0
        if marks <= _MOST_MARKS:
            kept.append(char)
    return "".join(kept)


def as_name(text: str) -> str:
    """A name that somebody chose, in Markdown: as code, so that it forms no markup, and without addresses of pages."""
    name = clean_name(_DOT.sub(r"\1 ", _LINK.sub("(link)", clean_name(text, 4 * NAME_CHARS))), NAME_CHARS)
    return f"`{name.replace('`', chr(39)) or '?'}`"


def _hidden_of(text: str) -> Iterator[tuple[int, str]]:
    """The hidden characters and where they stand."""
    suspects = "".join(char for char in set(text) if _is_hidden(char))
    if not suspects:
        return
    flags = {at for flag in _FLAGS.finditer(text) for at in range(flag.start(), flag.end())}
    for found in re.finditer(f"[{re.escape(suspects)}]", text):
        at = found.start()
        if at not in flags and not _belongs(text, at):
            yield at, found[0]


def _is_hidden(char: str) -> bool:
    category = unicodedata.category(char)
    if category == "Cn":
        return not any(first <= ord(char) <= last for first, last in _NEWER)
    return category in {"Co", "Cs", "Zl", "Zp"} or (category == "Cc" and char not in "\n\t\r") or _is_ignorable(char)


def _is_ignorable(char: str) -> bool:
    if unicodedata.category(char) == "Cf":
        return char not in _WITH_PICTURE
    return any(first <= ord(char) <= last for first, last in _IGNORABLE)


def _belongs(text: str, at: int) -> bool:
    """Whether a script or an emoji needs the joiner, or the choice of style, just there."""
    char, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if char in _STYLES:
        return _is_pictured(before) or before in _KEYCAPS
    if char not in _JOINERS:
        return False
    if char == "\u200d" and _is_pictured(after) and (_is_pictured(before) or before in _STYLES):
        return True
    return _joins(before) and (_joins(after) or unicodedata.combining(before) == 9)  # 9: a virama


def _is_pictured(char: str) -> bool:
    """Whether it may be an emoji; modifiers of the skin are of the category Sk."""
    return bool(char) and (
        unicodedata.category(char) in {"So", "Sm"} or 0x1F000 <= ord(char) <= 0x1FBFF or char in "©®™\u2139"
    )


def _joins(char: str) -> bool:
    """Whether it is a letter, or a mark, of a script whose letters join."""
    return bool(char) and unicodedata.category(char)[0] in "LM" and unicodedata.name(char, "").startswith(_JOINING)
