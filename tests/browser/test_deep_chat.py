"""deep-chat, a chat for web pages that others made, on a page of the gateway's own address: it speaks `/v1` itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from gateway.app.gateway import Gateway
from tests.gateway.openai.conftest import key_of, sessions_of, texts_of
from tests.gateway.way.conftest import House
from tests.scripted_model import Hang, ScriptedModel
from tests.servers.npm import PROGRAMS

BUNDLE = PROGRAMS / "deep-chat" / "dist" / "deepChat.bundle.js"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not BUNDLE.exists(), reason="needs npm: deploy/install-test-packages"),
]
HEAD = '<!doctype html><meta charset="utf-8"><title>Chat</title><script type="module" src="/deep-chat.js"></script>'
DOCS = Path(__file__).parents[2] / "docs" / "openai.md"
EXAMPLE = DOCS.read_text(encoding="utf-8").partition("```html\n")[2].partition("```")[0]


async def shown(browser: Browser, gateway: Gateway, key: str, form: str, path: str) -> Page:
    """A page of the operator's, beside the gateway's own: as a proxy in front of both shows it."""
    page = await browser.new_page()

    async def own(route: Route) -> None:
        if route.request.url.endswith(".js"):
            await route.fulfill(path=BUNDLE, content_type="text/javascript")
        else:
            shown = EXAMPLE.replace("ethos_…", key).replace("completions", form, 1).replace("chat/completions", path)
            await route.fulfill(body=HEAD + shown, content_type="text/html; charset=utf-8")

    await page.route("**/deep-chat.*", own)
    await page.goto(f"{gateway.web.url}deep-chat.html")
    return page


@pytest.mark.parametrize(("form", "path"), [("completions", "chat/completions"), ("chat", "responses")])
async def test_it_talks_in_one_session_and_shows_the_answer_as_it_grows(
    browser: Browser, tmp_path: Path, form: str, path: str
) -> None:
    first, second = Hang(), Hang()
    model = ScriptedModel(["Hello Ada. ", first, "How are you?"], ["Your name ", second, "is Ada"])
    async with House(tmp_path / "home").served(model) as gateway:
        page = await shown(browser, gateway, await key_of(gateway), form, path)
        typed = page.locator("#text-input")
        await typed.click()
        await page.keyboard.type("I am Ada")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Hello Ada.")).to_be_visible()
        first.released.set()
        await expect(page.get_by_text("Hello Ada. How are you?")).to_be_visible()
        await typed.click()
        await page.keyboard.type("What is my name?")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Your name")).to_be_visible()
        second.released.set()
        await expect(page.get_by_text("Your name is Ada")).to_be_visible()
        [session] = await sessions_of(gateway)
        assert await texts_of(gateway, session) == [
            *("I am Ada", "Hello Ada. How are you?"),
            *("What is my name?", "Your name is Ada"),
        ]
        assert not session.session.is_tainted
