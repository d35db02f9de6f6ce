"""Which messages are commands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.messages import InboundMessage

# A name, perhaps the bot's own name behind it, and nothing or a blank after that: `/etc/passwd` is no command.
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:@\w+)?(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """`/name arguments`; the name in lower case, the arguments stripped."""

    name: str
    arguments: str


def parse_command(message: InboundMessage) -> ParsedCommand | None:
    """The command that the message is, None where it is talk for the agent."""
    if not message.is_trusted_text and message.command is None:
        return None  # what was forwarded or quoted is nobody's order
    text = f"/{message.command}" if message.command is not None else message.text.strip()
    found = _COMMAND.fullmatch(text)
    if found is None:
        return None
    return ParsedCommand(name=found[1].lower(), arguments=(found[2] or "").strip())
