"""What models cost: as the configuration says, or by the list prices in the package genai-prices; no network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gateway.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """In dollars for a million tokens; `cached` and `written` are for input that passes the provider's cache."""

    input: float
    output: float
    cached: float
    written: float

    def usd(self, input_tokens: int, output_tokens: int, *, cached_tokens: int = 0, written_tokens: int = 0) -> float:
        """What a call costs; `cached_tokens` and `written_tokens` are parts of its input."""
        fresh = input_tokens - cached_tokens - written_tokens
        read = fresh * self.input + cached_tokens * self.cached + written_tokens * self.written
        return (read + output_tokens * self.output) / 1_000_000


def prices_of(config: ModelConfig) -> Prices | None:
    """Those that the configuration has; None to ask the list."""
    if config.input_usd_per_million is None or config.output_usd_per_million is None:
        return None
    plain, cached = config.input_usd_per_million, config.cached_input_usd_per_million
    written = config.cache_write_usd_per_million
    return Prices(
        input=plain,
        output=config.output_usd_per_million,
        cached=plain if cached is None else cached,
        written=plain if written is None else written,
    )


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
    """The most that so many tokens cost, whatever a cache does; None where neither configuration nor list says it."""
    if config.provider == "offline":
        return 0.0
    if (prices := prices_of(config)) is not None:
        dearest = max(prices.input, prices.cached, prices.written)
        return (input_tokens * dearest + output_tokens * prices.output) / 1_000_000
    if config.base_url is not None:  # the price of a server of one's own is not known
        return None
    name, provider = config.model or "", config.provider
    plain = list_price_usd(provider, name, input_tokens, output_tokens)
    written = list_price_usd(provider, name, input_tokens, output_tokens, written_tokens=input_tokens)
    return max(filter(None, (plain, written)), default=plain)
