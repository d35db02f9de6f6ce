"""The page of repairs in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.conftest import Open, look_over
from tests.gateway.way.conftest import settled
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.browser

BOOM = [RuntimeError("boom")]
BADGE = "#navigation a[href$=repairs] .badge"


async def test_what_is_wrong_is_counted_on_every_page_repaired_by_its_button_and_gone(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel(BOOM, "fine"), delivery={"max_attempts": 1})
    page = await desk.open("/repairs")
    await expect(page.locator(".empty")).to_contain_text("All is well")  # after the thorough look that it begins
    await look_over(page)
    users = desk.gateway.home / "users"
    users.chmod(0o755)
    await page.get_by_role("button", name="Look again").click()
    article = page.get_by_role("article", name="Other users may look into")
    await expect(article).to_contain_text("Takes the rights of all other users away")
    await look_over(page)
    await desk.open("/usage")
    await expect(page.locator(BADGE)).to_have_text("1 found")
    await expect(page.locator("#live")).to_have_text("Live")
    await desk.say("poison")
    await expect(page.locator(BADGE)).to_have_text("2 found")

    await desk.open("/repairs")
    await article.get_by_role("button", name="Close to others").click()
    await expect(page.locator(".note:not([hidden])").first).to_contain_text("may not look into them any more")
    await expect(article).to_have_count(0)
    assert users.stat().st_mode & 0o777 == 0o700

    await page.locator("article").get_by_role("link", name="Deliveries").click()
    await expect(page.locator("tbody tr")).to_contain_text("poison")
    await page.go_back()
    await page.get_by_role("button", name="Try again …").click()
    await expect(page.locator("h1")).to_contain_text("1 message of the channel local could not be answered")
    await look_over(page)
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(".note:not([hidden])").first).to_contain_text("1 message will be tried again")
    await settled(desk.gateway)
    assert await desk.heard() == "fine"
    await expect(page.locator(".empty")).to_contain_text("All is well")
    await expect(page.locator(BADGE)).to_have_count(0)


async def test_what_is_put_aside_is_not_counted_until_somebody_takes_it_back(open_desk: Open) -> None:
    desk = await open_desk(None)
    (desk.gateway.home / "users").chmod(0o755)
    page = await desk.open("/repairs")
    await expect(page.locator(BADGE)).to_have_text("1 found")
    await page.get_by_role("button", name="Not now").click()
    await expect(page.locator(".note:not([hidden])").first).to_contain_text("counts again when it changes")
    await expect(page.locator(".empty")).to_contain_text("What you put aside stands below")
    await expect(page.locator(BADGE)).to_have_count(0)
    await look_over(page)
    await page.get_by_role("button", name="Count it again").click()
    await expect(page.locator(BADGE)).to_have_text("1 found")


async def test_without_a_script_the_page_and_its_buttons_work(open_desk: Open) -> None:
    desk = await open_desk(None)
    (desk.gateway.home / "users").chmod(0o755)
    browser = desk.context.browser
    assert browser is not None
    plain = await browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800})
    try:
        page = await plain.new_page()
        await page.goto(desk.gateway.web.login_url)
        await page.goto(f"{desk.url}/dashboard/repairs")
        await expect(page.locator("main")).to_contain_text("were not looked at yet. “Look again” does.")
        await page.get_by_role("button", name="Look again").click()
        await expect(page.locator("main")).not_to_contain_text("not looked at yet")
        await page.get_by_role("button", name="Close to others").click()
        await expect(page.locator(".empty")).to_contain_text("All is well")
    finally:
        await plain.close()
