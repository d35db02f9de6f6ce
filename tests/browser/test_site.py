"""The pages as a site, opened from its folder: no server, nothing from elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.dashboard.conftest import DESKTOP, axe_violations, look_over

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SEEN = ("docs/index", "docs/memory", "docs/commands", "README")


@pytest.fixture
async def site(browser: Browser, tmp_path: Path) -> AsyncIterator[Page]:
    """What `make docs` makes, without a warning, in a tab that notes each address that is not of the folder."""
    command = ("-m", "sphinx", "-b", "html", "-c", "docs", "-W", "--keep-going", "-q", ".", str(tmp_path))
    building = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, said = await building.communicate()
    assert building.returncode == 0, said.decode()
    context = await browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]}, color_scheme="light")
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = await context.new_page()
    await page.goto((tmp_path / "index.html").as_uri())
    await page.wait_for_url("**/docs/index.html")
    yield page
    await context.close()
    assert [url for url in asked if not url.startswith((tmp_path.as_uri(), "data:"))] == []


async def test_the_site_has_search_light_and_dark_a_phones_layout_and_passes_axe(site: Page) -> None:
    folder = site.url.removesuffix("docs/index.html")
    await site.get_by_placeholder("Search").fill("cron")
    await site.keyboard.press("Enter")
    found = site.locator("#search-results a", has_text="Schedules").first
    await expect(found).to_be_visible()
    assert await axe_violations(site, without=["page-has-heading-one"]) == []  # Sphinx begins there with the second
    await found.click()
    await expect(site.get_by_role("heading", level=1)).to_contain_text("Schedules")

    paper = "getComputedStyle(document.body).backgroundColor"
    light = await site.evaluate(paper)
    await site.emulate_media(color_scheme="dark")
    assert await site.evaluate(paper) != light

    for name in SEEN:
        await site.goto(f"{folder}{name}.html")
        await look_over(site)
