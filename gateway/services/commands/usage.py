"""What `/usage` says: what a person used today and lately, and what is left of their budget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from gateway.config import DayBudget

if TYPE_CHECKING:
    from gateway.sdk.models.system import Usage, UsageRow

DAYS = 30


def usage_text(usage: Usage, budget: DayBudget) -> str:
    """Of one person, for `DAYS` days."""
    today = usage.since + timedelta(days=DAYS - 1)
    of_today = [row for row in usage.rows if row.day == today]
    lines = [f"- Today ({usage.time_zone}): {_totals(of_today)}", f"- Last {DAYS} days: {_totals(usage.rows)}"]
    if budget != DayBudget():
        lines.append(f"- Left today: {_left(of_today, budget)}")
    return "\n".join(lines)


def _totals(rows: Sequence[UsageRow]) -> str:
    cost_usd, read = sum(row.cost_usd for row in rows), sum(row.input_tokens for row in rows)
    cached = sum(row.cached_tokens for row in rows)
    return (
        f"{sum(row.turns for row in rows)} turns, {sum(row.calls for row in rows)} model calls, {read} tokens in"
        + (f" ({cached / read:.0%} from the cache)" if cached else "")
        + f", {sum(row.output_tokens for row in rows)} out"
        + (f", {cost_usd:.4f} USD" if cost_usd else "")
    )


def _left(rows: Sequence[UsageRow], budget: DayBudget) -> str:
    parts = []
    if budget.turns is not None:
        parts.append(f"{max(0, budget.turns - sum(row.turns for row in rows))} of {budget.turns} turns")
    if budget.tokens is not None:
        spent = sum(row.input_tokens + row.output_tokens for row in rows)
        parts.append(f"{max(0, budget.tokens - spent)} of {budget.tokens} tokens")
    if budget.usd is not None:
        parts.append(f"{max(0.0, budget.usd - sum(row.cost_usd for row in rows)):.4f} of {budget.usd:g} USD")
    return ", ".join(parts)
