"""Anthropic's messages.

https://platform.claude.com/docs/en/api/messages and /build-with-claude/streaming (read 2026-11).
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

from gateway.agent.model import ChatMessage, ModelRequest
from gateway.agent.providers.format import (
    CallSaid,
    Finish,
    Json,
    Remembered,
    Said,
    StreamFailed,
    Tokens,
    arguments_object,
    count,
    text_of,
)
from gateway.agent.providers.http import as_json
from gateway.agent.providers.models import Endpoint
from gateway.agent.providers.openai import EMPTY_MESSAGE
from gateway.domain.personalities.files import Thinking
from gateway.tools.spec import ToolCall, ToolSpec

# The format always wants a limit. The large ones are the models' own, which no request may exceed; families that refuse
# a request whose input and limit exceed the window together get little. https://platform.claude.com/docs/en/
# about-claude/models/overview (read 2026-11)
_LIMITS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (4_096, ("claude-2", "claude-3", "claude-4-", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2")),
    (4_096, ("claude-sonnet-4-0", "claude-sonnet-4-2", "claude-opus-4@", "claude-sonnet-4@")),
    (64_000, ("claude-haiku-4-5", "claude-opus-4-5", "claude-sonnet-4-5")),
    (128_000, ("claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-5-5")),
    (128_000, ("claude-fable-5", "claude-mythos-5", "claude-opus-5", "claude-sonnet-5")),
)
_LIMIT_OF_OTHERS = 16_384
_SHORT_NAMES = frozenset({"claude-opus-4", "claude-sonnet-4"})
# What the oldest models that think may say, thoughts among it.
_LIMIT_WITH_THOUGHTS = 32_000
# Families that are told how many tokens they may think; all newer ones are told how hard they shall try, and refuse the
# number. https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking and /effort (read 2026-11)
_COUNT_THOUGHTS = tuple(family for _, families in _LIMITS[:3] for family in families)
_THOUGHTS: Mapping[Thinking, int] = {"low": 2_048, "medium": 8_192, "high": 24_576}
_FEWEST_THOUGHTS = 1_024
_OFF: Json = {"thinking": {"type": "disabled"}}
# Breakpoints after the tools, after the system prompt, in front of the newest message, behind which the next turn's
# request may differ, and, by the mark of the whole request, at the end of the conversation. Four are the most.
# https://platform.claude.com/docs/en/build-with-claude/prompt-caching (read 2026-11)
_CACHED: Json = {"type": "ephemeral"}
_CACHED_END = b',"cache_control":{"type":"ephemeral"}}'
_FINISHES: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "withheld",
}
_THOUGHT_BLOCKS = ("thinking", "redacted_thinking")
# Where a stream counts, and what. The counts of the input come in parts.
_COUNTED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


class AnthropicFormat:
    """Implements `WireFormat`."""

    path = "/v1/messages"
    headers: Mapping[str, str] = {"anthropic-version": "2026-10-21"}

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._limit = _usual_limit(endpoint.model)
        is_claude = endpoint.model.startswith("claude-") and endpoint.model not in _SHORT_NAMES
        self._counts_thoughts = not is_claude or endpoint.model.startswith(_COUNT_THOUGHTS)
        self._most = self._limit if self._limit > _LIMIT_OF_OTHERS else sys.maxsize
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")

    def body(self, request: ModelRequest, remembered: Remembered) -> bytes:
        """The request as JSON."""
        head: Json = {
            "model": self._endpoint.model,
            "max_tokens": self._max_tokens(request),
            "stream": True,
            "cache_control": _CACHED,
            **self._thinking(request, remembered),
        }
        if request.settled:
            head["system"] = [{"type": "text", "text": request.settled, "cache_control": _CACHED}]
        parts = [as_json(head)[:-1]]
        if request.tools:
            tools = self._tools  # once: another request may be written down in a thread
            if tools[0] != request.tools:
                tools = self._tools = (request.tools, as_json(_tools(request.tools)))
            choice = b"auto" if request.may_call_tools else b"none"
            parts += [b',"tool_choice":{"type":"', choice, b'"},"tools":', tools[1]]
        messages = self._messages(request, remembered)
        return b"".join([*parts, b',"messages":[', b",".join(messages), b"]}"])

    def _max_tokens(self, request: ModelRequest) -> int:
        """Of an answer, with what is thought before it."""
        asked = request.max_output_tokens
        if asked is not None:
            return min(asked, self._most)
        thoughts = _THOUGHTS.get(request.thinking, 0) if request.thinking and self._counts_thoughts else 0
        return min(self._limit + thoughts, max(self._limit, _LIMIT_WITH_THOUGHTS))

    def _thinking(self, request: ModelRequest, remembered: Remembered) -> Json:
        level = request.thinking
        if level is None:
            return {}
        if level == "off":
            return _OFF
        if not self._counts_thoughts:
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}
        # Half of the answer's room at most, or there is none for words.
        thoughts = min(_THOUGHTS[level], self._max_tokens(request) // 2)
        is_possible = thoughts >= _FEWEST_THOUGHTS and _begins_with_thoughts(request.messages, remembered)
        return {"thinking": {"type": "enabled", "budget_tokens": thoughts}} if is_possible else _OFF

    def reader(self) -> AnthropicReader:
        """For one answer."""
        return AnthropicReader()

    def _messages(self, request: ModelRequest, remembered: Remembered) -> Iterable[bytes]:
        """What one side said without a word between is one message, as the results of parallel calls have to be."""
        newest = request.newest
        rendered = [self._blocks(message, remembered) for message in request.messages]
        if newest > 0 and rendered[newest - 1]:  # its last block, which is text, a call or a result
            rendered[newest - 1] = b"".join((rendered[newest - 1][:-1], _CACHED_END))
        if newest >= 0 and request.late:
            rendered[newest] = b",".join((rendered[newest], as_json({"type": "text", "text": request.late})))
        numbered = groupby(range(len(rendered)), key=lambda at: request.messages[at].role == "assistant")
        for is_assistant, said in numbered:
            blocks = b",".join(filter(None, (rendered[at] for at in said)))
            if blocks:
                role = b"assistant" if is_assistant else b"user"
                yield b"".join((b'{"role":"', role, b'","content":[', blocks, b"]}"))

    def _blocks(self, message: ChatMessage, remembered: Remembered) -> bytes:
        """Its blocks of content, with commas between."""
        if message.tool_calls:
            said = remembered(message)
            if said is not None:
                return _joined(said["content"])
        if message.images and self._endpoint.sees_images:
            return _joined(_with_images(message))
        return message.rendered(_render)


class AnthropicReader:
    """Reads one stream."""

    def __init__(self) -> None:
        self.said = Said()
        self._blocks: dict[object, Json] = {}
        self._calls: dict[object, CallSaid] = {}
        self._counted: dict[str, int] = {}

    def read(self, event: Json) -> str | None:
        """The text that an event adds."""
        match event.get("type"):
            case "error":
                raise StreamFailed(event.get("error"))
            case "message_start":
                self._count((event.get("message") or {}).get("usage"))
                return ""
            case "content_block_start":
                return self._start(event.get("index"), dict(event.get("content_block") or {}))
            case "content_block_delta":
                return self._delta(event.get("index"), event.get("delta") or {})
            case "message_delta":
                self._count(event.get("usage"))
                self._finish(event.get("delta") or {})
                return ""
            case _:  # a ping among them
                return None

    def end(self) -> str:
        """Nothing is held back."""
        return ""

    def handed_back(self, calls: tuple[ToolCall, ...]) -> Json:
        """All blocks in their order, the signed reasoning among them."""
        ids = iter(calls)
        content = []
        for block in self._blocks.values():
            if block["type"] == "tool_use":
                content.append(_use(next(ids)))
            elif block["type"] != "text" or block["text"].strip():
                content.append(block)
        return {"role": "assistant", "content": content}

    def _start(self, index: object, block: Json) -> str:
        kind = block.get("type")
        if kind == "tool_use":
            call = self._calls[index] = CallSaid(id=text_of(block.get("id")), name=text_of(block.get("name")))
            if block.get("input"):
                call.arguments.append(as_json(block["input"]).decode())
            self.said.calls.append(call)
        if kind in {"tool_use", "text", *_THOUGHT_BLOCKS}:
            self._blocks[index] = block
        if kind == "text":
            block["text"] = text_of(block.get("text"))
            self.said.text.append(block["text"])
            return str(block["text"])
        return ""

    def _delta(self, index: object, delta: Json) -> str:
        match delta.get("type"):
            case "text_delta":
                text = text_of(delta.get("text"))
                self._blocks[index]["text"] += text
                self.said.text.append(text)
                return text
            case "thinking_delta":
                block = self._blocks[index]
                block["thinking"] = text_of(block.get("thinking")) + text_of(delta.get("thinking"))
            case "signature_delta":
                self._blocks[index]["signature"] = text_of(delta.get("signature"))
            case "input_json_delta":
                self._calls[index].arguments.append(text_of(delta.get("partial_json")))
        return ""

    def _finish(self, delta: Json) -> None:
        if reason := delta.get("stop_reason"):
            self.said.is_whole = True
            self.said.finish = _FINISHES.get(reason, "stop")
        if details := delta.get("stop_details"):
            self.said.refusal = text_of(details.get("explanation"))

    def _count(self, usage: object) -> None:
        """The counts of an event replace those before it."""
        if isinstance(usage, dict):
            self._counted |= {name: count(usage[name]) for name in _COUNTED if usage.get(name) is not None}
        fresh, cached, written, output = (self._counted.get(name, 0) for name in _COUNTED)
        self.said.tokens = Tokens(input=fresh + cached + written, output=output, cached=cached, written=written)


def _usual_limit(model: str) -> int:
    """Of the tokens of one answer, where less is not asked for."""
    if model in _SHORT_NAMES:
        return _LIMITS[0][0]
    return next((limit for limit, families in _LIMITS if model.startswith(families)), _LIMIT_OF_OTHERS)


def _begins_with_thoughts(messages: Sequence[ChatMessage], remembered: Remembered) -> bool:
    """Whether each step of the turn under way does; a model that counts thoughts refuses to think in the midst of one.

    Those of another model have none that it can read: a fallback may have made the first call of a turn.
    """
    under_way = takewhile(lambda message: message.role != "user", reversed(messages))
    steps = [remembered(message) for message in under_way if message.tool_calls]
    return all(step is not None and step["content"][0]["type"] in _THOUGHT_BLOCKS for step in steps)


def _render(message: ChatMessage) -> bytes:
    """Blocks of a message of which only our own words matter; none for an empty one of the assistant."""
    blocks: list[Json] = []
    if message.role == "tool":
        result: Json = {"type": "tool_result", "tool_use_id": _id(message.tool_call_id or "")}
        blocks.append({**result, "content": message.text} if message.text.strip() else result)
    elif message.text.strip():
        blocks.append({"type": "text", "text": message.text})
    elif message.role == "user":
        blocks.append({"type": "text", "text": EMPTY_MESSAGE})
    blocks += [_use(call) for call in message.tool_calls]
    return _joined(blocks)


def _joined(blocks: list[Json]) -> bytes:
    return as_json(blocks)[1:-1]


def _use(call: ToolCall) -> Json:
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": arguments_object(call.arguments)}


def _id(call_id: str) -> str:
    """Other servers' ids may hold what this format refuses."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)


def _with_images(message: ChatMessage) -> list[Json]:
    blocks: list[Json] = [{"type": "text", "text": message.text if message.text.strip() else EMPTY_MESSAGE}]
    for image in message.images:
        data = base64.b64encode(image.data).decode()
        blocks.append({"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": data}})
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": _id(message.tool_call_id or ""), "content": blocks}]
    return blocks


def _tools(specs: Sequence[ToolSpec]) -> list[Json]:
    tools: list[dict[str, Any]] = [
        {"name": spec.name, "description": spec.description, "input_schema": dict(spec.parameters)} for spec in specs
    ]
    tools[-1]["cache_control"] = _CACHED
    return tools
