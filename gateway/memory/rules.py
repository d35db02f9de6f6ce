"""What updates and erasures do to a text. Pure: no files, no clock.

A file's bytes that are not UTF-8 pass through unharmed: they are lone surrogates inside (PEP 383), and bytes again
when the text is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from hashlib import sha256

from gateway.protocols import MemoryUpdate

# NUL ends a text for many programs; lone surrogates are no characters and cannot be written as UTF-8.
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


def clean(content: str) -> str:
    """What a model or a form sent, with `\\n` line ends and without what no text file can hold."""  # noqa: D301
    return _UNWRITABLE.sub("\ufffd", to_newlines(content))


def to_newlines(text: str) -> str:
    """Every line end as `\\n`."""  # noqa: D301
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def decode(data: bytes) -> str:
    """A file's bytes as text to work on."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """A text that was worked on as a file's bytes."""
    return text.encode("utf-8", "surrogateescape")


def show(data: bytes) -> str:
    """A file's bytes as text for people and models; what is not UTF-8 is shown as U+FFFD."""
    return to_newlines(data.decode("utf-8", "replace")).removeprefix("\ufeff")


def apply(text: str, update: MemoryUpdate) -> str | None:
    """The text after an update, with `\\n` for each line end; None where the update has nothing to do."""  # noqa: D301
    content = clean(update.content)
    match update.action:
        case "add":
            return _add(to_newlines(text), content.strip())
        case "replace":
            return content.strip() + "\n" if content.strip() else ""
        case "remove":
            return _remove(to_newlines(text), content)


def _add(text: str, paragraph: str) -> str | None:
    if not paragraph:
        return None
    old = text.rstrip()
    return f"{old}\n\n{paragraph}\n" if old else paragraph + "\n"


def _remove(text: str, match: str) -> str | None:
    """The text without the lines that contain the match; only these are looked at, so a long file costs little."""
    if not match.strip() or "\n" in match:  # no single line contains it
        return None
    kept: list[str] = []
    start, at = 0, text.find(match)
    while at >= 0:
        kept.append(text[start : text.rfind("\n", start, at) + 1 or start])
        start = text.find("\n", at) + 1 or len(text)
        at = text.find(match, start)
    return ("".join(kept) + text[start:]).rstrip() + "\n" if kept else None


def without_lines(text: str, unwanted: Collection[str]) -> str:
    """The text without these lines, given without blanks around; of the blank lines around one, one is enough."""
    kept: list[str] = []
    is_changed = is_gap = False
    for line in text.split("\n"):
        if line.strip() in unwanted:
            is_changed, is_gap = True, not any(kept[-1:])
        elif line.strip() or not is_gap:
            kept.append(line)
            is_gap = False
    if not is_changed:
        return text
    left = "\n".join(kept).rstrip("\n")
    return f"{left}\n" if left else ""


def cut_to_size(data: bytes, max_bytes: int) -> tuple[bytes, bytes]:
    """Split into (what goes to the archive, what stays): the newest whole lines that fit.

    One line that is longer than all is cut inside, between two characters, so that something always stays.
    """
    if len(data) <= max_bytes:
        return b"", data
    start = len(data) - max_bytes
    line = data.find(b"\n", start - 1) + 1
    if line and data[line:].strip():
        return data[:line], data[line:]
    while start < len(data) and data[start] & 0xC0 == 0x80:  # inside a character
        start += 1
    return data[:start], data[start:]


def version(data: bytes) -> str:
    """SHA-256 of a file's bytes, in hex."""
    return sha256(data).hexdigest()
