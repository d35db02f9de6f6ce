"""One model's wire: a request in the provider's format, and its stream in our words.

Both formats are written down by us: `openai.py`, `anthropic.py`. The vendors' SDKs walk every message of a
request with `typing` introspection before they send it, which takes 50 ms of the event loop for 400 messages, and their
imports take 65 MB.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import structlog

from gateway.agent.model import AsSent, ChatMessage, ModelReply, ModelRequest, ModelUsage, TextDelta
from gateway.agent.providers.anthropic import AnthropicFormat
from gateway.agent.providers.errors import unusable, why_broken, why_endless, why_failed, why_refused
from gateway.agent.providers.format import Json, Reader, Said, StreamFailed, WireFormat
from gateway.agent.providers.http import EventStream, ProviderHttp, as_json, drain, parsed, read_error
from gateway.agent.providers.models import CallFailed, Endpoint
from gateway.agent.providers.openai import OpenAIFormat
from gateway.config.prices import list_price_usd
from gateway.domain.personalities.files import Thinking
from gateway.tools.spec import ToolCall

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Of one answer on the wire, where a token takes some 200 bytes: more than any model writes."""
# A request of more characters, of more messages that are new, or with images is written down in a thread: the loop is
# for everybody.
_LARGE_CHARS = 300_000
_MANY_MESSAGES = 100
THINKING_RESTS_S = 3_600.0
"""After a refusal of what a request says of thinking. Providers learn, and some refuse it beside other things only."""
# How servers name what they do not know, or not in this model: our own key for it, or one of the words around it.
_OF_THINKING = ("thinking", "reasoning", "effort", "output_config")

_log = structlog.get_logger(__name__)


