"""A login that ends while somebody works on the dashboard: nothing typed is lost, no stranger's form is believed."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.dashboard.conftest import Open

pytestmark = pytest.mark.browser

COLOURS = "Colours: automatic"


async def is_dark(page: Page) -> bool:
    return await page.evaluate("document.documentElement.dataset.theme") == "dark"


async def test_a_form_sent_after_the_login_ended_comes_back_after_the_next_login(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/usage")
    await desk.log_out_elsewhere()
    await page.get_by_role("button", name=COLOURS).click()
    await expect(page.get_by_role("heading", name="Your login has ended")).to_be_visible()
    await page.fill("#token", "this is wrong")
    await page.press("#token", "Enter")
    await expect(page.get_by_role("alert")).to_have_text("That is not the token of this gateway.")
    await desk.log_in(page)
    await expect(page.get_by_role("heading", name="Nothing you typed is lost")).to_be_visible()
    assert not await is_dark(page), "nothing is done before it is sent again"
    await page.get_by_role("button", name="Send it again").click()
    await page.wait_for_url("**/dashboard/usage")
    assert await is_dark(page)


async def test_a_form_of_an_earlier_login_is_asked_about_and_not_done(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/usage")
    await page.eval_on_selector("input[name=form_token]", "(field) => { field.value = 'made up' }")
    await page.get_by_role("button", name=COLOURS).click()
    await expect(page.get_by_role("heading", name="Nothing you typed is lost")).to_be_visible()
    assert not await is_dark(page)
    await page.get_by_role("button", name="Send it again").click()
    await page.wait_for_url("**/dashboard/usage")
    assert await is_dark(page)


async def test_an_open_page_says_that_the_login_has_ended(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/channels")
    await expect(page.locator("#live")).to_have_text("Live")
    await desk.log_out_elsewhere()
    await desk.say("hello")
    notice = page.get_by_role("alert").filter(has_text="Your login has ended")
    await expect(notice).to_be_visible()
    await expect(notice.get_by_role("link")).to_have_attribute("href", "/login?next=/dashboard/channels")
