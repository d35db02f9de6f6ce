"""What `/tools` says: what the agent's tools did for a person lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.domain.visible import visible

if TYPE_CHECKING:
    from gateway.sdk.models.tools import ToolUse

SHOWN = 10
_LONGEST_CHARS = 120
_WORDS = {
    "begun": "runs now",
    "waiting": "waits for a yes",
    "done": "done",
    "failed": "failed",
    "refused": "not tried",
    "uncertain": "not known whether it took effect",
}


def tools_text(calls: Sequence[ToolUse]) -> str:
    """The last calls, the newest first."""
    if not calls:
        return "No tool was called for you lately."
    return "\n".join(
        f"- {call.at:%Y-%m-%d %H:%M} UTC, `{call.tool}`: {_WORDS[call.state]}{_with(call.arguments)}" for call in calls
    )


def _with(arguments: str) -> str:
    shown = visible(" ".join(arguments.split())).replace("`", "'")
    if shown in ("", "{}"):
        return ""
    return f", with `{shown if len(shown) <= _LONGEST_CHARS else shown[: _LONGEST_CHARS - 1] + '…'}`"
