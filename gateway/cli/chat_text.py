"""Text for a terminal. What a model wrote is data: it may be read there, and must not control it."""

from __future__ import annotations

_VISIBLE = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}  # ESC becomes ␛, and so on
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")  # C1, of which 0x9B begins a sequence as `ESC [` does
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # cannot be written at all
)


def neutralise(text: str) -> str:
    """Make every control character but newline and tab visible, and so harmless."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)
