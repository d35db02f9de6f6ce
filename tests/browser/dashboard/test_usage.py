"""The page of what was used, in a real browser."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Route, expect

from gateway.agent.budgets import Bill
from gateway.agent.model import ModelUsage, Spender
from gateway.app.gateway import Gateway
from tests.browser.dashboard.conftest import Open, look_over

pytestmark = pytest.mark.browser


async def used_last_month(gateway: Gateway, *, turns: int) -> None:
    first = datetime.now(UTC).date().replace(day=1) - timedelta(days=1)
    day = first.replace(day=1).isoformat()
    for number in range(turns):
        spender = Spender(user_id="u_ada", personality_id="assistant", turn_id=f"t_{number}")
        call = ModelUsage(model="offline", input_tokens=10, output_tokens=1, cost_usd=None)
        await gateway.store.usage.settle(Bill(None, spender, day, [call]))


async def test_what_was_used_is_drawn_and_stands_in_tables(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/usage")
    await expect(page.get_by_role("heading", name="Nothing was used in this time")).to_be_visible()
    await expect(page.locator("#live")).to_have_text("Live")
    await desk.say("hello")
    chart = page.get_by_role("img", name="Tokens per day, 30 days")
    await expect(chart).to_be_visible()
    await expect(chart.locator("rect")).to_have_count(30)
    assert float(await chart.locator("rect").last.get_attribute("height") or 0) > 0
    await page.get_by_text("The numbers").click()
    await expect(page.get_by_role("table", name="Usage per day")).to_be_visible()
    for part, name in (("By person", "Operator"), ("By personality", "assistant"), ("By model", "offline")):
        row = page.get_by_role("region", name=part, exact=True).locator("tbody tr")
        await expect(row).to_have_count(1)
        await expect(row.get_by_role("rowheader")).to_contain_text(name)


async def test_period_and_measure_are_chosen(open_desk: Open) -> None:
    desk = await open_desk()
    await desk.say("hello")
    page = await desk.open("/usage")
    await page.get_by_label("Period").select_option("7")
    await expect(page.get_by_role("img", name="Tokens per day, 7 days").locator("rect")).to_have_count(7)
    await page.get_by_label("Show").select_option("turns")
    chart = page.get_by_role("img", name="Turns per day, 7 days")
    await expect(chart.locator("rect title").last).to_contain_text("1 turns")


async def test_a_choice_counts_that_was_made_before_the_script_was_there(open_desk: Open) -> None:
    desk = await open_desk()
    await desk.say("hello")
    page, is_chosen = desk.page, asyncio.Event()

    async def wait(route: Route) -> None:
        await is_chosen.wait()
        await route.continue_()

    await page.route("**/static/dashboard.js", wait, times=1)
    await page.goto(f"{desk.url}/dashboard/usage", wait_until="commit")
    await page.get_by_label("Show").select_option("turns")
    is_chosen.set()
    await expect(page.get_by_role("img", name="Turns per day, 30 days")).to_be_visible()
    await page.goto(f"{desk.url}/dashboard/people")
    await page.go_back()
    await page.go_back()
    await expect(page.get_by_label("Show")).to_have_value("tokens")
    await expect(page.get_by_role("img", name="Tokens per day, 30 days")).to_be_visible()


async def test_this_month_is_compared_with_the_last_one_and_the_budget_is_drawn(open_desk: Open) -> None:
    desk = await open_desk(budgets={"gateway": {"turns": 2}})
    await desk.say("hello")
    await used_last_month(desk.gateway, turns=4)
    page = await desk.open("/usage")
    await page.get_by_label("Period").select_option("This month")
    await page.get_by_label("Show").select_option("turns")
    await expect(page.locator("#usage dl")).to_contain_text("-75%")
    await expect(page.locator("#usage")).to_contain_text("4 turns")
    await expect(page.get_by_role("img", name="Turns per day").locator(".limit")).to_contain_text("Budget: 2")
    await expect(page.locator("#usage")).to_contain_text("The budget of the gateway is 2 turns a day.")
    await look_over(page)


async def test_what_came_from_the_cache_of_a_provider_stands_in_the_figures_and_the_tables(open_desk: Open) -> None:
    desk = await open_desk()
    spender = Spender(user_id="u_ada", personality_id="assistant", turn_id="t_1")
    call = ModelUsage(model="large", input_tokens=200, output_tokens=5, cached_tokens=150, written_tokens=20)
    today = datetime.now(UTC).date().isoformat()
    await desk.gateway.store.usage.settle(Bill(None, spender, today, [call]))
    page = await desk.open("/usage")
    figures = page.locator("dl.figures")
    await expect(figures).to_contain_text("From the cache")
    await expect(figures).to_contain_text("75%")
    row = page.get_by_role("region", name="By model", exact=True).locator("tbody tr")
    await expect(row.locator("[data-label=Cached]")).to_have_text("75%")
