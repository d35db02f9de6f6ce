"""The form of `/v1/chat/completions`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from gateway.web.openai.answers import Ended, Piece, Said, Working
from gateway.web.openai.errors import OpenAIError

KEEP_ALIVE = b": still working\n\n"
_END = b"data: [DONE]\n\n"


class Completion:
    """One answer, in this form.

    Args:
        created_s: when it began, in seconds since 1970.
        wants_usage: whether a stream ends with what was used.
    """

    def __init__(self, message: str, model: str, created_s: int, *, wants_usage: bool) -> None:
        self._head = {"id": f"chatcmpl-{message}", "created": created_s, "model": model}
        self._wants_usage = wants_usage

    def whole(self, ended: Ended) -> dict[str, Any]:
        """The answer at once."""
        message = {"role": "assistant", "content": ended.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(ended)}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage_of(ended)}

    async def stream(self, pieces: AsyncGenerator[Piece]) -> AsyncIterator[bytes]:
        """The answer as it grows."""
        async with contextlib.aclosing(pieces) as each:
            try:
                yield self._chunk({"role": "assistant", "content": ""})
                async for piece in each:
                    match piece:
                        case Working():
                            yield KEEP_ALIVE
                        case Said(text=text):
                            yield self._chunk({"content": text})
                        case Ended():
                            yield self._chunk({}, finish=_finish(piece))
                            if self._wants_usage:
                                yield self._frame(choices=[], usage=usage_of(piece))
            except OpenAIError as error:
                yield frame(error.body)
        yield _END

    def _chunk(self, delta: dict[str, str], finish: str | None = None) -> bytes:
        return self._frame(choices=[{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    def _frame(self, **more: Any) -> bytes:
        nothing = {"usage": None} if self._wants_usage else {}
        return frame({**self._head, "object": "chat.completion.chunk", **nothing, **more})


def _finish(ended: Ended) -> str:
    return "length" if ended.is_cut else "stop"


def usage_of(ended: Ended) -> dict[str, Any]:
    """What was used."""
    return {
        "prompt_tokens": ended.input_tokens,
        "completion_tokens": ended.output_tokens,
        "total_tokens": ended.input_tokens + ended.output_tokens,
        "prompt_tokens_details": {"cached_tokens": ended.cached_tokens},
    }


def frame(content: dict[str, Any], event: str | None = None) -> bytes:
    """One server-sent event."""
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {json.dumps(content, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
