"""What all pages of the dashboard have in common, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gateway.web.dashboard.page import all_pages
from tests.browser.dashboard.conftest import PHONE, Open, look_over

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", [page.name for page in all_pages()])
async def test_every_page_passes_axe_in_light_and_dark_on_a_desk_and_on_a_phone(open_desk: Open, name: str) -> None:
    desk = await open_desk()
    await desk.say("hello")
    page = await desk.open(f"/{name}")
    await expect(page.locator("h1")).to_be_visible()
    await look_over(page)


async def test_the_navigation_leads_to_every_page_and_to_the_chat(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/")
    for shown in all_pages():
        await page.get_by_role("navigation", name="Pages").get_by_role("link", name=shown.title, exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(shown.title)
        await expect(page.locator("nav [aria-current=page]")).to_have_text(shown.title)
    await page.get_by_role("link", name="Chat", exact=True).click()
    await expect(page.locator("#composer")).to_be_visible()


async def test_on_a_phone_the_menu_opens_and_closes_by_keyboard(open_desk: Open) -> None:
    desk = await open_desk(viewport=PHONE)
    page = await desk.open("/channels")
    menu = page.get_by_role("button", name="Menu")
    await expect(page.locator("#navigation")).to_be_hidden()
    await menu.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#navigation")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("#navigation")).to_be_hidden()
    await expect(menu).to_be_focused()


async def test_the_first_key_leads_past_the_navigation(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/channels")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()


async def test_the_icons_are_drawn(open_desk: Open) -> None:
    """The sprite is a file of ours, which the policy lets the page use."""
    desk = await open_desk()
    page = await desk.open("/channels")
    box = await page.locator("#navigation use").first.bounding_box()
    assert box is not None
    assert box["width"] > 5


async def test_the_colours_follow_the_choice_and_without_one_the_system(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/usage")
    await page.emulate_media(color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(paper)
    await page.get_by_role("button", name="Colours: automatic").click()
    await expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    assert page.url.endswith("/dashboard/usage")
    assert await page.evaluate(paper) != light
    await page.get_by_role("button", name="Colours: dark").click()
    await expect(page.get_by_role("button", name="Colours: light")).to_be_visible()
    assert await page.evaluate(paper) == light
