"""The form of `/v1/responses`: its text part."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from gateway.web.openai.answers import Ended, Piece, Said, Working
from gateway.web.openai.completions import KEEP_ALIVE, frame
from gateway.web.openai.errors import OpenAIError


class ModelResponse:
    """One answer, in this form.

    Args:
        created_s: when it began, in seconds since 1970.
        behind: the message whose response came before.
    """

    def __init__(self, message: str, model: str, created_s: int, *, behind: str | None) -> None:
        self._id = f"msg_{message}"
        self._head: dict[str, Any] = {
            "id": f"resp_{message}",
            "object": "response",
            "created_at": created_s,
            "model": model,
            "previous_response_id": None if behind is None else f"resp_{behind}",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": False,
            "temperature": None,
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
        }

    def whole(self, ended: Ended) -> dict[str, Any]:
        """The answer at once."""
        usage = {
            "input_tokens": ended.input_tokens,
            "input_tokens_details": {"cached_tokens": ended.cached_tokens},
            "output_tokens": ended.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": ended.input_tokens + ended.output_tokens,
        }
        status = "incomplete" if ended.is_cut else "completed"
        why = {"incomplete_details": {"reason": "max_output_tokens"}} if ended.is_cut else {}
        return {**self._head, **why, "status": status, "output": [self._item(ended.text)], "usage": usage}

    async def stream(self, pieces: AsyncGenerator[Piece]) -> AsyncIterator[bytes]:
        """The answer as it grows."""
        numbers = itertools.count()

        def event(kind: str, **content: Any) -> bytes:
            return frame({"type": kind, "sequence_number": next(numbers), **content}, kind)

        begun = {**self._head, "status": "in_progress", "output": [], "usage": None}
        place = {"item_id": self._id, "output_index": 0, "content_index": 0}
        async with contextlib.aclosing(pieces) as each:
            try:
                yield event("response.created", response=begun)
                yield event("response.in_progress", response=begun)
                yield event("response.output_item.added", output_index=0, item=self._item(None))
                yield event("response.content_part.added", **place, part=_part(""))
                async for piece in each:
                    match piece:
                        case Working():
                            yield KEEP_ALIVE
                        case Said(text=text):
                            yield event("response.output_text.delta", **place, delta=text, logprobs=[])
                        case Ended(text=text):
                            yield event("response.output_text.done", **place, text=text, logprobs=[])
                            yield event("response.content_part.done", **place, part=_part(text))
                            yield event("response.output_item.done", output_index=0, item=self._item(text))
                            whole = self.whole(piece)
                            yield event(f"response.{whole['status']}", response=whole)
            except OpenAIError as error:
                failed = {"code": "server_error", "message": error.text}
                yield event("response.failed", response={**begun, "status": "failed", "error": failed})

    def _item(self, text: str | None) -> dict[str, Any]:
        """The message that the answer is; None: it is being written."""
        content, status = ([], "in_progress") if text is None else ([_part(text)], "completed")
        return {"id": self._id, "type": "message", "role": "assistant", "status": status, "content": content}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
