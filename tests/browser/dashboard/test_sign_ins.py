"""The page of the sign-ins, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.browser.dashboard.conftest import Open

pytestmark = pytest.mark.browser


async def test_another_browser_is_seen_and_signed_out_at_once(open_desk: Open, browser: Browser) -> None:
    desk = await open_desk()
    other = await browser.new_context(
        user_agent="Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    )
    try:
        theirs = await other.new_page()
        assert desk.gateway.web is not None
        await theirs.goto(desk.gateway.web.login_url)
        await theirs.goto(f"{desk.url}/dashboard/channels")
        await expect(theirs.locator("#live")).to_have_text("Live")
        page = await desk.open("/sign-ins")
        row = page.get_by_role("row").filter(has_text="Firefox on Linux")
        await expect(row).to_contain_text("just now")
        await row.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("status").filter(has_text="The browser is signed out.")).to_be_visible()
        await expect(row).to_have_count(0)
        await expect(theirs.locator("#expired")).to_be_visible()
        await theirs.goto(f"{desk.url}/dashboard/memory")
        assert "/login" in theirs.url
    finally:
        await other.close()


async def test_signing_this_browser_out_leads_to_the_login(open_desk: Open) -> None:
    page = await (await open_desk()).open("/sign-ins")
    row = page.get_by_role("row").filter(has_text="This browser")
    await row.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
