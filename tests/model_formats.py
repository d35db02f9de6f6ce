"""The two wire formats that `tests.model_server` speaks, written down from the vendors' documentation.

OpenAI chat completions
    request, answer: https://platform.openai.com/docs/api-reference/chat/create
    stream: https://platform.openai.com/docs/api-reference/chat-streaming (chunks, then `data: [DONE]`; the token
        counts in a chunk of their own, without choices, where `stream_options.include_usage` asks for it)
    errors: https://platform.openai.com/docs/guides/error-codes
    errors inside a stream: https://openrouter.ai/docs/api/reference/errors-and-debugging (an `error` beside the chunks)
Anthropic messages
    request, answer: https://platform.claude.com/docs/en/api/messages
    stream: https://platform.claude.com/docs/en/build-with-claude/streaming (named events,
        `ping` and `error` among them)
    errors: https://platform.claude.com/docs/en/api/errors
All read in November 2026.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

SIGNATURE = "c2lnbmVk"
Fault = Literal["cut", "end", "hang", "error"]
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call; `arguments` goes out as it is, well-formed or not."""

    name: str
    arguments: str = "{}"
    id: str = "call_1"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer, perhaps a broken one.

    Attributes:
        text: streamed a word at a time.
        reasoning: hidden text before the answer.
        finish: the wire's own reason for ending; None for the natural one, "" to send none.
        fault: what happens to the stream after `fault_after` content events: the connection is cut, the body ends
            cleanly but early, nothing more comes, or an error is sent inside the stream.
        cached_tokens: of the input, what came from the cache.
        written_tokens: of the input, what was written to it.
        drip_s: the time between two content events.
        rest: what comes after `fault_after` content events waits until it is set.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    input_tokens: int = 10
    output_tokens: int = 5
    cached_tokens: int = 0
    written_tokens: int = 0
    finish: str | None = None
    fault: Fault | None = None
    fault_after: int = 1
    drip_s: float = 0.0
    rest: asyncio.Event | None = None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An error instead of an answer; `code` and `type` are the vendor's own words."""

    status: int
    message: str = "no"
    code: str | None = None
    type: str | None = None
    retry_after: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hang:
    """The request is read, and nothing comes back."""


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """A 200 whose body is not of the format, as a broken proxy sends it."""

    body: str = "<html>It works!</html>"
    media_type: str = "text/html"


Step = Answer | Failure | Hang | Garbage


class WireFormat(Protocol):
    """How one vendor says things."""

    name: str

    def problem(self, body: Json, headers: dict[str, str]) -> str | None:
        """What the vendor would refuse with a 400."""

    def last_words(self, body: Json) -> str:
        """What the last message says."""

    def error(self, failure: Failure) -> Json:
        """The body of an error."""

    def whole(self, answer: Answer, model: str) -> Json:
        """An answer that is not streamed."""

    def head(self, answer: Answer, model: str) -> Iterator[str]:
        """Server-sent events before the content."""

    def content(self, answer: Answer, model: str) -> Iterator[str]:
        """Server-sent events with the content."""

    def tail(self, answer: Answer, model: str, body: Json) -> Iterator[str]:
        """Server-sent events after the content."""

    def stream_error(self) -> str:
        """A server-sent event in place of the rest."""


def pieces(text: str) -> list[str]:
    """Words with the space before them."""
    return [word if index == 0 else f" {word}" for index, word in enumerate(text.split(" "))] if text else []


