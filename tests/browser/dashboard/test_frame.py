"""What all pages of the dashboard have in common, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Dialog, expect

from gateway.web.dashboard.page import all_pages
from tests.browser.dashboard.conftest import PHONE, Open, look_over, visiting

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


async def test_without_a_script_the_pages_are_used_all_the_same(browser: Browser, open_desk: Open) -> None:
    desk = await open_desk()
    await desk.say("remember that my name is Ada")
    size = {"width": PHONE[0], "height": PHONE[1]}
    async with visiting(browser, desk.gateway, java_script_enabled=False, viewport=size) as (_, page):
        await page.goto(f"{desk.url}/dashboard/channels")
        await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("link", name="Memory").click()
        await page.get_by_label("Personality").select_option("engineer")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_role("region", name="MEMORY.md")).to_contain_text("What engineer remembers")
        await page.get_by_role("link", name="Edit USER.md").click()
        await page.get_by_label("USER.md").fill("Name: Countess\n")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("region", name="USER.md")).to_contain_text("Name: Countess")
        await page.get_by_role("button", name="Undo").click()
        await expect(page.get_by_role("region", name="USER.md")).to_contain_text("Name: Ada")


async def test_leaving_a_form_with_changes_asks_first_and_saving_does_not(open_desk: Open) -> None:
    desk = await open_desk()
    await desk.say("remember that my name is Ada")
    page = await desk.open("/memory")
    asked: list[str] = []

    async def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        await dialog.dismiss()

    page.on("dialog", stay)
    await page.get_by_role("link", name="Edit USER.md").click()
    await page.get_by_label("USER.md").press_sequentially("more ")
    await page.get_by_role("link", name="Cancel").click(no_wait_after=True)
    await expect(page.get_by_label("USER.md")).to_have_value("more Name: Ada\n")
    assert asked == ["beforeunload"]
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="USER.md is saved.")).to_be_visible()
    assert asked == ["beforeunload"]


async def test_a_page_that_nobody_looks_at_gives_its_connection_back(open_desk: Open) -> None:
    """A browser has six connections for one host."""
    desk = await open_desk()
    page = await desk.open("/channels")
    await expect(page.locator("#live")).to_have_text("Live")
    for _ in range(8):
        hidden = await desk.context.new_page()
        await hidden.goto(f"{desk.url}/dashboard/channels")
        await hidden.evaluate(
            "Object.defineProperty(document, 'visibilityState', { value: 'hidden' });"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
    await page.bring_to_front()
    await desk.open("/usage")
    await expect(page.locator("h1")).to_have_text("Usage")
