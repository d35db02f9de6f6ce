"""One piece of a message, as Slack's methods take it, and how it is known again. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from adapters.slack import render
from adapters.slack.convert import BUTTON, Home
from gateway.messages import OutboundMessage

EVENT_TYPE = "ethos_message"
_MOST_BUTTONS = 25  # of one block: https://docs.slack.dev/reference/block-kit/blocks/actions-block
_LABEL_CHARS = 75
_ESCAPE = re.compile(r"&(?:amp;)*(?:amp|lt|gt);")


class Content:
    """One piece of a message."""

    def __init__(self, message: OutboundMessage, text: str, number: int, *, is_final: bool, has_actions: bool) -> None:
        self._text = text
        self._actions = message.actions[:_MOST_BUTTONS] if has_actions else ()
        self.metadata = metadata_of(message.id, number, is_final=is_final)

    @property
    def markdown(self) -> str:
        """The text as Slack may read it."""
        return render.harmless(self._text)

    def as_markdown(self) -> dict[str, Any]:
        """Slack itself reads the Markdown. With buttons it must be a block."""
        if not self._actions:
            return {"markdown_text": self.markdown, "metadata": self.metadata}
        blocks = [{"type": "markdown", "text": self.markdown}, *self._buttons()]
        return {"blocks": blocks, "text": render.plain(self._text), "metadata": self.metadata}

    def as_plain(self) -> dict[str, Any]:
        """Without any markup."""
        return {"text": render.plain(self._text), "metadata": self.metadata}

    def as_end(self, rest: str) -> dict[str, Any]:
        """What is missing from a stream whose text is the beginning of ours."""
        end: dict[str, Any] = {"metadata": self.metadata}
        if rest:
            end["markdown_text"] = rest
        if self._actions:
            end["blocks"] = self._buttons()
        return end

    def _buttons(self) -> list[dict[str, Any]]:
        buttons = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": action.label[:_LABEL_CHARS]},
                "action_id": f"{BUTTON}{number}",
                "value": action.id,
            }
            for number, action in enumerate(self._actions)
        ]
        return [{"type": "actions", "elements": buttons}]


def metadata_of(message_id: str, number: int, *, is_final: bool) -> dict[str, Any]:
    """What a piece is known by: https://docs.slack.dev/messaging/message-metadata."""
    payload = {"outbox_id": message_id, "piece": number, "is_final": is_final}
    return {"event_type": EVENT_TYPE, "event_payload": payload}


def piece_in(entry: Mapping[str, Any], message_id: str, home: Home | None) -> int | None:
    """Which piece of the message an entry is; somebody else's entry is none, whatever its metadata says."""
    metadata = entry.get("metadata") or {}
    payload = metadata.get("event_payload") or {}
    is_it = metadata.get("event_type") == EVENT_TYPE and payload.get("outbox_id") == message_id
    return int(payload.get("piece", 0)) if is_it and _is_ours(entry, home) else None


def is_nameless_stream(entry: Mapping[str, Any], home: Home | None) -> bool:
    """A stream of ours that nobody stopped: metadata can be given at its end only, so it says not whose it is."""
    has_name = (entry.get("metadata") or {}).get("event_type") == EVENT_TYPE
    return "streaming_state" in entry and not has_name and _is_ours(entry, home)


def is_nameless(entry: Mapping[str, Any], home: Home | None) -> bool:
    """A message of ours whose metadata we are not shown, for want of a scope."""
    return _is_ours(entry, home) and not entry.get("metadata") and "streaming_state" not in entry


def says(entry: Mapping[str, Any], text: str) -> bool:
    """The entry has the words of the Markdown, as far as can be seen through what Slack makes of it."""
    words = _words(render.plain(text))
    return bool(words) and words == _words(str(entry.get("text") or ""))


def _words(escaped: str) -> str:
    return re.sub(r"[\W_]+", "", _ESCAPE.sub("", escaped)).lower()


def _is_ours(entry: Mapping[str, Any], home: Home | None) -> bool:
    return home is not None and entry.get("user") == home.user
