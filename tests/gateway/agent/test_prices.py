"""What models cost: by the configuration, by the list, or nobody knows."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from gateway.agent.providers.registry import ModelRegistry
from gateway.config import Config, ModelConfig
from gateway.config.prices import price_usd

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
