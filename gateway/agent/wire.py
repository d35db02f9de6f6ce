"""One model's wire: our words into those of the model library, and back.

Only this module and `wire_errors.py` touch pydantic-ai, which speaks both wire formats. Importing them takes more than
a second, so `models.py` does it when the first model is used. Of the library we use the models and their streams, not
its agent: the loop is ours.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as LibraryRequest
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from gateway.agent.model import ChatMessage, ModelReply, ModelRequest, ModelUsage, TextDelta, ToolCall, ToolSpec
from gateway.agent.models import CallFailed, Endpoint
from gateway.agent.wire_errors import NO_KEY, unusable, why_failed

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_CONNECT_S = 10.0
_REMEMBERED_REPLIES = 128


class PydanticWire:
    """Implements `models.Wire` with pydantic-ai."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http = _http_client(endpoint)
        self._model = (
            _anthropic(endpoint, self._http) if endpoint.provider == "anthropic" else _openai(endpoint, self._http)
        )
        # Replies that called tools, as the library saw them, by their turn and their calls' ids: with the hidden
        # reasoning and its signatures, which some providers demand back with the tools' results. Lost with the process,
        # which all of them forgive at the price of a little reasoning. The turn is part of the key, because some
        # servers count their calls from zero: one person's reply must not stand in another's conversation.
        self._replies: OrderedDict[tuple[str, ...], ModelResponse] = OrderedDict()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def answer(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply]:
        """Make one call. An empty `TextDelta` is a sign of life; the reply comes last.

        Raises:
            CallFailed: whatever went wrong.
        """
        messages = self._to_library(request)
        settings, parameters = self._settings(request), _parameters(request)
        if messages and request.system.strip() and isinstance(messages[-1], LibraryRequest):
            messages[-1].instructions = _clean(request.system)
        try:
            async with model_request_stream(
                self._model, messages, model_settings=settings, model_request_parameters=parameters
            ) as stream:
                async for event in stream:
                    yield TextDelta(text=_clean(_text_of(event)))
                response = stream.get()
            yield self._reply(response, request)
        except CallFailed:
            raise
        except Exception as error:
            # Broad on purpose: what a provider sends can break any line of three libraries, and whatever it breaks is
            # a failed call. Our own translation of the request stands outside of this block.
            raise why_failed(error, self._endpoint) from error

    def _settings(self, request: ModelRequest) -> ModelSettings:
        # No `max_retries` here: the SDK's client has it, and the setting would copy the client for every call, reading
        # the environment again.
        settings = ModelSettings()
        if request.tools and not request.may_call_tools:
            settings["tool_choice"] = "none"
        if request.max_output_tokens is not None:
            settings["max_tokens"] = request.max_output_tokens
        if self._endpoint.provider == "anthropic":
            # Breakpoints after the tools, after the system prompt and at the end of the conversation; others cache by
            # themselves. https://platform.claude.com/docs/en/build-with-claude/prompt-caching (read 2026-11)
            settings["cache"] = True
        return settings

    def _to_library(self, request: ModelRequest) -> list[ModelMessage]:
        history: list[ModelMessage] = []
        names: dict[str | None, str] = {}
        for message in request.messages:
            if message.role == "assistant":
                names.update((call.id, call.name) for call in message.tool_calls)
                history.append(self._remembered(message, request.spender.turn_id) or _response(message))
                continue
            part: UserPromptPart | ToolReturnPart
            if message.role == "tool":
                call_id = message.tool_call_id or ""
                part = ToolReturnPart(names.get(call_id, "unknown"), _clean(message.text), tool_call_id=call_id)
            else:
                part = self._asked(message)
            if history and isinstance(history[-1], LibraryRequest):
                history[-1].parts = [*history[-1].parts, part]
            else:
                history.append(LibraryRequest(parts=[part]))
        return history

    def _asked(self, message: ChatMessage) -> UserPromptPart:
        text = _clean(message.text) if message.text.strip() else "(empty message)"  # both formats refuse an empty one
        if not message.images or not self._endpoint.sees_images:
            return UserPromptPart(text)
        images = [BinaryContent(data=image.data, media_type=image.media_type) for image in message.images]
        return UserPromptPart([text, *images])

    def _remembered(self, message: ChatMessage, turn_id: str) -> ModelResponse | None:
        """The reply as the library saw it, where it is the same one."""
        response = self._replies.get((turn_id, *(call.id for call in message.tool_calls)))
        if response is None or _text(response) != message.text or _calls(response) != message.tool_calls:
            return None
        return response

    def _reply(self, response: ModelResponse, request: ModelRequest) -> ModelReply:
        """The whole answer; raises `CallFailed` if it is none."""
        response = _with_fresh_ids(response, request.messages)
        calls, text = _calls(response), _text(response)
        problem = unusable(response, self._endpoint, is_empty=not calls and not text.strip())
        if problem is not None:
            raise problem
        if calls:
            self._replies[request.spender.turn_id, *(call.id for call in calls)] = response
            if len(self._replies) > _REMEMBERED_REPLIES:
                self._replies.popitem(last=False)
        message = ChatMessage(role="assistant", text=text, tool_calls=calls)
        return ModelReply(message=message, usage=self._usage(response))

    def _usage(self, response: ModelResponse) -> ModelUsage:
        usage = response.usage
        return ModelUsage(
            model=self._endpoint.model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=self._cost_usd(response),
        )

    def _cost_usd(self, response: ModelResponse) -> float | None:
        if self._endpoint.prices_usd is not None:
            input_usd, output_usd = self._endpoint.prices_usd
            return (response.usage.input_tokens * input_usd + response.usage.output_tokens * output_usd) / 1_000_000
        try:
            return float(response.cost().total_price)
        except (LookupError, ValueError):  # a model without a list price; an answer without its token counts
            return None


