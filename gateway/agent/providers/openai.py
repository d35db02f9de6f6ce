"""OpenAI's chat completions, as OpenAI and everybody compatible with it speak them.

https://platform.openai.com/docs/api-reference/chat/create and /chat-streaming (read 2026-11). Compatible servers differ
where the page says so or says nothing; what is known of them stands where it is handled.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any
from urllib.parse import urlsplit

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
from gateway.domain.images import ModelImage
from gateway.domain.personalities.files import Thinking
from gateway.tools.spec import ToolCall, ToolSpec

EMPTY_MESSAGE = "(empty message)"  # both formats refuse an empty one

# Where reasoning stands: `reasoning` at Ollama, vLLM and OpenRouter, `reasoning_content` at DeepSeek and Moonshot.
# https://api-docs.deepseek.com/guides/reasoning_model, https://openrouter.ai/docs/use-cases/reasoning-tokens (2026-11)
_REASONING = ("reasoning", "reasoning_content")
# Hosts with a switch of their own, besides how much. https://api-docs.deepseek.com/guides/thinking_mode,
# https://docs.z.ai/guides/capabilities/thinking-mode, https://platform.moonshot.ai/docs (read 2026-11)
_SWITCHED = ("deepseek.com", "z.ai", "bigmodel.cn", "moonshot.ai", "moonshot.cn")
_FINISHES: dict[str, Finish] = {"length": "length", "content_filter": "withheld", "error": "broken"}


class OpenAIFormat:
    """Implements `WireFormat`."""

    path = "/chat/completions"
    headers: Mapping[str, str] = {}

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        # `max_tokens` is what every compatible server knows; only the newer models of OpenAI itself refuse it.
        host = urlsplit(endpoint.url).hostname or ""
        is_openai = host.endswith(("openai.com", "azure.com"))
        self._is_switched = host.endswith(_SWITCHED)
        self._limit_name = "max_completion_tokens" if is_openai else "max_tokens"
        self._role = "user" if endpoint.model.startswith("o1-mini") else "system"  # it knows no system prompt
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")
        self._reasoning_field: str | None = None  # the one that this server uses, once it is known

    def body(self, request: ModelRequest, remembered: Remembered) -> bytes:
        """The request as JSON."""
        head: Json = {"model": self._endpoint.model, "stream": True, "stream_options": {"include_usage": True}}
        if request.max_output_tokens is not None:
            head[self._limit_name] = request.max_output_tokens
        head |= self._thinking(request.thinking)
        parts = [as_json(head)[:-1]]
        if request.tools:
            tools = self._tools  # once: another request may be written down in a thread
            if tools[0] != request.tools:
                tools = self._tools = (request.tools, as_json([_tool(spec) for spec in request.tools]))
            choice = b"auto" if request.may_call_tools else b"none"
            parts += [b',"tool_choice":"', choice, b'","tools":', tools[1]]
        messages = [as_json({"role": self._role, "content": request.settled})] if request.settled else []
        messages += self._messages(request, remembered)
        return b"".join([*parts, b',"messages":[', b",".join(messages), b"]}"])

    def reader(self) -> OpenAIReader:
        """For one answer."""
        return OpenAIReader(self)

    def note_reasoning(self, field: str) -> None:
        """The server reasons, and says so in this field."""
        self._reasoning_field = field

    def _thinking(self, level: Thinking | None) -> Json:
        """`none` is known to the newer models, as low, medium and high to all that think.

        https://platform.openai.com/docs/guides/reasoning, https://docs.ollama.com/api/openai-compatibility (read
        2026-11)
        """
        if level is None:
            return {}
        if not self._is_switched:
            return {"reasoning_effort": "none" if level == "off" else level}
        if level == "off":
            return {"thinking": {"type": "disabled"}}
        return {"thinking": {"type": "enabled"}, "reasoning_effort": level}

    def _messages(self, request: ModelRequest, remembered: Remembered) -> Iterable[bytes]:
        messages, newest, late = request.messages, request.newest, request.late
        for at, message in enumerate(messages):
            if message.tool_calls and at > newest:
                said = remembered(message) or _said(message)
                if self._reasoning_field is not None:
                    # DeepSeek refuses a call of the turn under way without the field, once it reasons.
                    said.setdefault(self._reasoning_field, "")
                yield as_json(said)
            elif at == newest and late and not (message.images and self._endpoint.sees_images):
                yield as_json({"role": "user", "content": f"{message.text.strip() or EMPTY_MESSAGE}\n\n{late}"})
            elif message.role == "user" and message.images and self._endpoint.sees_images:
                behind = [{"type": "text", "text": late}] if at == newest and late else []
                yield as_json({"role": "user", "content": [*_with_images(message), *behind]})
            elif message.role != "assistant" or message.text.strip() or message.tool_calls:
                yield message.rendered(_render)
            is_last_result = message.role == "tool" and (at + 1 == len(messages) or messages[at + 1].role != "tool")
            if is_last_result and self._endpoint.sees_images:
                yield from _shown_behind(messages[: at + 1])


class OpenAIReader:
    """Reads one stream."""

    def __init__(self, of: OpenAIFormat) -> None:
        self.said = Said()
        self._format = of
        self._reasoning: dict[str, list[str]] = {}
        self._by_index: dict[object, CallSaid] = {}
        self._tags = ThinkTags()

    def read(self, event: Json) -> str | None:
        """The text that a chunk adds."""
        if event.get("error"):
            raise StreamFailed(event["error"])
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._count(usage)
        choices = event.get("choices")  # empty in the last chunk, null in some servers' odd ones
        if not choices:
            return None
        finish, delta = choices[0].get("finish_reason"), choices[0].get("delta")
        if finish:
            self.said.is_whole = True
            self.said.finish = self.said.finish if self.said.refusal else _FINISHES.get(finish, "stop")
        return self._delta(delta) if delta else ""  # Azure's filters send null

    def end(self) -> str:
        """What looked like the beginning of a tag."""
        text = self._tags.end()
        self.said.text.append(text)
        return text

    def handed_back(self, calls: tuple[ToolCall, ...]) -> Json:
        """With the reasoning where the server had it: in its field, or between tags in the text."""
        text = "".join(self.said.text)
        if self._tags.thought:
            text = f"<think>\n{self._tags.thought.strip()}\n</think>\n\n{text}"
        message: Json = {"role": "assistant", "content": text if text.strip() else None}
        message |= {name: "".join(pieces) for name, pieces in self._reasoning.items()}
        message["tool_calls"] = [_call(call) for call in calls]
        for sent, said in zip(message["tool_calls"], self.said.calls, strict=True):
            if said.extra is not None:
                sent["extra_content"] = said.extra
        return message

    def _delta(self, delta: Json) -> str:
        if refusal := delta.get("refusal"):
            self.said.refusal += text_of(refusal)
            self.said.finish, self.said.is_whole = "withheld", True
            return ""
        for name in _REASONING:
            if isinstance(reasoning := delta.get(name), str) and reasoning:
                self._reasoning.setdefault(name, []).append(reasoning)
                self._format.note_reasoning(name)
                break
        for call in delta.get("tool_calls") or ():
            self._call(call)
        text = self._tags.read(_content(delta.get("content")))
        if text:
            self.said.text.append(text)
        return text

    def _call(self, delta: Json) -> None:
        """A piece of a call, found by its index.

        Some servers send every call whole and number none of them, or all with 0: a new id with a name is a new call.
        """
        function = delta.get("function") or {}
        name, call_id, index = text_of(function.get("name")), text_of(delta.get("id")), delta.get("index")
        call = self._by_index.get(index)
        if call is None or (name and call_id and call.id and call_id != call.id):
            call = self._by_index[index] = CallSaid()
            self.said.calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        arguments = function.get("arguments")
        call.arguments.append(json.dumps(arguments) if isinstance(arguments, dict) else text_of(arguments))
        if delta.get("extra_content") is not None:  # Gemini's signature of its thoughts
            call.extra = delta["extra_content"]

    def _count(self, usage: Json) -> None:
        self.said.is_whole = True  # it comes in the very last chunk; some local servers send no finish_reason
        details = usage.get("prompt_tokens_details")
        details = details if isinstance(details, dict) else {}
        # Beside them at DeepSeek and Moonshot. https://api-docs.deepseek.com/guides/kv_cache (read 2026-11)
        beside = usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
        read = count(usage.get("prompt_tokens"))
        # Thoughts are paid for as output, and xAI and Gemini count them beside `completion_tokens`, in the total only.
        # https://github.com/vercel/ai/pull/12425, https://github.com/Clarifai/clarifai-python/pull/978 (read 2026-11)
        said_and_thought = count(usage.get("total_tokens")) - read if read else 0
        self.said.tokens = Tokens(
            input=read,
            output=max(count(usage.get("completion_tokens")), said_and_thought),
            cached=count(details.get("cached_tokens")) or count(beside),
            written=count(details.get("cache_write_tokens")),
        )


class ThinkTags:
    """Takes reasoning between `<think>` and `</think>` out of the beginning of a text, however it is cut into pieces.

    So say it models like Qwen and R1 behind servers that do not parse it.
    """

    _OPEN, _CLOSE = "<think>", "</think>"

    def __init__(self) -> None:
        self.thought = ""
        self._held = ""
        self._is_inside = self._is_past = self._is_fresh = False

    def read(self, piece: str) -> str:
        """What of the piece is text."""
        if self._is_past:
            return self._first(piece) if self._is_fresh else piece
        self._held += piece
        if not self._is_inside:
            start = self._held.lstrip()
            if len(start) < len(self._OPEN) and self._OPEN.startswith(start):
                return ""
            if not start.startswith(self._OPEN):
                self._is_past = True
                return self.end()
            self._is_inside, self._held = True, start[len(self._OPEN) :]
        thought, close, text = self._held.partition(self._CLOSE)
        if not close:
            keep = len(self._CLOSE) - 1  # may be the beginning of the tag
            self.thought += self._held[:-keep]
            self._held = self._held[-keep:]
            return ""
        self.thought += thought
        self._is_past, self._is_fresh, self._held = True, True, ""
        return self._first(text)

    def end(self) -> str:
        """What was held back, as text; of reasoning that was not closed, nothing."""
        held, self._held = self._held, ""
        if self._is_inside and not self._is_past:
            self.thought += held
            return ""
        return held

    def _first(self, piece: str) -> str:
        """Text begins where its first character stands, not with the line breaks after the tag."""
        text = piece.lstrip()
        self._is_fresh = not text
        return text


def _content(content: object) -> str:
    """A delta's text, which a few servers send as a list of parts."""
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in content if isinstance(part, dict))
    return text_of(content)


