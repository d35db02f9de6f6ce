"""A model that is tried once, and the models that a server offers: for those who set one up."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from dataclasses import dataclass

from gateway.agent.model import ChatMessage, ModelReply, ModelRequest
from gateway.agent.providers.models import Endpoint, WireModel
from gateway.errors import ModelUnavailable

# A server of one's own may load a model of many gigabytes first.
TRIAL_S = 60.0
LIST_S = 5.0
_LIST_BYTES = 8 * 1024 * 1024
# Enough for a model that thinks before it says a word.
_OUTPUT_TOKENS = 2_000
_REQUEST = ModelRequest(
    system="This is a test of the connection.",
    messages=(ChatMessage(role="user", text="Say hello in one word."),),
    max_output_tokens=_OUTPUT_TOKENS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a model answered, and how long it took."""

    text: str
    seconds: float


async def ask_once(model: WireModel, *, timeout_s: float = TRIAL_S) -> Trial:
    """Ask the model for one word, and close its connections.

    Raises:
        ModelError: why there is no answer.
    """
    started_s = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s), aclosing(model.stream(_REQUEST)) as events:
            async for event in events:
                if isinstance(event, ModelReply):
                    return Trial(text=" ".join(event.message.text.split()), seconds=time.monotonic() - started_s)
    except TimeoutError as error:
        raise ModelUnavailable(f"{model.name} gave no whole answer within {timeout_s:g} s") from error
    finally:
        await model.close()
    raise ModelUnavailable(f"{model.name} gave no answer")


async def model_names(base_url: str, api_key: str | None = None, *, timeout_s: float = LIST_S) -> list[str] | None:
    """The models that an OpenAI-compatible server offers; None where it does not say.

    https://platform.openai.com/docs/api-reference/models/list (read 2026-11); Ollama, vLLM and llama.cpp have it, too.
    """
    import aiohttp  # noqa: PLC0415 (it takes a while to load)

    from gateway.agent.providers.http import ProviderHttp  # noqa: PLC0415 (as above)

    endpoint = Endpoint(
        name="models",
        provider="openai",
        model="",
        api_key=api_key,
        base_url=base_url,
        read_timeout_s=timeout_s,
    )
    http = ProviderHttp(endpoint, {})
    try:
        async with asyncio.timeout(timeout_s):
            listed = json.loads(await http.get("/models", most_bytes=_LIST_BYTES))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError):
        return None
    finally:
        await http.close()
    data = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(data, list):
        return None
    names = (one.get("id") for one in data if isinstance(one, dict))
    return [name for name in names if isinstance(name, str) and name and name.isprintable()]
