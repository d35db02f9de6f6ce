"""The page of tools, in a real browser: what waits for a yes is read whole and decided, and calls are listed."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gateway.store.engine import statement
from gateway.tools import own as tools
from gateway.tools.contract import Arguments, Tool, ToolContext
from tests.browser.dashboard.conftest import Open, look_over
from tests.gateway.way.conftest import settled
from tests.scripted_model import ScriptedModel, call

pytestmark = pytest.mark.browser


class To(Arguments):
    to: str
    text: str = "hello"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a tool has sent that acts."""
    made: list[str] = []

    async def send(arguments: To, _context: ToolContext) -> str:
        made.append(arguments.to)
        return "sent"

    post = Tool(name="post", description="Sends.", arguments=To, call=send, effect="act", destination=("to",))
    monkeypatch.setattr(tools, "CURRENT_TIME", post)
    return made


async def test_what_waits_is_decided_and_a_grant_is_revoked(open_desk: Open, sent: list[str]) -> None:
    calls = [call("post", f'{{"to": "{name}", "text": "<b>\u202ehi"}}', id=name) for name in ("ada", "ben", "eve")]
    desk = await open_desk(ScriptedModel(calls, "They will be sent.", "It is sent.", "It is sent, too."))
    page = await desk.open("/tools/approvals")
    await expect(page.get_by_role("heading", name="Nothing waits for a yes")).to_be_visible()
    await expect(page.locator("#live")).to_have_text("Live")
    await desk.say("post them")
    first = page.get_by_role("region", name="Number 1")
    await expect(first.get_by_label("text")).to_have_text("<b>⟨U+202E⟩hi")
    await expect(first.get_by_label("to")).to_have_text("ada")
    await look_over(page)
    await first.get_by_role("button", name="Yes", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="Number 1 has its yes")).to_be_visible()
    await settled(desk.gateway)
    assert sent == ["ada"]
    await page.get_by_role("region", name="Number 2").get_by_role("button", name="No", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="Number 2 is dropped;")).to_be_visible()
    await page.get_by_role("region", name="Number 3").get_by_role("button", name="Yes, always").click()
    granted = page.get_by_role("region", name="Not asked for any more").locator("tbody tr")
    await expect(granted).to_contain_text('{"to":"eve"}')
    await look_over(page)
    await granted.get_by_role("button", name="Revoke").click()
    await expect(granted).to_have_count(0)
    await settled(desk.gateway)
    assert sent == ["ada", "eve"]


async def test_what_has_expired_is_asked_again(open_desk: Open, sent: list[str]) -> None:
    desk = await open_desk(ScriptedModel([call("post", '{"to": "ada"}', id="c1")], "It will be sent.", "It is sent."))
    page = await desk.open("/tools/approvals")
    await expect(page.locator("#live")).to_have_text("Live")
    await desk.say("post it")
    first = page.get_by_role("region", name="Number 1")
    await expect(first).to_be_visible()
    await desk.gateway.store.engine.write(statement("UPDATE approvals SET expires_at = asked_at WHERE id = ?", (1,)))
    await first.get_by_role("button", name="Yes", exact=True).click()
    await expect(page.get_by_role("alert").filter(has_text="and has expired; it can be asked again")).to_be_visible()
    late = page.get_by_role("region", name="Number 1, expired")
    await expect(late.get_by_label("to")).to_have_text("ada")
    await look_over(page)
    await desk.gateway.store.engine.write(statement("UPDATE approvals SET asked_at = 0 WHERE id = ?", (1,)))
    await late.get_by_role("button", name="Ask again").click()
    await expect(page.get_by_role("status").filter(has_text="Number 2 asks for it again.")).to_be_visible()
    await expect(late).to_have_count(0)
    await page.get_by_role("region", name="Number 2").get_by_role("button", name="Yes", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="Number 2 has its yes")).to_be_visible()
    await settled(desk.gateway)
    assert sent == ["ada"]


async def test_calls_are_listed_with_their_outcome(open_desk: Open, sent: list[str]) -> None:
    desk = await open_desk(ScriptedModel([call("post", '{"to": "ada"}', id="c1")], "It will be sent."))
    page = await desk.open("/tools")
    await expect(page.get_by_role("heading", name="No tool was called")).to_be_visible()
    await expect(page.locator("#live")).to_have_text("Live")
    await desk.say("post it")
    row = page.locator("#list tbody tr")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("Waits for a yes")
    await expect(row.get_by_role("rowheader")).to_contain_text("post acts on the world")
    await look_over(page)
    await page.get_by_role("link", name="1 call waits for a yes").click()
    await expect(page.get_by_role("heading", name="1: post")).to_be_visible()
    assert sent == []