class _ThinkingRefused(Exception):
    """The request was refused for what it says of thinking; `failure` is what that means."""

    def __init__(self, failure: CallFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


class HttpWire:
    """One model's connection to its provider."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._format: WireFormat = (
            AnthropicFormat(endpoint) if endpoint.provider == "anthropic" else OpenAIFormat(endpoint)
        )
        self._http = ProviderHttp(endpoint, self._format.headers)
        # Who can read the hidden reasoning of a reply that called tools: it goes back with the tools' results.
        self._name = f"{endpoint.provider} {endpoint.url} {endpoint.model}"
        self._refused: dict[Thinking, tuple[float, str]] = {}  # until when, and why
        if self._has_list_price:
            list_price_usd(endpoint.provider, endpoint.model, 1, 1)  # loads the list, here in a thread

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def answer(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply]:
        """Make one call. An empty `TextDelta` is a sign of life; the reply comes last.

        A model that refuses what is said of thinking is asked without that; where it answers then, it is so for
        `THINKING_RESTS_S`, and its replies say why.

        Raises:
            CallFailed: whatever went wrong.
        """
        level = request.thinking
        if level is None:
            unthought = None
        elif unthought := self._refusal_of(level):
            request = replace(request, thinking=None)
        try:
            async with aclosing(self._answer(request)) as events:
                async for event in events:
                    yield event if isinstance(event, TextDelta) else replace(event, unthought=unthought)
        except _ThinkingRefused as refusal:
            if level is None or unthought:
                raise refusal.failure from refusal
            async with aclosing(self.answer(replace(request, thinking=None))) as events:
                async for event in events:
                    if isinstance(event, ModelReply):
                        event = self._without(level, refusal, event)  # noqa: PLW2901 (the same, with more in it)
                    yield event

    def _refusal_of(self, level: Thinking) -> str:
        """Why it does not think so at this time; empty where it does, or may do so again."""
        until, reason = self._refused.get(level, (0.0, ""))
        return reason if asyncio.get_running_loop().time() < until else ""

    def _without(self, level: Thinking, refusal: _ThinkingRefused, reply: ModelReply) -> ModelReply:
        """The reply came without thinking, so that it was this that was refused, and not something else."""
        reason = f"thinking {level} was refused: {refusal}"
        if level not in self._refused:
            name = self._endpoint.name
            _log.warning("thinking_refused", model=name, thinking=level, reason=str(refusal), again_s=THINKING_RESTS_S)
        self._refused[level] = asyncio.get_running_loop().time() + THINKING_RESTS_S, reason
        return replace(reply, unthought=reason)

    async def _answer(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply]:
        body = await self._body(request)
        reader = self._format.reader()
        try:
            async with aclosing(self._texts(body, reader)) as texts:
                async for text in texts:
                    yield TextDelta(text=_clean(text))
        except (CallFailed, _ThinkingRefused):
            raise
        except StreamFailed as failure:
            raise why_broken(failure, self._endpoint) from failure
        except Exception as error:
            # Broad on purpose: what a provider sends can break any line that reads it, and whatever it breaks is a
            # failed call. Our own translation of the request stands outside of this block.
            raise why_failed(error, self._endpoint) from error
        yield self._reply(reader, request)

    async def _texts(self, body: bytes, reader: Reader) -> AsyncGenerator[str]:
        """The text that the events of each piece of the answer add, empty where they add something else."""
        async with self._http.post(self._format.path, body) as response:
            if response.status >= 300:
                said = await read_error(response)
                failure = why_refused(response.status, response.headers, said, self._endpoint)
                raise _ThinkingRefused(failure) if _names_thinking(response.status, said) else failure
            stream, size_bytes = EventStream(), 0
            async for piece in response.content.iter_any():
                size_bytes += len(piece)
                if size_bytes > MAX_ANSWER_BYTES:
                    raise why_endless(MAX_ANSWER_BYTES, self._endpoint)
                heard: list[str] = []
                try:
                    read = (reader.read(_event(event)) for event in stream.feed(piece))
                    heard.extend(text for text in read if text is not None)
                finally:  # what was heard before a fault was said, too
                    if heard:
                        yield "".join(heard)
                if stream.is_over:
                    await drain(response)
                    break
            for event in stream.end():
                if (text := reader.read(_event(event))) is not None:
                    yield text
            if stream.other.strip():
                raise _no_stream(stream.other)
        if text := reader.end():
            yield text

    async def _body(self, request: ModelRequest) -> bytes:
        def remembered(message: ChatMessage) -> Json | None:
            """The reply as the provider sent it, where it was this one."""
            sent = message.as_sent
            return json.loads(sent.body) if sent is not None and sent.by == self._name else None

        chars = len(request.system) + sum(len(message.text) for message in request.messages)
        new = sum(not message.is_rendered for message in request.messages)
        if chars > _LARGE_CHARS or new > _MANY_MESSAGES or any(message.images for message in request.messages):
            return await asyncio.to_thread(self._format.body, request, remembered)
        return self._format.body(request, remembered)

    def _reply(self, reader: Reader, request: ModelRequest) -> ModelReply:
        """The whole answer; raises `CallFailed` if it is none."""
        said = reader.said
        calls, text = _calls(said, request.messages), _clean("".join(said.text))
        problem = unusable(said, self._endpoint, is_empty=not calls and not text.strip())
        if problem is not None:
            raise problem
        sent = AsSent(by=self._name, body=as_json(reader.handed_back(calls)).decode()) if calls else None
        message = ChatMessage(role="assistant", text=text, tool_calls=calls, as_sent=sent)
        return ModelReply(message=message, usage=self._usage(said))

    def _usage(self, said: Said) -> ModelUsage:
        return ModelUsage(
            model=self._endpoint.model,
            input_tokens=said.tokens.input,
            output_tokens=said.tokens.output,
            cost_usd=self._cost_usd(said),
            cached_tokens=said.tokens.cached,
            written_tokens=said.tokens.written,
            is_cut=said.finish == "length",
        )

    def _cost_usd(self, said: Said) -> float | None:
        tokens, prices = said.tokens, self._endpoint.prices_usd
        if prices is not None:
            return prices.usd(tokens.input, tokens.output, cached_tokens=tokens.cached, written_tokens=tokens.written)
        if not self._has_list_price:
            return None
        return list_price_usd(
            self._endpoint.provider,
            self._endpoint.model,
            tokens.input,
            tokens.output,
            cached_tokens=tokens.cached,
            written_tokens=tokens.written,
        )

    @property
    def _has_list_price(self) -> bool:
        """A server that is compatible with OpenAI's charges what it likes, whatever it calls its models."""
        endpoint = self._endpoint
        return endpoint.prices_usd is None and (endpoint.provider == "anthropic" or endpoint.base_url is None)


def _no_stream(body: bytes) -> Exception:
    """What is wrong with a good status and something else than events: an error, or the page of another server."""
    said = parsed(body)
    if isinstance(said, dict) and said.get("error"):
        return StreamFailed(said["error"])
    return ValueError("it is no stream of events; check `base_url` of this model in the configuration")


def _names_thinking(status: int, said: Any) -> bool:
    """Whether a refusal is most likely for what the request says of thinking."""
    return status in (400, 422) and any(word in str(said).lower() for word in _OF_THINKING)


def _event(data: str) -> Json:
    event = json.loads(data)
    if not isinstance(event, dict):
        raise TypeError("an event of the stream is no object")
    return event


def _calls(said: Said, messages: Iterable[ChatMessage]) -> tuple[ToolCall, ...]:
    """The calls, each with an id that no other call has. Arguments stay as the model wrote them; none are an empty {}.

    Some servers count from zero in every answer; the journal that keeps a tool from running twice needs to tell the
    calls of a turn apart.
    """
    if not said.calls:
        return ()
    taken = {call.id for message in messages for call in message.tool_calls}
    calls = []
    for call in said.calls:
        call_id = call.id if call.id and call.id not in taken else f"call_{uuid4().hex}"
        taken.add(call_id)
        calls.append(ToolCall(id=call_id, name=_clean(call.name), arguments=_clean("".join(call.arguments)) or "{}"))
    return tuple(calls)


def _clean(text: str) -> str:
    """Lone surrogates, which no UTF-8 can carry, become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
