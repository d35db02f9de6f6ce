"""A real gateway with its dashboard, in the test's own event loop, and axe to look over its pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from gateway.app.gateway import Gateway
from tests.browser.dashboard.writing import MAIN, write
from tests.gateway.way.conftest import House

DESKTOP, PHONE = (1280, 900), (360, 740)
WCAG_AA = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}
Scheme = Literal["light", "dark"]


@dataclass
class Desk:
    """A running gateway, and a browser whose operator is logged in."""

    gateway: Gateway
    context: BrowserContext
    page: Page

    @property
    def url(self) -> str:
        assert self.gateway.web is not None
        return self.gateway.web.url.rstrip("/")

    async def open(self, path: str) -> Page:
        """A page of the dashboard, in the one tab."""
        await self.page.goto(f"{self.url}/dashboard{path}")
        return self.page

    async def say(self, text: str, *, conversation: str = "main", quoted: str = "") -> None:
        """A message of the operator, through the whole gateway to its answer; perhaps with a mail quoted in it."""
        await write(self.gateway, text, conversation=conversation, quoted=quoted)

    async def heard(self) -> str:
        """What the agent answered last, in the main conversation."""
        entries = await self.gateway.store.log.read(MAIN, limit=1, newest=True)
        return entries[-1].text

    async def log_out_elsewhere(self) -> None:
        """The session ends, and the open page does not know."""
        await self.context.clear_cookies()

    async def log_in(self, page: Page) -> None:
        """With the token, on a page that asks for it."""
        await page.fill("#token", (self.gateway.home / "web-token").read_text().strip())
        await page.press("#token", "Enter")


@asynccontextmanager
async def visiting(browser: Browser, gateway: Gateway, **settings: Any) -> AsyncIterator[tuple[BrowserContext, Page]]:
    """A logged-in browser; fails on an error in a page, on what the policy refuses, and on requests to others."""
    assert gateway.web is not None
    context = await browser.new_context(**settings)
    context.set_default_timeout(60_000)
    faults: list[str] = []

    def asked(request: Request) -> None:
        if gateway.web is not None and not request.url.startswith(gateway.web.url):
            faults.append(f"asked somebody else: {request.url}")

    def said(message: ConsoleMessage) -> None:
        if "Content Security" in message.text:
            faults.append(message.text)

    context.on("request", asked)
    context.on("console", said)
    context.on("weberror", lambda error: faults.append(str(error.error)))
    page = await context.new_page()
    try:
        await page.goto(gateway.web.login_url)
        yield context, page
    finally:
        await context.close()
    assert faults == []


Open = Callable[..., Awaitable[Desk]]


@pytest.fixture
async def open_desk(browser: Browser, tmp_path: Path) -> AsyncIterator[Open]:
    """Start a gateway with these settings, and log a browser in; both end with the test."""
    async with asyncio.timeout(300):
        stack: list[Any] = []

        async def start(model: Any = None, /, *, viewport: tuple[int, int] = DESKTOP, **settings: Any) -> Desk:
            settings.setdefault("channels", {})
            served = House(tmp_path / "home").served(model, **settings)
            gateway = await served.__aenter__()
            stack.append(served)
            await gateway.supervisor.all_tried.wait()
            visit = visiting(browser, gateway, viewport={"width": viewport[0], "height": viewport[1]})
            context, page = await visit.__aenter__()
            stack.append(visit)
            return Desk(gateway, context, page)

        try:
            yield start
        finally:
            for entered in reversed(stack):
                await entered.__aexit__(None, None, None)


async def axe_violations(page: Page, *, without: Sequence[str] = ()) -> list[str]:
    """What axe finds on a page as it is, by WCAG 2.2 AA and its own good practice; one line each."""
    found = await Axe().run(page, options=WCAG_AA)
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]} {node['failureSummary']}"
        for violation in found.response["violations"]
        if violation["id"] not in without
        for node in violation["nodes"]
    ]


async def look_over(page: Page) -> None:
    """No violations in light and dark, at a desktop's and at a phone's width, and nothing to be scrolled aside."""
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        for width, height in (DESKTOP, PHONE):
            await page.set_viewport_size({"width": width, "height": height})
            assert await axe_violations(page) == [], (page.url, scheme, width)
            overflow = await page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert overflow <= 0, (page.url, scheme, width, "the page is wider than the window")
