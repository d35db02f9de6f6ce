"""Text for a terminal. What a model wrote is data: it may be read there, and must not control it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that print nothing of a chat need no models
    from gateway.sdk.models.chat import Choice

_UNREADABLE = {0x0000: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
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


def clean(text: str) -> str:
    """Replace what no file and no database keeps, NUL and halves of surrogate pairs, with U+FFFD."""
    return text.translate(_UNREADABLE)


# ---- choices --------------------------------------------------------------------------------------------------------


def numbered(choices: Sequence[Choice]) -> str:
    """The choices of an answer for a person at the keyboard, one line each."""
    width = len(str(len(choices)))
    lines = [f"  {number:>{width}}. {_named(choice)}" for number, choice in enumerate(choices, 1)]
    return "\n".join([*lines, "Type a number or a command."])


def listed(choices: Sequence[Choice]) -> str:
    """The choices for a pipe, where a number would mean nothing."""
    return "\n".join(f"- {_named(choice)}" for choice in choices)


def chosen(text: str, choices: Sequence[Choice]) -> str:
    """What is to be sent for what was typed: the command of the choice with this number, else the text itself."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(len(choices))) and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1].text
    return text


def _named(choice: Choice) -> str:
    """On one line, whatever is in it."""
    label = " ".join(neutralise(choice.label).split())
    command = " ".join(neutralise(choice.text).split())
    return f"{label} ({command})" if label else command
