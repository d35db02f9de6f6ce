"""What a person should look at before they trust a skill: its addresses, and what looks wrong.

None of it proves anything: a skill that is free of it may still do harm. It says where to look first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.domain.visible import hidden_note, visible
from gateway.skills.skill import is_text, runner_of

MOST_ADDRESSES = 100
MOST_WARNINGS = 50
_SHOWN_CHARS = 120
_ADDRESS = re.compile(r"\b(?:https?|ftp|wss?|ssh|git)://[^\s<>\"'`)\]}]{1,2000}")
# Each part is bounded, so that no file of others takes long.
_SHELLS = r"\b(?:(?:ba|z|da|k|fi)?sh|(?:python|perl|ruby|node|php)[\d.]{0,9})\b"
_DOWNLOADS = r"\b(?:curl|wget|fetch|aria2c|iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b"
_SUSPECTS: Sequence[tuple[re.Pattern[str], str]] = (
    (
        re.compile(
            rf"{_DOWNLOADS}[^|;]{{0,300}}\|[^\n]{{0,60}}?(?:{_SHELLS}|\biex\b)"
            rf"|(?:{_SHELLS}|\beval\b|\biex\b)[^\n]{{0,60}}?(?:<\(|\$\(|`|\()\s{{0,9}}{_DOWNLOADS}",
            re.IGNORECASE,
        ),
        "runs what it downloads, unseen",
    ),
    (re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/]{200,}={0,2}|(?:\\x[0-9a-f]{2}){40,}"), "hides something in a blob"),
    (
        re.compile(r"\bbase64\s+(?:-d|-D|--decode)\b|\bb64decode\b|\batob\(|FromBase64String", re.IGNORECASE),
        "decodes base64",
    ),
    (
        re.compile(
            r"\b(?:pip3?|pipx|uv|npm|pnpm|yarn|gem|cargo|go|brew|apt|apt-get|dnf|apk|choco|winget)\s+"
            r"(?:tool\s+|global\s+|-\S+\s+){0,5}(?:install|add|i)\b|\bnpx\s+(?:-y|--yes)\b"
            r"|\b(?:first|before)\b[^\n.]{0,60}\b(?:download|install|run)\b[^\n.]{0,80}"
            r"|\b(?:download|install)\b[^\n.]{0,60}\b(?:first|before)\b",
            re.IGNORECASE,
        ),
        "wants something installed first",
    ),
    (
        re.compile(
            r"\b(?:ignore|disregard|forget)\b[^\n.]{0,40}\b(?:previous|earlier|above|other|system)\b[^\n.]{0,40}"
            r"\b(?:instructions?|rules?|prompts?)\b"
            r"|\b(?:do not|don't|never)\s+(?:tell|mention|show|reveal|inform)\b[^\n.]{0,40}"
            r"\b(?:user|person|owner|human)\b",
            re.IGNORECASE,
        ),
        "tells the agent to leave its rules, or to hide something",
    ),
    (
        re.compile(
            r"(?:~|\$HOME|/home/\w+|/root)/\.(?:ssh|aws|gnupg|config|netrc|kube|ethos)\b|\bid_(?:rsa|ed25519)\b"
        ),
        "names files with secrets",
    ),
)
_PIECE_CHARS, _OVERLAP_CHARS = 1 << 16, 2_000
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm")
_ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"7z\xbc\xaf", b"BZh", b"\xfd7zXZ")


@dataclass(frozen=True, slots=True)
class Look:
    """What stands out in the files of a skill; both lists are cut."""

    addresses: Sequence[str]
    warnings: Sequence[str]


def look_at(files: Mapping[str, bytes]) -> Look:
    """Go through all files."""
    addresses: dict[str, None] = {}
    warnings: list[str] = []
    for name, data in files.items():
        if data.startswith(_PROGRAMS):
            warnings.append(f"{name}: is a program, which nobody can read")
        elif data.startswith(_ARCHIVES):
            warnings.append(f"{name}: is an archive; what is in it was not looked at")
        elif is_text(data) or runner_of(name, data):
            text = data.decode("utf-8", "replace")
            addresses |= dict.fromkeys(found[0].rstrip(".,;:!?*_") for found in _ADDRESS.finditer(text))
            warnings += _warnings(name, text)
    return Look(list(addresses)[:MOST_ADDRESSES], warnings[:MOST_WARNINGS])


def _warnings(name: str, text: str) -> Iterator[str]:
    note = hidden_note(text)
    if note:
        yield f"{name}: {note}"
    for pattern, what in _SUSPECTS:
        found = _first(pattern, text)
        if found is not None:
            line = text.count("\n", 0, found.start()) + 1
            shown = visible(" ".join(found[0].split()))
            yield f"{name}, line {line}: {what}: {shown[:_SHOWN_CHARS]}{'…' if len(shown) > _SHOWN_CHARS else ''}"


def _first(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Where it is found first, by pieces: a search lets no other thread run, so the gateway stands still for it."""
    for begin in range(0, len(text), _PIECE_CHARS):
        found = pattern.search(text, begin, begin + _PIECE_CHARS + _OVERLAP_CHARS)
        if found is not None:
            return found
    return None
