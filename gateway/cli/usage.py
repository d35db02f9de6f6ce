"""`ethos usage`: what was spent, by day, person, personality and model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, run

if TYPE_CHECKING:
    from gateway.agent.budgets import DayUsage


class Part(StrEnum):
    """What sums are made by."""

    DAY = "day"
    USER = "user"
    PERSONALITY = "personality"
    MODEL = "model"


_OF: dict[Part, Callable[[DayUsage], str]] = {
    Part.DAY: lambda row: row.day,
    Part.USER: lambda row: row.user_id,
    Part.PERSONALITY: lambda row: row.personality_id,
    Part.MODEL: lambda row: row.model,
}
_KEYS = {Part.USER: "user_id", Part.PERSONALITY: "personality_id"}


def usage(
    days: Annotated[int, typer.Option("--days", "-d", min=1, max=3660, help="So many days, today included.")] = 30,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only of this user: an id or an account.")] = None,
    by: Annotated[list[Part] | None, typer.Option("--by", "-b", help="Add up by this; may be given again.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent: turns, model calls, tokens and dollars."""
    run(_usage(days, user, list(_OF) if by is None else by, as_json=as_json))


async def _usage(days: int, wanted: str | None, by: Sequence[Part], *, as_json: bool) -> None:
    from datetime import UTC, datetime, timedelta

    from gateway.cli.data import opened_store, operator_config
    from gateway.cli.named import find_user
    from gateway.cli.output import print_json
    from gateway.config.values import zone_of
    from gateway.files.home import data_directory

    home = data_directory()
    zone = zone_of(operator_config(home).budgets.time_zone)
    since = (datetime.now(UTC).astimezone(zone).date() - timedelta(days=days - 1)).isoformat()
    user_id = None if wanted is None else await find_user(home, wanted)
    rows: Sequence[DayUsage] = []
    async with opened_store(home) as store:
        if store is not None:
            rows = await store.usage.spent(since=since, user_id=user_id)
    sums = _sums(rows, by)
    if as_json:
        figures = ("turns", "calls", "input_tokens", "output_tokens", "cost_usd")
        named = [(key, {name: asdict(total)[name] for name in figures}) for key, total in sums]
        parts = [_KEYS.get(part, part.value) for part in by]
        print_json([{**dict(zip(parts, key, strict=True)), **found} for key, found in named])
    else:
        await _print(sums, by, days)


def _sums(rows: Sequence[DayUsage], by: Sequence[Part]) -> list[tuple[tuple[str, ...], DayUsage]]:
    """Each combination of what is asked for, with its sums, in the order of the rows."""
    from dataclasses import replace

    sums: dict[tuple[str, ...], DayUsage] = {}
    for row in rows:
        key = tuple(_OF[part](row) for part in by)
        before = sums.get(key)
        sums[key] = (
            row
            if before is None
            else replace(
                before,
                turns=before.turns + row.turns,
                calls=before.calls + row.calls,
                input_tokens=before.input_tokens + row.input_tokens,
                output_tokens=before.output_tokens + row.output_tokens,
                cost_usd=before.cost_usd + row.cost_usd,
            )
        )
    return list(sums.items())


async def _print(sums: Sequence[tuple[tuple[str, ...], DayUsage]], by: Sequence[Part], days: int) -> None:
    from gateway.cli.named import labels
    from gateway.cli.output import print_table, say
    from gateway.files.home import data_directory

    if not sums:
        say("Nothing was spent today." if days == 1 else f"Nothing was spent in the last {days} days.")
        return
    names = await labels(data_directory()) if Part.USER in by else {}
    columns = (*(part.value for part in by), "turns", "calls", "tokens in", "tokens out", "USD")
    rows = []
    for key, total in sums:
        shown = [_named(value, names) if part == Part.USER else value for part, value in zip(by, key, strict=True)]
        figures = (total.turns, total.calls, total.input_tokens, total.output_tokens, _usd(total.cost_usd))
        rows.append((*shown, *figures))
    totals = [sum(getattr(total, name) for _, total in sums) for name in ("turns", "calls")]
    tokens = [sum(getattr(total, name) for _, total in sums) for name in ("input_tokens", "output_tokens")]
    cost_usd = sum(total.cost_usd for _, total in sums)
    rows.append((*(["in all", *[""] * (len(by) - 1)]), *totals, *tokens, _usd(cost_usd)))
    print_table(columns, rows, flexible=("user", "model"))


def _usd(cost_usd: float) -> str:
    """What it cost; a dash where no price is known, as of a model of one's own."""
    return f"{cost_usd:.4f}" if cost_usd else "-"


def _named(user_id: str, names: dict[str, str]) -> str:
    label = names.get(user_id)
    return f"{user_id} ({label})" if label else user_id