def openai_client(endpoint: Endpoint, http: httpx2.AsyncClient | None = None) -> AsyncOpenAI:
    """OpenAI's SDK on an endpoint; a single attempt for each call, and nothing from the environment."""
    from openai import AsyncOpenAI  # noqa: PLC0415 (as below)

    http = http or _http_client(endpoint)
    client = AsyncOpenAI(
        api_key=endpoint.api_key or NO_KEY,
        base_url=endpoint.url,
        http_client=http,
        max_retries=0,
        timeout=http.timeout,
    )
    # What the SDK found in OPENAI_ORG_ID and OPENAI_PROJECT_ID is not of our configuration.
    client.organization = client.project = None
    return client


def _http_client(endpoint: Endpoint) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(endpoint.read_timeout_s, connect=min(_CONNECT_S, endpoint.read_timeout_s)),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        # A proxy from the environment serves the outside world; it cannot know this machine's own ports.
        trust_env=not _is_loopback(endpoint.url),
    )


def _openai(endpoint: Endpoint, http: httpx2.AsyncClient) -> Model[Any]:
    # Imported here: each vendor's SDK costs half a second and 25 MB, and most people use one.
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.profiles.openai import OpenAIModelProfile  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415

    client = openai_client(endpoint, http)
    if endpoint.base_url is None:
        return OpenAIChatModel(endpoint.model, provider=OpenAIProvider(openai_client=client))
    # `max_tokens` is what every compatible server knows; only the newer models of OpenAI itself refuse it.
    knows_new_name = (urlsplit(endpoint.url).hostname or "").endswith(("openai.com", "azure.com"))
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=knows_new_name)
    provider = OpenAICompatibleProvider(endpoint.name, openai_client=client, profile=profile)
    return OpenAIChatModel(endpoint.model, provider=provider)


def _anthropic(endpoint: Endpoint, http: httpx2.AsyncClient) -> Model[Any]:
    from anthropic import AsyncAnthropic  # noqa: PLC0415 (as above)
    from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415
    from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

    client = AsyncAnthropic(
        api_key=endpoint.api_key or NO_KEY,
        base_url=endpoint.url,
        http_client=http,
        max_retries=0,
        timeout=http.timeout,
    )
    return AnthropicModel(endpoint.model, provider=AnthropicProvider(anthropic_client=client))


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    return ModelRequestParameters(function_tools=[_tool(spec) for spec in request.tools])


def _tool(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name,
        description=spec.description,
        parameters_json_schema=dict(spec.parameters),
        strict=False,  # the schema goes out as it is; the loop checks the arguments
    )


def _response(message: ChatMessage) -> ModelResponse:
    """An assistant's message of which only our own words are left."""
    parts: list[TextPart | ToolCallPart] = [TextPart(_clean(message.text))] if message.text.strip() else []
    parts.extend(ToolCallPart(call.name, _clean(call.arguments), call.id) for call in message.tool_calls)
    return ModelResponse(parts=parts)


def _calls(response: ModelResponse) -> tuple[ToolCall, ...]:
    return tuple(_call(part) for part in response.parts if isinstance(part, ToolCallPart))


def _call(part: ToolCallPart) -> ToolCall:
    """Arguments stay as the model wrote them; a call without any gets an empty object."""
    arguments = part.args if isinstance(part.args, str) else part.args_as_json_str()
    return ToolCall(id=part.tool_call_id, name=_clean(part.tool_name), arguments=_clean(arguments) or "{}")


def _with_fresh_ids(response: ModelResponse, messages: Iterable[ChatMessage]) -> ModelResponse:
    """Give a new id to each call whose id is taken.

    Some servers count from zero in every answer; the journal that keeps a tool from running twice needs to tell the
    calls of a turn apart.
    """
    taken = {call.id for message in messages for call in message.tool_calls}
    parts = list(response.parts)
    for index, part in enumerate(parts):
        if isinstance(part, ToolCallPart):
            if not part.tool_call_id or part.tool_call_id in taken:
                part = parts[index] = replace(part, tool_call_id=f"call_{uuid4().hex}")  # noqa: PLW2901
            taken.add(part.tool_call_id)
    return replace(response, parts=parts)


def _text(response: ModelResponse) -> str:
    return _clean("".join(part.content for part in response.parts if isinstance(part, TextPart)))


def _text_of(event: object) -> str:
    """The text that an event adds; empty for reasoning, tool calls and everything else that shows life."""
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _clean(text: str) -> str:
    """Lone surrogates, which no UTF-8 can carry, become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
