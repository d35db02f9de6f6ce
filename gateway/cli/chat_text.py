"""Text for a terminal. What a model wrote is data: it may be read there, and must not control it."""

from __future__ import annotations

_VISIBLE = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}  # ESC becomes ␛, and so on
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")  # C1, of which 0x9B begins a sequence as `ESC [` does
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # cannot be written at all
    # turn the direction of what follows; their ends are of no use without them
    | {code: f"⟨U+{code:04X}⟩" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)


def neutralise(text: str) -> str:
    """Make every character visible, and so harmless, that controls the terminal or turns the direction of a text."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)
