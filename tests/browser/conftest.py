"""A real browser, and a gateway to look at. Without Chromium these tests are skipped, and say what to install."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Request, async_playwright, expect

from gateway.web.server import WebServer
from tests.adapters.web.scripted_gateway import ScriptedGateway, stream_echo
from tests.fake_sign_ins import FakeSignIns

expect.set_options(timeout=60_000)  # the machine may be busy

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Site:
    """A gateway with its pages, which can be stopped and started again on the same port."""

    data_dir: Path
    gateway: ScriptedGateway
    server: WebServer
    sign_ins: FakeSignIns
    serving: asyncio.Task[None] = field(init=False)

    async def start(self) -> None:
        await self.server.start()
        self.serving = asyncio.create_task(self.server.serve())
        await self.gateway.start()

    async def stop(self) -> None:
        await self.gateway.stop()
        await self.server.stop()
        await self.serving

    async def restart(self) -> None:
        """What is in the log stays, as it would on disk."""
        self.gateway = ScriptedGateway(self.data_dir / "web", answer=stream_echo, log=self.gateway.log)
        port = int(self.server.url.rsplit(":", 1)[1].strip("/"))
        self.server = server_of(self.data_dir, self.gateway, port, self.sign_ins)
        await self.start()


def server_of(data_dir: Path, gateway: ScriptedGateway, port: int, sign_ins: FakeSignIns) -> WebServer:
    async def health() -> dict[str, Any]:
        return {"status": "ok"}

    return WebServer(data_dir=data_dir, adapters=[gateway.adapter], health=health, sign_ins=sign_ins, port=port)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = ScriptedGateway(tmp_path / "web", answer=stream_echo)
    sign_ins = FakeSignIns()
    site = Site(tmp_path, gateway, server_of(tmp_path, gateway, 0, sign_ins), sign_ins)
    await site.start()
    yield site
    await site.stop()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("no Chromium here: apt-get update && apt-get install -y chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@asynccontextmanager
async def watched(browser: Browser, site: Site, **settings: Any) -> AsyncIterator[Page]:
    """A page in a browser of its own; fails on an error in it, and on any request that leaves the gateway."""
    context = await browser.new_context(**settings)
    context.set_default_timeout(60_000)
    page = await context.new_page()
    strangers: list[str] = []
    faults: list[str] = []

    def look(request: Request) -> None:
        if not request.url.startswith(site.server.url):
            strangers.append(request.url)

    context.on("request", look)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
    try:
        yield page
    finally:
        await context.close()
    assert strangers == [], "the page asked somebody else"
    assert faults == []


@pytest.fixture
async def page(browser: Browser, site: Site) -> AsyncIterator[Page]:
    """Logged in, in the default conversation, connected."""
    async with watched(browser, site, viewport={"width": 360, "height": 740}) as page:
        await page.goto(site.server.login_url)
        await page.wait_for_selector("#connection[data-state=connected]", state="attached")
        yield page
