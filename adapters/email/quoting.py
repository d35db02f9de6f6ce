"""Separates what a person wrote from what their program quoted. Pure functions.

The patterns of mail-parser-reply (13 languages) find where a quotation begins. They see a few short lines at a time: on
a long line they take quadratic time, and `re` blocks everything meanwhile. They also take two lines such as
`From: paris` and `To: london` for a quoted header; so a match needs more evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from mailparser_reply import EmailMessage  # type: ignore[import-untyped]
from mailparser_reply.constants import MAIL_LANGUAGES  # type: ignore[import-untyped]

_MAX_LINES = 3_000
_WINDOW_LINES = 8
_MAX_LINE_CHARS = 200
_LEADING = re.compile(r"^[>*\s]+")
_FIELD = re.compile(r"^[>*\s]*[^\s:][^:\n]{0,30}:", re.MULTILINE)
_SEPARATOR = re.compile(r"\s*-{3,}\s*[^\s-].{0,80}[^\s-]\s*-{3,}\s*")
_RULED = re.compile(r"[\s_\-=*]*")
_ADDRESS = re.compile(r"@[\w-]")
_SIGNATURE = "-- "  # RFC 3676, section 4.3


def reply_text(text: str, *, is_reply: bool, is_to_us: bool = False) -> tuple[str, bool]:
    """The text without its quotations, and whether the person wrote all of it.

    A mail that is no reply stays whole, since its author quoted on purpose; so does one of which nothing would be left.
    Quoted lines with answers between them stay, since the answers need them. Text below a quotation of our words counts
    as the person's own after a blank line; without one it may be the rest of a long line.

    Args:
        text: of the whole mail, lines separated by newlines.
        is_reply: the mail refers to another one.
        is_to_us: that one was ours, so what is quoted are our own words.
    """
    lines = _without_signature(text.split("\n"))
    quotation = _quotation(lines)
    if is_to_us and (answer := _around_quotation(lines, quotation)):
        return answer, True
    own = lines
    if is_reply and quotation is not None and not _has_answers(lines[quotation.stop :]):
        own = lines[: quotation.start]
        quotation = None
    if is_reply:
        own = _without_trailing_quotation(own)
    # The line that Outlook draws above what it quotes, and others' “Original message”.
    while own and own is not lines and (_RULED.fullmatch(own[-1]) or _SEPARATOR.fullmatch(own[-1])):
        own = own[:-1]
    if not any(line.strip() for line in own):
        return text.strip("\n"), False
    return "\n".join(own).strip("\n"), quotation is None and not _is_quoting(own)


def _around_quotation(lines: list[str], quotation: range | None) -> str:
    """The text above and below the only block of quoted lines; empty where there is no such block, or no text below."""
    quoted = [number for number, line in enumerate(lines) if line.startswith(">")]
    if not quoted or any(line.strip() and not line.startswith(">") for line in lines[quoted[0] : quoted[-1]]):
        return ""
    above, below = lines[: quoted[0]], lines[quoted[-1] + 1 :]
    is_apart = bool(below) and not below[0].strip() and any(line.strip() for line in below)
    if not is_apart or _quotation(below) is not None:
        return ""
    above = _without_end(above, lambda line: not line.strip())
    if quotation is not None and quotation.start < quoted[0]:
        is_attribution = quotation.stop >= len(above) and not lines[quotation.start].startswith("-----")
        if not is_attribution or len(_FIELD.findall("\n".join(lines[quotation.start : quotation.stop]))) >= 3:
            return ""
        above = lines[: quotation.start]
    elif above and (own := _without_introduction(above)) == above:
        return ""  # it may be any text
    elif above:
        above = own
    parts = ("\n".join(part).strip("\n") for part in (above, below))
    return "\n\n".join(part for part in parts if part.strip())


def split_at_quotation(text: str) -> tuple[str, str]:
    """The text above the first quotation, and the rest, which may have answers between the quoted lines."""
    lines = text.split("\n")
    quotation = _quotation(lines)
    starts = [number for number, line in enumerate(lines) if line.startswith(">")]
    start = min([*starts, len(lines) if quotation is None else quotation.start])
    while start and (_RULED.fullmatch(lines[start - 1]) or lines[start - 1].startswith("-----")):
        start -= 1
    return "\n".join(lines[:start]).strip("\n"), "\n".join(lines[start:]).strip("\n")


def _quotation(lines: list[str]) -> range | None:
    """The lines of the header that stands above a quotation."""
    for number in range(min(len(lines), _MAX_LINES)):
        if _SEPARATOR.fullmatch(lines[number][:_MAX_LINE_CHARS]):
            below = "\n".join(line[:_MAX_LINE_CHARS] for line in lines[number + 1 : number + _WINDOW_LINES])
            if len(_FIELD.findall(below)) >= 3 and _ADDRESS.search(below):
                return range(number, number + 1 + len(_FIELD.findall(below)))
        if not _may_begin(lines, number):
            continue
        window = "\n".join(line[:_MAX_LINE_CHARS].strip() for line in lines[number : number + _WINDOW_LINES])
        found = _patterns().match(window)
        if found is not None and _is_convincing(found[0], lines, number):
            return range(number, number + found[0].rstrip("\n").count("\n") + 1)
    return None


def _has_answers(below: list[str]) -> bool:
    """Lines without `>` below lines with it: somebody wrote between what they quote."""
    quoting = [line.startswith(">") for line in below if line.strip()]
    return True in quoting and False in quoting[quoting.index(True) :]


@cache
def _patterns() -> re.Pattern[str]:
    pattern: re.Pattern[str] = EmailMessage(text="", languages=list(MAIL_LANGUAGES)).HEADER_REGEX
    return pattern


def _may_begin(lines: list[str], number: int) -> bool:
    """A cheap check before the patterns."""
    line = _LEADING.sub("", lines[number][:_MAX_LINE_CHARS])
    if not line:
        return False
    if ":" in line[:40] or line.startswith("-----"):
        return True
    return any(near[:_MAX_LINE_CHARS].rstrip().endswith((":", "\uff1a")) for near in lines[number : number + 3])


def _is_convincing(header: str, lines: list[str], number: int) -> bool:
    """There is a quoted line below, or an address in it, or a date in an attribution, or a header of three fields."""
    if header.startswith("-----") or _ADDRESS.search(header):
        return True
    fields = len(_FIELD.findall(header))
    if fields >= 3:
        return True
    if fields <= 1 and re.search(r"\d", header):
        return True
    below = lines[number + header.count("\n") + 1 :]
    return next((line.startswith(">") for line in below if line.strip()), False)


def _without_trailing_quotation(lines: list[str]) -> list[str]:
    """Without the quoted lines at the end, and what introduces them in a language that the patterns do not know."""
    own = _without_end(lines, lambda line: not line.strip() or line.startswith(">"))
    return _without_introduction(own) if _is_quoting(lines[len(own) :]) else lines


def _without_introduction(own: list[str]) -> list[str]:
    for amount in (1, 2):
        introduction = " ".join(own[-amount:])
        if introduction.endswith((":", "\uff1a")) and re.search(r"\d|@", introduction):
            return _without_end(own[:-amount], lambda line: not line.strip())
    return own


def _without_end(lines: list[str], belongs: Callable[[str], bool]) -> list[str]:
    end = len(lines)
    while end and belongs(lines[end - 1]):
        end -= 1
    return lines[:end]


def _without_signature(lines: list[str]) -> list[str]:
    return lines[: lines.index(_SIGNATURE)] if _SIGNATURE in lines else lines


def _is_quoting(lines: list[str]) -> bool:
    return any(line.startswith(">") for line in lines)
