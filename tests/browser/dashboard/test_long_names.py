"""One long name of a stranger must not break a page, on a desk or on a phone."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.conftest import DESKTOP, PHONE, Open

pytestmark = pytest.mark.browser

LONG = "Ada" + "a" * 187


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_no_page_becomes_wider_than_its_window(open_desk: Open, size: tuple[int, int]) -> None:
    desk = await open_desk(memory={"traces": {"enabled": True}})
    await desk.gateway.identities.resolve("web:stranger", LONG)
    await desk.page.set_viewport_size({"width": size[0], "height": size[1]})
    for path in ("/memory", "/traces", "/traces/files", "/people", "/sign-ins"):
        page = await desk.open(path)
        wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, path


async def test_of_many_people_one_is_chosen_by_typing(open_desk: Open) -> None:
    desk = await open_desk()
    for number in range(60):
        await desk.gateway.identities.resolve(f"web:{number}", f"Person {number}")
    page = await desk.open("/memory")
    field = page.get_by_label("User", exact=True)
    await field.fill("web:7")
    await field.press("Enter")
    await expect(page.get_by_label("User", exact=True)).to_have_value("web:7")
    await expect(page.locator("main")).to_contain_text("USER.md")


async def test_an_edit_by_hand_shows_on_the_open_page(open_desk: Open) -> None:
    desk = await open_desk()
    await desk.say("Remember that my name is Ada")
    page = await desk.open("/memory")
    await expect(page.locator("#live")).to_have_text("Live")
    (path,) = (desk.gateway.home / "users").glob("*/USER.md")
    path.write_text("Ada grows roses by hand.\n")
    await expect(page.locator("main")).to_contain_text("Ada grows roses by hand.")
