"""`ethos usage`: what was spent, by day, person, personality and model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.names import check_names, labels
from gateway.cli.options import AsJson, UserFilter, asynchronous
from gateway.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from gateway.sdk.models.system import UsageRow


class Part(StrEnum):
    """What sums are made by."""

    DAY = "day"
    USER = "user"
    PERSONALITY = "personality"
    MODEL = "model"


_OF: dict[Part, Callable[[UsageRow], str]] = {
    Part.DAY: lambda row: row.day.isoformat(),
    Part.USER: lambda row: row.user,
    Part.PERSONALITY: lambda row: row.personality,
    Part.MODEL: lambda row: row.model,
}
_FIGURES = {"turns", "calls", "input_tokens", "output_tokens", "cached_tokens", "written_tokens", "cost_usd"}
_KEYS = {Part.USER: "user_id", Part.PERSONALITY: "personality_id"}


@asynchronous
async def usage(
    days: Annotated[int, typer.Option("--days", "-d", min=1, max=3660, help="So many days, today included.")] = 30,
    user: UserFilter = None,
    by: Annotated[list[Part] | None, typer.Option("--by", "-b", help="Add up by this; may be given again.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent: turns, model calls, tokens and dollars."""
    by = list(_OF) if by is None else by
    check_names(user=user)
    async with connected() as client:
        rows = (await client.system.usage(days=days, user=user)).rows
        names = await labels(client) if rows and Part.USER in by and not as_json else {}
    sums = _sums(rows, by)
    if as_json:
        parts = [_KEYS.get(part, part.value) for part in by]
        print_json(
            [
                {**dict(zip(parts, key, strict=True)), **total.model_dump(include=_FIGURES, by_alias=False)}
                for key, total in sums
            ]
        )
    else:
        _print(sums, by, days, names)


def _sums(rows: Sequence[UsageRow], by: Sequence[Part]) -> list[tuple[tuple[str, ...], UsageRow]]:
    """Each combination of what is asked for, with its sums, in the order of the rows."""
    sums: dict[tuple[str, ...], UsageRow] = {}
    for row in rows:
        key = tuple(_OF[part](row) for part in by)
        before = sums.get(key)
        added = {} if before is None else {name: getattr(before, name) + getattr(row, name) for name in _FIGURES}
        sums[key] = row.model_copy(update=added)
    return list(sums.items())


def _print(
    sums: Sequence[tuple[tuple[str, ...], UsageRow]], by: Sequence[Part], days: int, names: dict[str, str]
) -> None:
    if not sums:
        say("Nothing was spent today." if days == 1 else f"Nothing was spent in the last {days} days.")
        return
    columns = (*(part.value for part in by), "turns", "calls", "tokens in", "cached", "tokens out", "USD")
    rows = []
    for key, total in sums:
        shown = [_named(value, names) if part == Part.USER else value for part, value in zip(by, key, strict=True)]
        rows.append((*shown, *_figures(total)))
    [(_, in_all)] = _sums([total for _, total in sums], ())
    rows.append(("in all", *[""] * (len(by) - 1), *_figures(in_all)))
    print_table(columns, rows, flexible=("user", "model"))


def _figures(total: UsageRow) -> tuple[object, ...]:
    """The last columns of the table; a dash where no price is known, as of a model of one's own, or nothing cached."""
    cost_usd = f"{total.cost_usd:.4f}" if total.cost_usd else "-"
    cached = f"{total.cached_tokens / total.input_tokens:.0%}" if total.cached_tokens else "-"
    return total.turns, total.calls, total.input_tokens, cached, total.output_tokens, cost_usd


def _named(user_id: str, names: dict[str, str]) -> str:
    label = names.get(user_id)
    return f"{user_id} ({label})" if label else user_id
