"""A model that is tried once, and the models that a server offers: for those who set one up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gateway.agent.model import ChatMessage, Model, ModelReply, ModelRequest
from gateway.agent.offline.model import OfflineModel
from gateway.agent.providers.embeddings import WireEmbedder
from gateway.agent.providers.models import Endpoint, Provider, WireModel, endpoint_of
from gateway.config import OFFLINE, Config, ModelConfig
from gateway.errors import ModelUnavailable

# A server of one's own may load a model of many gigabytes first.
TRIAL_S = 60.0
LIST_S = 5.0
_LIST_BYTES = 8 * 1024 * 1024
_KEY_STATUSES = (401, 403)
# Enough for a model that thinks before it says a word.
_OUTPUT_TOKENS = 2_000
_REQUEST = ModelRequest(
    system="This is a test of the connection.",
    messages=(ChatMessage(role="user", text="Say hello in one word."),),
    max_output_tokens=_OUTPUT_TOKENS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a model answered, how long that took, and what it cost.

    Attributes:
        text: of the answer, on one line; empty where an embedding was made.
        cost_usd: None where no price is known.
    """

    text: str
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a server offers.

    Attributes:
        base_url: where it answers, with the `/v1` that the address lacked; None for the provider's own service.
        models: their names; None where the server does not list them.
    """

    base_url: str | None
    models: Sequence[str] | None


async def ask_once(model: WireModel, *, timeout_s: float = TRIAL_S) -> Trial:
    """Ask the model for one word, and close its connections.

    Raises:
        ModelError: why there is no answer.
    """
    try:
        return await _asked(model, timeout_s)
    finally:
        await model.close()


async def ask_configured(config: Config, name: str, *, timeout_s: float = TRIAL_S) -> Trial:
    """Ask a model of the configuration, without its fallbacks; the one that makes embeddings makes one.

    Raises:
        ModelError: why there is no answer.
        ConfigError: its settings cannot work, or a library is not installed.
    """
    model = config.models[name]
    if model.provider == OFFLINE:
        return await _asked(OfflineModel(name), timeout_s)
    if name == config.memory.traces.embeddings.model:
        return await _embedded(name, model)
    return await ask_once(WireModel(name, model), timeout_s=timeout_s)


async def _asked(model: Model, timeout_s: float) -> Trial:
    started_s = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s), aclosing(model.stream(_REQUEST)) as events:
            async for event in events:
                if isinstance(event, ModelReply):
                    return Trial(
                        text=" ".join(event.message.text.split()),
                        seconds=time.monotonic() - started_s,
                        input_tokens=event.usage.input_tokens,
                        output_tokens=event.usage.output_tokens,
                        cost_usd=event.usage.cost_usd,
                    )
    except TimeoutError as error:
        raise ModelUnavailable(f"{model.name} gave no whole answer within {timeout_s:g} s") from error
    raise ModelUnavailable(f"{model.name} gave no answer")


async def _embedded(name: str, config: ModelConfig) -> Trial:
    started_s = time.monotonic()
    embedder = WireEmbedder(endpoint_of(name, config, read_timeout_s=config.timeout_s), dimensions=None)
    try:
        await embedder.embed(["hello"])
    finally:
        await embedder.close()
    return Trial(text="", seconds=time.monotonic() - started_s)


async def offered(provider: Provider, base_url: str | None, api_key: str | None, *, timeout_s: float = LIST_S) -> Offer:
    """What a server offers, at its address or, where that names the host alone, with `/v1` behind it.

    https://platform.openai.com/docs/api-reference/models/list and https://platform.claude.com/docs/en/api/models-list
    (read 2026-11); Ollama, vLLM and llama.cpp list theirs, too.

    Args:
        base_url: None for the provider's own service.

    Raises:
        ModelError: the server cannot be reached, or refuses the key; `about` says which of them is wrong.
    """
    whole = whole_address(base_url) if base_url is not None and provider == "openai" else base_url
    for candidate in dict.fromkeys((whole, base_url)):
        endpoint = Endpoint(
            name="models",
            provider=provider,
            model="",
            api_key=api_key,
            base_url=candidate,
            read_timeout_s=timeout_s,
        )
        models = await _listed(endpoint, timeout_s)
        if models is not None:
            return Offer(base_url=candidate, models=models)
    return Offer(base_url=whole, models=None)


def whole_address(base_url: str) -> str:
    """The address of an OpenAI-compatible server, with the `/v1` that it lacks where it names the host alone."""
    return base_url if urlsplit(base_url).path.strip("/") else f"{base_url.rstrip('/')}/v1"


async def _listed(endpoint: Endpoint, timeout_s: float) -> list[str] | None:
    import aiohttp  # noqa: PLC0415 (it takes a while to load)

    from gateway.agent.providers.anthropic import AnthropicFormat  # noqa: PLC0415 (as above)
    from gateway.agent.providers.errors import why_failed, why_refused  # noqa: PLC0415 (as above)
    from gateway.agent.providers.http import ProviderHttp, parsed  # noqa: PLC0415 (as above)

    is_anthropic = endpoint.provider == "anthropic"
    http = ProviderHttp(endpoint, AnthropicFormat(endpoint).headers if is_anthropic else {})
    try:
        async with asyncio.timeout(timeout_s):
            path = "/v1/models?limit=1000" if is_anthropic else "/models"
            status, body = await http.get(path, most_bytes=_LIST_BYTES)
    except (aiohttp.ClientError, OSError) as error:  # a timeout, too
        raise why_failed(error, endpoint).error from error
    finally:
        await http.close()
    if status in _KEY_STATUSES:
        raise why_refused(status, {}, parsed(body), endpoint).error
    return _names(body) if status == 200 else None


def _names(body: bytes) -> list[str] | None:
    """The names in a list of models; None where it is none."""
    try:
        listed: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    data = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(data, list):
        return None
    names = (one.get("id") for one in data if isinstance(one, dict))
    return [name for name in names if isinstance(name, str) and name and name.isprintable()]
