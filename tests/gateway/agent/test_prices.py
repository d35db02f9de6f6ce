"""What models cost: by the configuration, by the list, or nobody knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from gateway.agent.model import ChatMessage, ModelReply, ModelRequest, ModelUsage
from gateway.agent.providers.models import Provider
from gateway.agent.providers.registry import ModelRegistry
from gateway.config import Config, ModelConfig
from gateway.config.prices import list_price_usd, price_usd
from tests.model_bench import open_bench
from tests.model_server import Answer, Garbage

KEY = SecretStr("k")
OWN = ModelConfig(provider="openai", model="m", base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("config", "usd"),
    [
        (ModelConfig(provider="offline"), 0.0),
        (OWN, None),
        (OWN.model_copy(update={"input_usd_per_million": 1.0, "output_usd_per_million": 3.0}), 4.0),
        (OWN.model_copy(update={"input_usd_per_million": 0.0, "output_usd_per_million": 0.0}), 0.0),
        (ModelConfig(provider="anthropic", model="unheard-of", api_key=KEY), None),
    ],
)
def test_a_price_is_the_configured_one_or_unknown(config: ModelConfig, usd: float | None) -> None:
    assert price_usd(config, 1_000_000, 1_000_000) == usd


@pytest.mark.parametrize(("provider", "model"), [("openai", "gpt-5.4-mini"), ("anthropic", "claude-sonnet-5")])
def test_the_big_providers_prices_are_on_the_list_that_comes_along(provider: str, model: str) -> None:
    price = price_usd(ModelConfig(provider=provider, model=model, api_key=KEY), 1_000, 1_000)  # type: ignore[arg-type]
    assert price is not None
    assert 0 < price < 1


def test_the_dearest_of_a_model_and_its_fallbacks_counts_and_an_unknown_one_makes_all_unknown() -> None:
    priced = {"input_usd_per_million": 1.0, "output_usd_per_million": 1.0, "max_output_tokens": 100}
    dear = {"input_usd_per_million": 2.0, "output_usd_per_million": 2.0, "max_output_tokens": 200}
    models = {
        "cheap": OWN.model_copy(update={**priced, "fallbacks": ("dear",)}),
        "dear": OWN.model_copy(update=dear),
        "lost": OWN.model_copy(update={"fallbacks": ("cheap",)}),
    }
    registry = ModelRegistry(Config(model="cheap", models=models))
    assert registry.usd("cheap", 1_000_000, 0) == 2.0
    assert registry.usd(None, 0, 1_000_000) == 2.0
    assert registry.usd("no such model", 0, 1_000_000) == 2.0
    assert registry.usd("lost", 1, 1) is None
    assert (registry.output_tokens("cheap"), registry.output_tokens("lost")) == (200, None)


# ---- what passes a provider's cache ---------------------------------------------------------------------------------

CACHED = {
    "input_usd_per_million": 4.0,
    "output_usd_per_million": 10.0,
    "cached_input_usd_per_million": 0.5,
    "cache_write_usd_per_million": 5.0,
}
ASKED = ModelRequest(system="", messages=(ChatMessage(role="user", text="hello"),))


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_input_from_the_cache_and_into_it_has_prices_of_its_own(provider: Provider) -> None:
    million = 1_000_000
    answer = Answer(
        text="Hi", input_tokens=7 * million, output_tokens=0, cached_tokens=4 * million, written_tokens=million
    )
    async with open_bench(provider) as bench:
        bench.server.script([answer], repeats=True)
        *_, reply = [event async for event in bench.make(**CACHED).stream(ASKED)]
        *_, plain = [
            event async for event in bench.make(input_usd_per_million=4.0, output_usd_per_million=10.0).stream(ASKED)
        ]
    assert isinstance(reply, ModelReply)
    assert isinstance(plain, ModelReply)
    usage = reply.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.written_tokens) == (7 * million, 4 * million, million)
    assert usage.cost_usd == pytest.approx(2 * 4.0 + 4 * 0.5 + 1 * 5.0)
    assert plain.usage.cost_usd == pytest.approx(7 * 4.0), "without them all input costs the same"


async def counted(usage: dict[str, Any]) -> ModelUsage:
    """What an answer with this usage is counted as."""
    said = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in (said, {"choices": [], "usage": usage}))
    async with open_bench("openai") as bench:
        bench.server.script([Garbage(media_type="text/event-stream", body=body)])
        *_, reply = [event async for event in bench.make().stream(ASKED)]
    assert isinstance(reply, ModelReply)
    return reply.usage


@pytest.mark.parametrize(
    ("usage", "output"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 396}, 387),  # xAI, Gemini: beside what is said
        ({"prompt_tokens": 9, "completion_tokens": 387, "total_tokens": 396}, 387),  # OpenAI: within it
        ({"prompt_tokens": 9, "completion_tokens": 5}, 5),
        ({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 2}, 5),
        ({"completion_tokens": 5, "total_tokens": 14}, 5),
    ],
)
async def test_thoughts_count_as_output_whether_a_server_counts_them_beside_it_or_within(
    usage: dict[str, Any], output: int
) -> None:
    assert (await counted(usage)).output_tokens == output


@pytest.mark.parametrize("beside", ["prompt_cache_hit_tokens", "cached_tokens"])
async def test_servers_that_count_what_is_cached_elsewhere_are_understood(beside: str) -> None:
    usage = await counted({"prompt_tokens": 9, "completion_tokens": 1, beside: 6})
    assert (usage.input_tokens, usage.cached_tokens) == (9, 6)


async def test_no_more_is_cached_than_was_read_whatever_a_server_says() -> None:
    async with open_bench("openai") as bench:
        bench.server.script([Answer(text="Hi", input_tokens=5, cached_tokens=9, written_tokens=9)])
        *_, reply = [event async for event in bench.make().stream(ASKED)]
    assert isinstance(reply, ModelReply)
    assert (reply.usage.cached_tokens, reply.usage.written_tokens) == (5, 0)


def test_a_budget_reserves_the_dearest_that_a_cache_can_make_of_it() -> None:
    own = OWN.model_copy(update=CACHED)
    assert price_usd(own, 1_000_000, 0) == 5.0, "as if all of it were written"
    cheap = OWN.model_copy(update={**CACHED, "cache_write_usd_per_million": 0.0})
    assert price_usd(cheap, 1_000_000, 0) == 4.0, "as if nothing were cached"
    listed = ModelConfig(provider="anthropic", model="claude-sonnet-5", api_key=KEY)
    written = list_price_usd("anthropic", "claude-sonnet-5", 1_000_000, 0, written_tokens=1_000_000)
    assert price_usd(listed, 1_000_000, 0) == written
    assert written is not None
    assert written > (list_price_usd("anthropic", "claude-sonnet-5", 1_000_000, 0) or 0.0)


@pytest.mark.parametrize("key", ["cached_input_usd_per_million", "cache_write_usd_per_million"])
def test_a_price_of_the_cache_needs_the_other_prices(key: str) -> None:
    with pytest.raises(ValidationError, match="the other prices are missing"):
        ModelConfig(provider="openai", model="m", base_url="http://127.0.0.1:1/v1", **{key: 1.0})  # type: ignore[arg-type]
