"""List prices of the big providers' models, from the data of the package genai-prices; no network."""

from __future__ import annotations

from functools import lru_cache


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
