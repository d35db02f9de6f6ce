"""A browser at one worker, the turns in the process of another: the pages show what that one does, as it does it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from gateway.app.gateway import Gateway
from gateway.services.caller import operator
from tests.browser.dashboard.conftest import Desk, visiting
from tests.browser.dashboard.test_chatting import begun, say
from tests.gateway.cluster.test_gateways import SECRET, serving
from tests.model_formats import Answer, Call, Failure
from tests.model_server import ModelServer

pytestmark = pytest.mark.browser

# Each keeps a connection, of which a browser opens six to one server.
TABS = ("usage", "sessions", "memory", "deliveries")


def home_of(home: Path, url: str, role: str, model_url: str) -> Path:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(
        f"secret: '${{ROOT}}'\nstore: {{url: '{url}', connections: 4}}\nworker: {{name: {role}, roles: [{role}]}}\n"
        "web: {port: 0}\nmodel: real\nmodels:\n"
        f"  real: {{provider: openai, model: m-1, base_url: '{model_url}', api_key: none, max_retries: 0}}\n"
    )
    return home


@contextlib.asynccontextmanager
async def elsewhere(home: Path, seen_by: Gateway) -> AsyncIterator[None]:
    """A process that serves this directory, from the moment at which the other worker sees it."""
    with home.with_name("log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", "serve", "--no-chat"),
            env={**os.environ, "ETHOS_HOME": str(home), "ROOT": SECRET},
            stdout=log,
            stderr=log,
        )
    try:
        while len(await seen_by.cluster.workers()) < 2:
            assert process.returncode is None, home.with_name("log").read_text()
            await asyncio.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


@contextlib.asynccontextmanager
async def two_workers(browser: Browser, model: ModelServer, url: str, directory: Path) -> AsyncIterator[Desk]:
    """A logged-in browser at one that serves pages alone, and a process that answers alone."""
    turns = home_of(directory / "turns", url, "turns", model.openai_url)
    async with (
        serving(home_of(directory / "web", url, "web", model.openai_url)) as (gateway, _),
        elsewhere(turns, gateway),
        visiting(browser, gateway) as (context, page),
    ):
        told = await gateway.services.system.workers(operator("test"))
        assert sorted(one.roles for one in told) == [("turns",), ("web",)]
        yield Desk(gateway, context, page)


async def test_pages_of_one_worker_show_what_turns_of_another_do(
    browser: Browser, postgres_url: str, tmp_path: Path
) -> None:
    async with (
        asyncio.timeout(300),
        ModelServer() as model,
        two_workers(browser, model, postgres_url, tmp_path) as desk,
    ):
        pages = {name: await opened(desk, name) for name in TABS}
        model.script([Answer(text="Hello.")])
        chat = await begun(desk, "hello")
        await expect(chat.locator("#log article.agent .text")).to_have_text("Hello.")
        await _streams_an_answer(chat, model)
        await _ends_an_answer(chat, model)
        await _remembers(chat, model, pages["memory"])
        await _waits(chat, model, pages["deliveries"])
        await expect(pages["usage"].get_by_role("img", name="Tokens per day, 30 days")).to_be_visible()
        await expect(pages["sessions"].locator(".session")).to_have_count(1)
        for name, page in (*pages.items(), ("chat", chat)):
            assert await page.evaluate("window.isKept"), f"{name} was loaded again"


async def opened(desk: Desk, name: str) -> Page:
    """A page in a tab of its own, that follows what happens."""
    page = await desk.context.new_page()
    await page.goto(f"{desk.url}/dashboard/{name}")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.evaluate("window.isKept = true")
    return page


async def _streams_an_answer(chat: Page, model: ModelServer) -> None:
    await chat.evaluate("window.isKept = true")
    rest = asyncio.Event()
    model.script([Answer(text="The **first** half, and the rest.", rest=rest, fault_after=3)])
    await say(chat, "and now?")
    await expect(chat.locator("#previews strong")).to_have_text("first")
    rest.set()
    await expect(chat.locator("#log article.agent .text").last).to_have_text("The first half, and the rest.")
    await expect(chat.locator("#previews article")).to_have_count(0)


async def _ends_an_answer(chat: Page, model: ModelServer) -> None:
    model.script([Answer(text="It goes on and on", fault="hang", fault_after=3)])
    await say(chat, "and then?")
    await expect(chat.locator("#previews .text")).to_have_text("It goes on")
    await chat.get_by_role("button", name="Stop the answer").click()
    await expect(chat.locator("#previews article")).to_have_count(0)
    await expect(chat.locator("#log article.agent .text").last).to_contain_text("topped")


async def _remembers(chat: Page, model: ModelServer, memory: Page) -> None:
    document, rest = memory.get_by_role("region", name="USER.md"), asyncio.Event()
    note = {"action": "add", "store": "user", "content": "Name: Ada"}
    calls = (Call(name="update_memory", arguments=json.dumps(note)),)
    model.script([Answer(calls=calls), Answer(text="I will.", rest=rest, fault_after=1)])
    await say(chat, "remember that my name is Ada")
    await expect(chat.locator("#previews")).to_contain_text("I")
    rest.set()
    await expect(document).to_contain_text("Name: Ada")


async def _waits(chat: Page, model: ModelServer, deliveries: Page) -> None:
    model.script([Failure(status=503)], repeats=True)
    await say(chat, "are you there?")
    await expect(deliveries.locator("tr", has_text="are you there?")).to_contain_text("Waits for a model")
    await expect(chat.locator("#log article.agent").last).to_contain_text("Your message is kept")
