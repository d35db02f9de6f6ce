"""Which messages are commands, and how a command is typed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.messages import Capabilities, InboundMessage

# A name, perhaps the bot's own name behind it, and nothing or a blank after that: `/etc/passwd` is no command.
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:@\w+)?(?:\s+(.*))?", re.DOTALL)
_NAMED = re.compile(r"```.*?```|(?<!`)`/([a-z][a-z-]*(?: [^`\n]*)?)`(?!`)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """`/name arguments`; the name in lower case, the arguments stripped."""

    name: str
    arguments: str


def parse_command(message: InboundMessage) -> ParsedCommand | None:
    """The command that the message is, None where it is talk for the agent."""
    if not message.is_trusted_text and message.command is None:
        return None  # what was forwarded or quoted is not an order
    text = f"/{message.command}" if message.command is not None else message.text.strip()
    found = _COMMAND.fullmatch(text)
    if found is None:
        return None
    return ParsedCommand(name=found[1].lower(), arguments=(found[2] or "").strip())


def is_command(text: str) -> bool:
    """Whether a person's own text is a command."""
    return _COMMAND.fullmatch(text.strip()) is not None


def typed(command: str, capabilities: Capabilities, *, is_direct: bool = True) -> str:
    """What a person types on a channel for a command, to be shown to them.

    Args:
        command: `name arguments`, without a slash.
        capabilities: of the channel on which the person is to type it.
        is_direct: in a direct chat.
    """
    form = capabilities.command_form if is_direct else capabilities.group_command_form or capabilities.command_form
    return form.replace("{command}", command)


def in_form(text: str, capabilities: Capabilities | None, *, is_direct: bool = True) -> str:
    """Our own words, with each command that they name, `` `/link yes` ``, as it is typed where they are read.

    What stands in a fence stays as it is. None for a channel that is not known now.
    """
    if capabilities is None or typed("x", capabilities, is_direct=is_direct) == "/x":
        return text
    return _NAMED.sub(
        lambda named: f"`{typed(named[1], capabilities, is_direct=is_direct)}`" if named[1] else named[0], text
    )
