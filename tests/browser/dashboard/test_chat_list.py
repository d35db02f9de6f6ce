"""The conversations at the side of the chat: found, renamed, pinned and deleted where they stand, live, by keyboard."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.dashboard.conftest import Desk, Open, axe_violations, look_over, visiting
from tests.browser.dashboard.test_chatting import begun
from tests.gateway.way.conftest import settled
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.browser


async def two(desk: Desk) -> Page:
    """Two conversations; the second one is open."""
    await begun(desk, "about the house")
    page = await begun(desk, "about the trip")
    await settled(desk.gateway)
    return page


async def test_conversations_are_found_by_title_and_by_what_was_said(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("It has a red door.", "By train."))
    page = await two(desk)
    await page.fill("#q", "HOUSE")
    await expect(page.locator("#chats li > a")).to_have_text(["about the house"])
    await page.fill("#q", "door")
    await expect(page.locator("#chats .snippet mark")).to_have_text("door")
    await look_over(page)
    await page.set_viewport_size({"width": 1280, "height": 900})
    await page.fill("#q", "nothing like that")
    await expect(page.locator("#chats")).to_contain_text("Nothing was found.")
    await page.fill("#q", "")
    await expect(page.locator("#chats li > a")).to_have_count(2)


async def test_a_conversation_is_renamed_pinned_and_deleted_with_the_keyboard(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."))
    page = await two(desk)
    await page.focus("#q")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("#chats li > a").last).to_be_focused()
    await page.keyboard.press("F2")
    await expect(page.locator("#chats details[open] input[type=text]")).to_be_focused()
    await page.keyboard.type("The new house")
    assert await axe_violations(page) == []
    await page.keyboard.press("Enter")
    await expect(page.locator("#chats li > a")).to_have_text(["about the trip", "The new house"])

    await page.get_by_label("Rename, pin or delete The new house").press("Enter")
    await page.get_by_role("button", name="Pin", exact=True).press("Enter")
    await expect(page.locator("#chats h3")).to_have_text(["Pinned", "Today"])
    await expect(page.locator("#chats li > a")).to_have_text(["The new house", "about the trip"])

    await page.get_by_label("Rename, pin or delete about the trip").press("Enter")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Rename")).to_have_count(0)
    await page.get_by_label("Rename, pin or delete about the trip").press("Enter")
    await page.get_by_role("button", name="Delete").press("Enter")
    await expect(page.locator("main")).to_contain_text("“about the trip” is forgotten with its 2 messages")
    await look_over(page)
    await page.get_by_role("button", name="Delete it").click()
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(page.locator("#chats li > a")).to_have_text(["The new house"])


async def test_the_list_is_live_and_leaves_alone_what_is_typed_in_it(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two.", "Three."))
    page = await two(desk)
    other = await page.context.new_page()
    await other.goto(f"{desk.url}/dashboard/chat")
    await other.fill("#text", "from another tab")
    await other.press("#text", "Enter")
    await expect(page.locator("#chats li > a").first).to_have_text("from another tab")
    await page.get_by_label("Rename, pin or delete about the house").click()
    await expect(page.locator("#chats details[open] input[type=text]")).to_be_focused()
    await page.keyboard.type("half a title")
    await other.fill("#text", "one more")
    await other.press("#text", "Enter")
    await expect(other.locator("#log article.agent")).to_have_count(2)
    await expect(page.locator("#chats details[open] input[type=text]")).to_have_value("half a title")


async def test_without_a_script_one_finds_renames_pins_and_deletes(browser: Browser, open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."))
    await two(desk)
    async with visiting(browser, desk.gateway, java_script_enabled=False) as (_, page):
        await page.goto(f"{desk.url}/dashboard/chat")
        await page.get_by_label("Search conversations").fill("house")
        await page.get_by_label("Search conversations").press("Enter")
        await expect(page.locator("#chats li > a")).to_have_text(["about the house"])
        await page.get_by_label("Rename, pin or delete").click()
        await page.get_by_label("Title").fill("Plans")
        await page.get_by_role("button", name="Rename").click()
        await expect(page.locator("#chats li > a")).to_have_text(["about the trip", "Plans"])
        await page.get_by_label("Rename, pin or delete Plans").click()
        await page.get_by_role("button", name="Pin", exact=True).click()
        await expect(page.locator("#chats h3").first).to_have_text("Pinned")
        await page.get_by_label("Rename, pin or delete Plans").click()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("button", name="Delete it").click()
        await expect(page.locator("#chats li > a")).to_have_text(["about the trip"])
