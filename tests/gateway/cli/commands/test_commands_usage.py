"""`ethos usage`: what was spent, as a table and as JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from gateway.cli.usage import _figures
from gateway.sdk.models.system import UsageRow
from tests.gateway.cli.commands.conftest import Ethos


def test_what_was_spent_is_shown_by_day_person_personality_and_model(
    ethos: Ethos, home: Path, people: dict[str, str]
) -> None:
    del home
    titles, *rows, total = ethos("usage").out.splitlines()
    assert titles.split() == [
        "day",
        "user",
        "personality",
        "model",
        "turns",
        "calls",
        "tokens",
        "in",
        "cached",
        "tokens",
        "out",
        "USD",
    ]
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert {tuple(row.split()[:2]) for row in rows} == {(today, user) for user in people.values()}
    assert all("assistant" in row and "offline" in row for row in rows)
    assert total.split()[:2] == ["in", "all"]
    assert total.split()[5:7] == ["2", "3"]  # Ada's turn called a tool, so it asked the model twice


def test_programs_get_the_same_added_up_by_what_they_ask_for(ethos: Ethos, home: Path, people: dict[str, str]) -> None:
    del home
    by_model = ethos("usage", "--by", "model", "--json").value
    assert [(row["model"], row["turns"], row["calls"]) for row in by_model] == [("offline", 2, 3)]
    tokens = {"input_tokens", "output_tokens", "cached_tokens", "written_tokens"}
    assert set(by_model[0]) == {"model", "turns", "calls", "cost_usd", *tokens}
    one = ethos("usage", "--user", "fake:2", "--days", 1, "--json").value
    assert [(row["user_id"], row["turns"]) for row in one] == [(people["fake:2"], 1)]


def test_what_came_from_the_cache_is_a_share_and_a_dash_where_nothing_did() -> None:
    row = UsageRow(
        day=date(2026, 11, 27), user="u_1", personality="assistant", model="m", turns=1, calls=2, input_tokens=200,
        output_tokens=5, cached_tokens=150, cost_usd=0.5,
    )  # fmt: skip
    assert _figures(row) == (1, 2, 200, "75%", 5, "0.5000")
    assert _figures(row.model_copy(update={"cached_tokens": 0, "cost_usd": 0.0})) == (1, 2, 200, "-", 5, "-")


def test_where_nothing_was_spent_it_says_so(ethos: Ethos, fresh_home: Path) -> None:
    del fresh_home
    assert ethos("usage").out == "Nothing was spent in the last 30 days.\n"
    assert ethos("usage", "--json").value == []
    assert ethos("usage", "--by", "colour").code == 2
    assert "there is no user u_x" in ethos("usage", "--user", "u_x").err
