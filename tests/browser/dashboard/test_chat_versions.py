"""A message is edited, answered again and branched from, in a real browser; and all versions stay to go back to."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.browser.dashboard.conftest import Open, look_over, visiting
from tests.browser.dashboard.test_chatting import begun, said, say
from tests.gateway.way.conftest import settled
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.browser


async def test_a_message_is_edited_where_it_stands_and_both_versions_stay(open_desk: Open) -> None:
    model = ScriptedModel("One.", "Two.", "Two, again.", "Three.")
    desk = await open_desk(model)
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await say(page, "second")
    await expect(page.locator("#log article.agent")).to_have_count(2)
    before = page.url

    await page.get_by_role("link", name="Edit").last.click()
    await expect(page.get_by_label("Your message")).to_have_value("second")
    await look_over(page)
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="Edit").last).to_be_focused()
    await page.keyboard.press("Enter")
    await page.get_by_label("Your message").fill("second, but better")
    await page.keyboard.press("Enter")
    await page.wait_for_url(lambda address: address != before)
    await expect(page.locator("#branched")).to_contain_text("What the agent remembered from it stays")
    await expect(page.locator("#branched a")).to_have_attribute("href", "/dashboard/memory/history")
    await expect(page.locator("#log article.agent .text")).to_have_text("Two, again.")
    assert await page.locator("article.person .text").all_inner_texts() == ["first", "second, but better"]
    assert "second, but better" in str(model.requests[-1])
    assert "Two." not in str(model.requests[-1]), "the model does not see the answer that was left"
    await look_over(page)
    await page.set_viewport_size({"width": 1280, "height": 900})
    await expect(page.locator("#chats li > a")).to_have_count(1)

    await page.reload()
    await expect(page.locator("#branched")).to_have_count(0)
    await expect(page.locator(".versions")).to_contain_text("2 / 2")
    await page.get_by_label("Version 1 of 2").click()
    await page.wait_for_url(before)
    assert await said(page, "person") == ["first", "second"]
    await page.get_by_label("Version 2 of 2").click()
    await expect(page.locator("#connection")).to_have_text("Connected")
    await say(page, "third")
    await expect(page.locator("#log article.agent .text").last).to_have_text("Three.")


async def test_an_answer_is_made_again_and_a_conversation_branches_from_one(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Another one.", "A third."))
    page = await begun(desk, "first")
    await page.get_by_role("button", name="Regenerate").click()
    await page.wait_for_url("**")
    await expect(page.locator("#log article.agent .text")).to_have_text("Another one.")
    assert await said(page, "person") == ["first"]
    await settled(desk.gateway)
    await page.get_by_role("button", name="Branch").click()
    await expect(page.get_by_role("status").filter(has_text="This is a copy.")).to_be_visible()
    await expect(page.locator(".copied article .text")).to_have_text(["first", "Another one."])
    await say(page, "on its own")
    await expect(page.locator("#log article.agent .text")).to_have_text("A third.")
    await expect(page.locator("#chats li > a")).to_have_count(2)


async def test_an_edit_that_cannot_be_sent_keeps_what_was_typed(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One."))
    page = await begun(desk, "first")
    address = await page.get_by_role("link", name="Edit").get_attribute("href")
    await page.goto(f"{desk.url}{address}")
    await look_over(page)
    await page.go_back()
    await page.get_by_role("link", name="Edit").click()
    await page.get_by_label("Your message").fill("a long thought")
    await page.context.set_offline(True)
    await page.keyboard.press("Enter")
    await expect(page.locator(".editing [role=alert]")).to_have_text("Not sent: the gateway cannot be reached.")
    await expect(page.get_by_label("Your message")).to_have_value("a long thought")
    await page.context.set_offline(False)


async def test_without_a_script_one_edits_and_regenerates(browser: Browser, open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two.", "Three."))
    address = (await begun(desk, "first")).url
    await settled(desk.gateway)
    async with visiting(browser, desk.gateway, java_script_enabled=False) as (_, page):
        await page.goto(address)
        await page.get_by_role("link", name="Edit").click()
        await page.get_by_label("Your message").fill("edited")
        await page.get_by_role("button", name="Send").click()
        await settled(desk.gateway)
        await page.get_by_role("link", name="Look for the answer").click()
        await expect(page.locator("#log article .text")).to_have_text(["edited", "Two."])
        await page.get_by_role("button", name="Regenerate").click()
        await settled(desk.gateway)
        await page.get_by_role("link", name="Look for the answer").click()
        await expect(page.locator("#log article .text")).to_have_text(["edited", "Three."])
        await expect(page.locator(".versions")).to_contain_text("3 / 3")