def _render(message: ChatMessage) -> bytes:
    """A message of which only our own words matter."""
    if message.role == "assistant":
        return as_json(_said(message))
    if message.role == "tool":
        return as_json({"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.text})
    return as_json({"role": "user", "content": message.text if message.text.strip() else EMPTY_MESSAGE})


def _said(message: ChatMessage) -> Json:
    said: Json = {"role": "assistant", "content": message.text if message.text.strip() else None}
    if message.tool_calls:
        said["tool_calls"] = [_call(call) for call in message.tool_calls]
    return said


def _call(call: ToolCall) -> Json:
    arguments = json.dumps(arguments_object(call.arguments), ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _shown_behind(messages: Sequence[ChatMessage]) -> Iterable[bytes]:
    """The pictures of the last results, behind all of them: a result itself takes no picture in this format."""
    results = takewhile(lambda message: message.role == "tool", reversed(messages))
    images = [image for result in reversed([*results]) for image in result.images]
    if images:
        yield as_json({"role": "user", "content": _parts("(These are the pictures of the results above.)", images)})


def _with_images(message: ChatMessage) -> list[Json]:
    return _parts(message.text if message.text.strip() else EMPTY_MESSAGE, message.images)


def _parts(text: str, images: Sequence[ModelImage]) -> list[Json]:
    parts: list[Json] = [{"type": "text", "text": text}]
    for image in images:
        url = f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def _tool(spec: ToolSpec) -> Json:
    """The schema goes out as it is, and is not `strict`: the loop checks the arguments."""
    function: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
    }
    return {"type": "function", "function": function}
