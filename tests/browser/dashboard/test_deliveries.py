"""The page of the queues in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.conftest import Open, look_over
from tests.gateway.way.conftest import settled
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.browser

BOOM = [RuntimeError("boom")]


async def test_what_was_given_up_is_seen_without_reload_tried_again_and_dropped(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel(BOOM, BOOM, "fine"), delivery={"max_attempts": 1})
    page = await desk.open("/deliveries")
    await expect(page.locator(".empty")).to_contain_text("Nothing waits, and nothing was given up")
    await look_over(page)
    await expect(page.locator("#live")).to_have_text("Live")

    await desk.say("first poison")
    await desk.say("second poison")
    row = page.locator("tr", has_text="first poison")
    await expect(row).to_contain_text("Given up")
    await expect(row).to_contain_text("boom")
    await expect(page.locator("#queues a").first).to_contain_text("0 waiting, 2 given up")
    await expect(page.locator("#navigation a[href$=deliveries] .badge")).to_have_text("2 given up")
    await look_over(page)

    await row.get_by_role("button", name="Try again").click()
    await expect(page.locator(".note:not([hidden])")).to_contain_text("It is tried again now")
    await settled(desk.gateway)
    await expect(row).to_have_count(0)

    await page.locator("tr", has_text="second poison").get_by_role("button", name="Drop").click()
    await expect(page.locator("main")).to_contain_text("second poison")
    await look_over(page)
    await page.get_by_role("button", name="Drop it").click()
    await expect(page.locator(".note:not([hidden])")).to_contain_text("It is dropped")
    await expect(page.locator(".empty")).to_be_visible()


async def test_a_row_that_somebody_else_dropped_meanwhile_is_said_so(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel(BOOM), delivery={"max_attempts": 1})
    await desk.say("poison")
    page = await desk.open("/deliveries?state=dead")
    await page.route("**/dashboard/events", lambda route: route.abort())
    await page.reload()
    [dead] = await desk.gateway.store.deliveries.rows("inbox", chosen="dead")
    await desk.gateway.store.deliveries.drop("inbox", dead.id)
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(".note:not([hidden])")).to_contain_text(
        f"message {dead.id} is done; only dead letters are tried again"
    )


async def test_a_filtered_list_is_tried_again_or_dropped_all_at_once_after_a_question(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel(BOOM, BOOM, BOOM, BOOM), delivery={"max_attempts": 1})
    for text in ("first poison", "second poison"):
        await desk.say(text)
    page = await desk.open("/deliveries?queue=inbox&state=dead&channel=local")
    chips = page.get_by_role("list", name="Filters in use")
    await expect(chips.get_by_role("listitem")).to_have_text(["Without Given up", "Without local", "Show all"])
    await look_over(page)
    await page.get_by_role("button", name="Try all given up again").click()
    await expect(page.locator("main")).to_contain_text("All that were given up are answered from the start")
    await look_over(page)
    await page.get_by_role("link", name="Cancel").click()
    await expect(page.locator("tbody tr")).to_have_count(2)

    await page.get_by_role("button", name="Try all given up again").click()
    await page.get_by_role("button", name="Try all again").click()
    await expect(page.locator(".note:not([hidden])")).to_contain_text("2 messages are tried again now")
    await settled(desk.gateway)
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_role("button", name="Drop all of these").click()
    await expect(page.locator("main")).to_contain_text("None of these messages gets an answer, of the channel local")
    await page.get_by_role("button", name="Drop all", exact=True).click()
    await expect(page.locator(".note:not([hidden])")).to_contain_text("2 messages are dropped")
    await chips.get_by_role("link", name="Without local").click()
    await expect(chips.get_by_role("listitem")).to_have_text(["Without Given up"])
    await expect(page.get_by_label("Channel")).to_have_value("")
