"""What was spent, in words: for the person who asks with `/usage`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from gateway.agent.budgets import DayUsage, Limit

DAYS = 30


def first_day(today: str) -> str:
    """The first of the days that `/usage` looks at."""
    return (date.fromisoformat(today) - timedelta(days=DAYS - 1)).isoformat()


def spending(rows: Iterable[DayUsage], *, today: str, zone: str, limit: Limit) -> str:
    """What one person used today and lately, and what is left of their budget.

    Args:
        rows: theirs, since `first_day`.
        zone: what the day goes by, for people.
    """
    all_rows = list(rows)
    of_today = [row for row in all_rows if row.day == today]
    lines = [f"- Today ({zone}): {_totals(of_today)}", f"- Last {DAYS} days: {_totals(all_rows)}"]
    if limit.is_set:
        lines.append(f"- Left today: {_left(of_today, limit)}")
    return "\n".join(lines)


def _totals(rows: list[DayUsage]) -> str:
    cost_usd = sum(row.cost_usd for row in rows)
    return (
        f"{sum(row.turns for row in rows)} turns, {sum(row.calls for row in rows)} model calls, "
        f"{sum(row.input_tokens for row in rows)} tokens in, {sum(row.output_tokens for row in rows)} out"
        + (f", {cost_usd:.4f} USD" if cost_usd else "")
    )


def _left(rows: list[DayUsage], limit: Limit) -> str:
    parts = []
    if limit.turns is not None:
        parts.append(f"{max(0, limit.turns - sum(row.turns for row in rows))} of {limit.turns} turns")
    if limit.tokens is not None:
        spent = sum(row.input_tokens + row.output_tokens for row in rows)
        parts.append(f"{max(0, limit.tokens - spent)} of {limit.tokens} tokens")
    if limit.usd is not None:
        parts.append(f"{max(0.0, limit.usd - sum(row.cost_usd for row in rows)):.4f} of {limit.usd:g} USD")
    return ", ".join(parts)
