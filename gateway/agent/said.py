"""What a model has said, as a turn keeps it and goes on from it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain, count
from typing import Any

from gateway.agent.model import AsSent, ChatMessage
from gateway.domain.images import ModelImage
from gateway.tools.spec import ToolCall


def as_kept(message: ChatMessage) -> dict[str, Any]:
    """A message as JSON has it, with all that a provider demands back."""
    kept = ("role", "text", "tool_call_id")
    calls = [asdict(call) for call in message.tool_calls]
    images = [(image.media_type, base64.b64encode(image.data).decode()) for image in message.images]
    sent = None if message.as_sent is None else asdict(message.as_sent)
    return {**{name: getattr(message, name) for name in kept}, "tool_calls": calls, "images": images, "as_sent": sent}


def from_kept(kept: dict[str, Any]) -> ChatMessage:
    """What `as_kept` wrote."""
    calls = tuple(ToolCall(**call) for call in kept["tool_calls"])
    images = tuple(ModelImage(media_type=kind, data=base64.b64decode(data)) for kind, data in kept["images"])
    sent = None if kept["as_sent"] is None else AsSent(**kept["as_sent"])
    return ChatMessage(**{**kept, "tool_calls": calls, "images": images, "as_sent": sent})


def without_calls(message: ChatMessage) -> ChatMessage:
    """The last answer of a turn, which may call nothing."""
    text = message.text.strip() or "I stopped here: this took more steps than one answer is allowed."
    return ChatMessage(role="assistant", text=text)


def with_fresh_ids(message: ChatMessage, earlier: Sequence[ChatMessage]) -> ChatMessage:
    """Give a call another id where the model gave none or one that it used before, as some local servers do.

    An id must be unique in the whole request: the journal of tools goes by it, and some providers refuse doubles.
    """
    if not message.tool_calls:
        return message
    taken = {call.id for said in earlier for call in said.tool_calls} | {""}
    calls: list[ToolCall] = []
    for call in message.tool_calls:
        numbered = (f"{call.id or 'call'}.{number}" for number in count(2))
        fresh = next(name for name in chain([call.id], numbered) if name not in taken)
        taken.add(fresh)
        calls.append(replace(call, id=fresh))
    is_as_sent = tuple(calls) == message.tool_calls
    return replace(message, tool_calls=tuple(calls), as_sent=message.as_sent if is_as_sent else None)