class OpenAIFormat:
    """Chat completions."""

    name = "openai"

    def problem(self, body: Json, _: dict[str, str]) -> str | None:
        """Every tool message answers a call before it, and every call is answered before anything else is said."""
        if not isinstance(body.get("model"), str) or not body.get("messages"):
            return "you must provide a model and messages"
        open_ids: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_ids:
                    return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
                open_ids.remove(message["tool_call_id"])
            elif open_ids:
                return f"tool_call_ids did not have response messages: {sorted(open_ids)}"
            open_ids |= {call["id"] for call in message.get("tool_calls") or ()}
        return f"tool_call_ids did not have response messages: {sorted(open_ids)}" if open_ids else None

    def last_words(self, body: Json) -> str:
        content = body["messages"][-1]["content"]
        return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)

    def error(self, failure: Failure) -> Json:
        return {"error": {"message": failure.message, "type": failure.type, "param": None, "code": failure.code}}

    def whole(self, answer: Answer, model: str) -> Json:
        message: Json = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = [self._call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(answer)}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [choice],
            "usage": self._usage(answer),
        }

    def head(self, _answer: Answer, model: str) -> Iterator[str]:
        yield ": keep-alive\n\n"  # a comment, as some gateways send while they wait
        yield self._chunk(model, {"role": "assistant", "content": ""})

    def content(self, answer: Answer, model: str) -> Iterator[str]:
        for piece in pieces(answer.reasoning):
            yield self._chunk(model, {"reasoning_content": piece})
        for piece in pieces(answer.text):
            yield self._chunk(model, {"content": piece})
        for index, call in enumerate(answer.calls):
            opening = {"index": index, **self._call(call)}
            opening["function"]["arguments"] = ""
            yield self._chunk(model, {"tool_calls": [opening]})
            half = len(call.arguments) // 2
            for part in (call.arguments[:half], call.arguments[half:]):
                yield self._chunk(model, {"tool_calls": [{"index": index, "function": {"arguments": part}}]})

    def tail(self, answer: Answer, model: str, body: Json) -> Iterator[str]:
        if answer.finish != "":
            yield self._chunk(model, {}, self._finish(answer))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield self._event({**self._frame(model), "choices": [], "usage": self._usage(answer)})
        yield "data: [DONE]\n\n"

    def stream_error(self) -> str:
        return self._event({"error": {"message": "the server had an error", "type": "server_error", "code": None}})

    def _finish(self, answer: Answer) -> str:
        return answer.finish or ("tool_calls" if answer.calls else "stop")

    def _usage(self, answer: Answer) -> Json:
        total = answer.input_tokens + answer.output_tokens
        usage = {"prompt_tokens": answer.input_tokens, "completion_tokens": answer.output_tokens, "total_tokens": total}
        cache = {"cached_tokens": answer.cached_tokens, "cache_write_tokens": answer.written_tokens}
        return {**usage, "prompt_tokens_details": cache}

    def _call(self, call: Call) -> Json:
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

    def _frame(self, model: str) -> Json:
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}

    def _chunk(self, model: str, delta: Json, finish: str | None = None) -> str:
        return self._event(
            {**self._frame(model), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}
        )

    def _event(self, data: Json) -> str:
        return f"data: {json.dumps(data)}\n\n"


