"""How much a request gives a model to read, at most."""

from __future__ import annotations

from gateway.agent.model import ModelRequest, size_bytes

_MESSAGE_TOKENS = 16
_IMAGE_TOKENS = 3_000
_BYTES_PER_TOKEN = 2  # fewer than in any language and any tokenizer that we know of, with room to spare in most


def most_input_tokens(request: ModelRequest) -> int:
    """More than any tokenizer makes of it, nearly always, and seldom more than three times as much."""
    messages, tools = request.messages, request.tools
    read = [size_bytes(request.system), *(message.size_bytes for message in messages), *(t.size_bytes for t in tools)]
    pieces = len(read) + sum(len(message.tool_calls) for message in messages)
    images = sum(len(message.images) for message in messages)
    return sum(read) // _BYTES_PER_TOKEN + pieces * _MESSAGE_TOKENS + images * _IMAGE_TOKENS
