"""The page of what was used, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.conftest import Open

pytestmark = pytest.mark.browser


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
