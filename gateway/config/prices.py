"""What models cost: as the configuration says, or by the list prices in the package genai-prices; no network."""

from __future__ import annotations

from functools import lru_cache

from gateway.config import ModelConfig


@lru_cache(maxsize=4096)
def list_price_usd(
    provider: str, model: str, input_tokens: int, output_tokens: int, *, cached_tokens: int = 0, written_tokens: int = 0
) -> float | None:
    """What a call of the provider's own service costs by its list; None where there is no list, or no such model.

    Args:
        cached_tokens: of the input, what was read from the provider's cache.
        written_tokens: of the input, what was written to it.
    """
    try:
        from genai_prices import Usage, calc_price  # noqa: PLC0415 (a tenth of a second, and only for budgets of money)
    except ImportError:  # the libraries for real models are not installed
        return None
    try:
        usage = Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_read_tokens=cached_tokens,
            cache_write_tokens=written_tokens,
        )
        price = calc_price(usage, model_ref=model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return float(price.total_price)


def price_usd(config: ModelConfig, input_tokens: int, output_tokens: int) -> float | None:
    """What so many tokens cost; None where neither the configuration nor a price list says it."""
    if config.provider == "offline":
        return 0.0
    if config.input_usd_per_million is not None and config.output_usd_per_million is not None:
        usd = input_tokens * config.input_usd_per_million + output_tokens * config.output_usd_per_million
        return usd / 1_000_000
    if config.base_url is not None:  # the price of a server of one's own is not known
        return None
    return list_price_usd(config.provider, config.model or "", input_tokens, output_tokens)
