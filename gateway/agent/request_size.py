"""How much a request gives a model to read, at most."""

from __future__ import annotations

from gateway.agent.model import ModelRequest

_MESSAGE_TOKENS = 16
_IMAGE_TOKENS = 3_000
_BYTES_PER_TOKEN = 2  # fewer than in any language and any tokenizer that we know of, with room to spare in most


def most_input_tokens(request: ModelRequest) -> int:
    """More than any tokenizer makes of it, nearly always, and seldom more than three times as much."""
    texts = [request.system]
    for message in request.messages:
        texts.append(message.text)
        texts += [call.name + call.arguments for call in message.tool_calls]
    text_bytes = sum(map(_size_bytes, texts)) + sum(tool.size_bytes for tool in request.tools)
    images = sum(len(message.images) for message in request.messages)
    pieces = len(texts) + len(request.tools)
    return text_bytes // _BYTES_PER_TOKEN + pieces * _MESSAGE_TOKENS + images * _IMAGE_TOKENS


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