class AnthropicFormat:
    """Messages."""

    name = "anthropic"

    def problem(self, body: Json, headers: dict[str, str]) -> str | None:
        """The version is named, the first word is the user's, and results follow their calls at once."""
        if "anthropic-version" not in headers:
            return "anthropic-version: header is required"
        if not isinstance(body.get("max_tokens"), int):
            return "max_tokens: Field required"
        if not body.get("messages") or body["messages"][0]["role"] != "user":
            return "messages: first message must use the user role"
        open_ids: set[str] = set()
        for message in body["messages"]:
            blocks = (
                message["content"]
                if isinstance(message["content"], list)
                else [{"type": "text", "text": message["content"]}]
            )
            if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
                return "messages: text content blocks must contain non-whitespace text"
            results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
            if results != open_ids:
                return "messages: each tool_use must have a corresponding tool_result in the next message"
            open_ids = {block["id"] for block in blocks if block["type"] == "tool_use"}
        return "messages: tool_use without tool_result" if open_ids else self._problem_of_thinking(body)

    def _problem_of_thinking(self, body: Json) -> str | None:
        """https://platform.claude.com/docs/en/build-with-claude/extended-thinking (read 2026-11)."""
        thinking = body.get("thinking") or {}
        if thinking.get("type") != "enabled":
            return None
        if not 1_024 <= thinking["budget_tokens"] < body["max_tokens"]:
            return "`max_tokens` must be greater than `thinking.budget_tokens`, which is at least 1024"
        for message in body["messages"]:
            for block in message["content"]:
                if block["type"] == "thinking" and block["signature"] != SIGNATURE:
                    return "messages: Invalid `signature` in `thinking` block"
        under_way = []
        for message in reversed(body["messages"]):
            if message["role"] == "user" and message["content"][0]["type"] != "tool_result":
                break
            under_way.append(message)
        if any(each["role"] == "assistant" and each["content"][0]["type"] != "thinking" for each in under_way):
            return "messages: Expected `thinking` or `redacted_thinking`, but found `tool_use`"
        return None

    def last_words(self, body: Json) -> str:
        content = body["messages"][-1]["content"]
        if isinstance(content, str):
            return content
        said = [block.get("text") or block.get("content") or "" for block in content]
        return " ".join(text if isinstance(text, str) else text[0]["text"] for text in said)

    def error(self, failure: Failure) -> Json:
        return {"type": "error", "error": {"type": failure.type or "api_error", "message": failure.message}}

    def whole(self, answer: Answer, model: str) -> Json:
        content: list[Json] = [{"type": "text", "text": answer.text}] if answer.text else []
        content.extend(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
            for call in answer.calls
        )
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": self._finish(answer),
            "stop_sequence": None,
            "usage": {**self._read(answer), "output_tokens": answer.output_tokens},
        }

    def head(self, answer: Answer, model: str) -> Iterator[str]:
        message: Json = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**self._read(answer), "output_tokens": 1},
        }
        yield self._event("message_start", message=message)
        yield self._event("ping")

    def content(self, answer: Answer, _model: str) -> Iterator[str]:
        index = 0
        if answer.reasoning:
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(answer.reasoning)]
            deltas.append({"type": "signature_delta", "signature": SIGNATURE})
            yield from self._block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
            index += 1
        if answer.text:
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(answer.text)]
            yield from self._block(index, {"type": "text", "text": ""}, deltas)
            index += 1
        for number, call in enumerate(answer.calls, index):
            half = len(call.arguments) // 2
            deltas = [
                {"type": "input_json_delta", "partial_json": part}
                for part in ("", call.arguments[:half], call.arguments[half:])
            ]
            yield from self._block(number, {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas)

    def tail(self, answer: Answer, _model: str, _body: Json) -> Iterator[str]:
        if answer.finish != "":
            delta = {"stop_reason": self._finish(answer), "stop_sequence": None}
            yield self._event("message_delta", delta=delta, usage={"output_tokens": answer.output_tokens})
        yield self._event("message_stop")

    def _read(self, answer: Answer) -> Json:
        """The three parts of the input."""
        return {
            "input_tokens": answer.input_tokens - answer.cached_tokens - answer.written_tokens,
            "cache_read_input_tokens": answer.cached_tokens,
            "cache_creation_input_tokens": answer.written_tokens,
        }

    def stream_error(self) -> str:
        return self._event("error", error={"type": "overloaded_error", "message": "Overloaded"})

    def _finish(self, answer: Answer) -> str:
        return answer.finish or ("tool_use" if answer.calls else "end_turn")

    def _block(self, index: int, block: Json, deltas: list[Json]) -> Iterator[str]:
        """The opening belongs to the first delta, the end to the last, so that content events are pieces of text."""
        opening = self._event("content_block_start", index=index, content_block=block)
        for number, delta in enumerate(deltas):
            event = self._event("content_block_delta", index=index, delta=delta)
            end = self._event("content_block_stop", index=index) if number == len(deltas) - 1 else ""
            yield (opening if number == 0 else "") + event + end

    def _event(self, kind: str, **data: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"
