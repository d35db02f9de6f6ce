"""The choices that an answer offers, in a terminal: numbered, taken by the number or by the command."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.cli.convert import Choice
from gateway.cli.chat_text import neutralise


def numbered(choices: Sequence[Choice]) -> str:
    """For a person at the keyboard, one line each."""
    width = len(str(len(choices)))
    lines = [f"  {number:>{width}}. {_named(choice)}" for number, choice in enumerate(choices, 1)]
    return "\n".join([*lines, "Type a number or a command."])


def listed(choices: Sequence[Choice]) -> str:
    """For a pipe, where a number would mean nothing."""
    return "\n".join(f"- {_named(choice)}" for choice in choices)


def chosen(text: str, choices: Sequence[Choice]) -> str:
    """What is to be sent for what was typed: the command of the choice with this number, else the text itself."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(len(choices))) and 1 <= int(text) <= len(choices):
        return f"/{choices[int(text) - 1].command}"
    return text


def _named(choice: Choice) -> str:
    """On one line, whatever is in it."""
    label = " ".join(neutralise(choice.label).split())
    command = " ".join(neutralise(f"/{choice.command}").split())
    return f"{label} ({command})" if label else command
