"""The chat page in a real browser, at a phone's width unless it says otherwise."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, Page, Route, expect

from gateway.errors import StoreUnavailable
from gateway.messages import Action, ConversationRef, InboundMessage, OutboundMessage, Sender
from tests.adapters.web.test_convert import PAYLOADS
from tests.browser.conftest import Site, server_of, watched

pytestmark = pytest.mark.browser

MAIN = ConversationRef(channel="web", conversation="main")
RICH = """Three things decide it:

1. **Durability**: a message is committed before anybody is told that it arrived.
2. **Order**: one conversation is answered one message at a time.
3. **Cost**: about `4 ms` per fsync on your disk.

```python
async def accept(message: InboundMessage) -> None:
    await inbox.add(message)  # a comment that makes this line wide enough to scroll on a phone
```

| channel | messages | median |
|:--|--:|--:|
| terminal | 1,204 | 11 ms |
| web | 318 | 14 ms |

> A crash costs at most a repeated model call."""


async def send(page: Page, text: str) -> None:
    await page.fill("#text", text)
    await page.press("#text", "Enter")


async def texts(page: Page, author: Literal["person", "agent"]) -> list[str]:
    return [text.strip() for text in await page.locator(f"#log article.{author} .text").all_inner_texts()]


async def test_a_person_logs_in_writes_and_is_answered(browser: Browser, site: Site) -> None:
    async with watched(browser, site) as page:
        await page.goto(site.server.url)
        assert page.url.endswith("/login?next=%2F")
        await page.fill("#token", "wrong")
        await page.press("#token", "Enter")
        await expect(page.get_by_role("alert")).to_have_text("That is not the token of this gateway.")
        await page.fill("#token", (site.data_dir / "web-token").read_text().strip())
        await page.press("#token", "Enter")
        await expect(page.locator("#welcome")).to_be_visible()
        assert page.url == site.server.url
        await send(page, "hello <b>there</b>")
        await expect(page.locator("#log article.agent strong")).to_have_text("hello <b>there</b>")
        assert await texts(page, "person") == ["hello <b>there</b>"]
        await expect(page.locator("#welcome")).to_be_hidden()
        await expect(page.locator("#pending article, #previews article")).to_have_count(0)
        await expect(page.locator("#text")).to_be_focused()
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_url("**/login")
        await page.goto(site.server.url)
        assert "/login" in page.url


async def test_the_printed_link_leaves_no_token_in_the_address_or_the_history(browser: Browser, site: Site) -> None:
    async with watched(browser, site) as page:
        await page.goto(site.server.login_url)
        assert page.url == site.server.url
        assert await page.evaluate("document.referrer") == ""
        cookies = await page.context.cookies()
        assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
        assert await page.evaluate("document.cookie") == ""
        await page.go_back()
        assert "token" not in page.url


async def test_an_answer_grows_and_is_replaced_in_place(page: Page, site: Site) -> None:
    def so_far(text: str) -> OutboundMessage:
        return OutboundMessage(id="a1", conversation=MAIN, text=text)

    adapter = site.gateway.adapter
    await adapter.show_typing(MAIN)
    await expect(page.locator("#typing")).to_be_visible()
    for text in ("The", "The **answer", "The **answer** is"):
        await adapter.preview(so_far(text))
    await expect(page.locator("#previews strong")).to_have_text("answer")
    await expect(page.locator("#typing")).to_be_hidden()
    await expect(page.get_by_role("button", name="Stop the answer")).to_be_enabled()
    await site.gateway.say(MAIN, "The **answer** is 42.", message_id="a1")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await expect(page.locator("#previews article")).to_have_count(0)
    assert await texts(page, "agent") == ["The answer is 42."]
    await adapter.preview(OutboundMessage(id="a2", conversation=MAIN, text="Never mind"))
    await expect(page.locator("#previews article")).to_have_count(1)
    await adapter.preview(OutboundMessage(id="a2", conversation=MAIN, text=""))
    await expect(page.locator("#previews article")).to_have_count(0)


async def test_after_a_restart_the_page_goes_on_without_loss_or_repetition(page: Page, site: Site) -> None:
    await send(page, "one")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await site.stop()
    await expect(page.locator("#connection")).to_have_text("Reconnecting")
    await send(page, "two")
    await expect(page.locator("#pending article .meta")).to_contain_text("Not sent yet")
    site.gateway.log.add_out(OutboundMessage(id="while-away", conversation=MAIN, text="You were away."))
    await site.restart()
    await expect(page.locator("#log article.agent")).to_have_count(3)
    assert await texts(page, "person") == ["one", "two"]
    assert sorted(await texts(page, "agent")) == ["You said: one", "You said: two", "You were away."]
    await expect(page.locator("#connection")).to_have_attribute("data-state", "connected")
    assert await page.evaluate("Object.keys(localStorage)") == []


async def test_what_was_typed_survives_a_closed_page(page: Page, site: Site) -> None:
    site.gateway.failure = StoreUnavailable("the disk is full")
    await send(page, "keep this")
    await expect(page.locator("#pending article .meta")).to_contain_text("the disk is full")
    await page.fill("#text", "half a thou")
    await page.reload()
    await expect(page.locator("#pending article .text")).to_have_text("keep this")
    await expect(page.locator("#text")).to_have_value("half a thou")
    site.gateway.failure = None  # it is sent again by itself
    await expect(page.locator("#log article.person .text")).to_have_text("keep this")
    await expect(page.locator("#pending article")).to_have_count(0)
    assert [message.text for message in site.gateway.accepted] == ["keep this"]


async def test_an_answer_to_the_post_that_is_lost_makes_no_second_message(page: Page, site: Site) -> None:
    lost: list[str] = []

    async def lose_the_first_answer(route: Route) -> None:
        if not lost:
            lost.append(route.request.post_data or "")
            await route.fetch()
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await page.route("**/messages", lose_the_first_answer)
    await send(page, "once")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await expect(page.locator("#pending article")).to_have_count(0)
    assert await texts(page, "person") == ["once"]
    assert len(site.gateway.accepted) == len(lost) == 1


async def test_an_ended_login_is_told_and_the_draft_stays(page: Page, site: Site) -> None:
    await page.context.clear_cookies()
    await send(page, "written too late")
    await expect(page.get_by_role("alert").first).to_contain_text("Your login has ended")
    await expect(page.locator("#pending article .meta")).to_contain_text("log in again")
    await page.get_by_role("link", name="Log in again").click()
    await page.fill("#token", (site.data_dir / "web-token").read_text().strip())
    await page.press("#token", "Enter")
    await expect(page.locator("#log article.person .text")).to_have_text("written too late")


async def test_a_refused_message_can_be_edited_or_discarded(page: Page, site: Site) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=413, json={"error": "The message is too long."})

    await page.route("**/messages", refuse)
    await send(page, "far too long")
    await expect(page.locator("#pending .failed .meta")).to_contain_text("Not sent. The message is too long.")
    await page.get_by_role("button", name="Edit").click()
    await expect(page.locator("#text")).to_have_value("far too long")
    await send(page, "again")
    await page.get_by_role("button", name="Discard").click()
    await expect(page.locator("#pending article")).to_have_count(0)


async def test_five_megabytes_are_not_pasted_and_what_was_written_stays(page: Page, site: Site) -> None:
    await page.fill("#text", "already here")
    await page.evaluate(
        """() => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text", "lorem ipsum\\n".repeat(420000));
          const event = new ClipboardEvent("paste", {clipboardData, cancelable: true, bubbles: true});
          if (document.getElementById("text").dispatchEvent(event)) throw new Error("it was pasted");
        }"""
    )
    await expect(page.locator("#complaint")).to_contain_text("too long (5,040,000 characters) and was left out")
    await expect(page.locator("#text")).to_have_value("already here")
    await page.press("#text", "Enter")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    assert await texts(page, "person") == ["already here"]


async def test_a_message_above_the_limit_stays_in_the_box(page: Page, site: Site) -> None:
    await page.fill("#text", "x" * 100_001)
    await expect(page.locator("#complaint")).to_contain_text("100,000 characters at most")
    await page.press("#text", "Enter")
    assert len(await page.input_value("#text")) == 100_001
    assert site.gateway.accepted == []


async def test_what_the_model_wrote_runs_nothing_and_fetches_nothing(page: Page, site: Site) -> None:
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for payload in PAYLOADS:
        await site.gateway.say(MAIN, payload)
    await send(page, "<img src=x onerror=alert(1)>")
    await expect(page.locator("#log article.agent")).to_have_count(len(PAYLOADS) + 1)
    assert dialogs == []
    elements = await page.evaluate(
        "[...new Set([...document.querySelectorAll('#log .text *')].map((each) => each.tagName))].sort()"
    )
    assert set(elements).isdisjoint({"SCRIPT", "IMG", "SVG", "IFRAME", "STYLE", "FORM", "OBJECT", "MATH", "INPUT"})
    handlers = "[...document.querySelectorAll('#log .text *')].flatMap((each) => [...each.attributes])"
    assert await page.evaluate(f"{handlers}.filter((each) => each.name.startsWith('on')).length") == 0


async def test_commands_are_completed_with_the_keyboard(page: Page, site: Site) -> None:
    await page.fill("#text", "/")
    await expect(page.get_by_role("option")).to_have_count(6)
    await page.press("#text", "ArrowDown")
    await expect(page.locator("#hints [aria-selected=true]")).to_contain_text("/memory")
    await page.locator("#text").press_sequentially("pe")
    await expect(page.get_by_role("option")).to_have_count(1)
    await page.press("#text", "Tab")
    await expect(page.locator("#text")).to_have_value("/personality ")
    await expect(page.locator("#hints")).to_be_hidden()
    await page.fill("#text", "/help")
    await page.press("#text", "Enter")
    await expect(page.locator("#log article.person .text")).to_have_text("/help")
    assert site.gateway.accepted[0].text == "/help"


async def test_a_choice_is_a_button_that_posts_its_command_also_after_a_reload(page: Page, site: Site) -> None:
    actions = (Action(id="confirm a-b", label="Yes, <i>do</i> it"), Action(id="cancel", label=""))
    await site.gateway.say(MAIN, "Are you sure?", actions=actions)
    await expect(page.locator("#log .choices button")).to_have_text(["Yes, <i>do</i> it", "/cancel"])
    await page.get_by_role("button", name="Yes, <i>do</i> it").click()
    await expect(page.locator("#log article.person .text")).to_have_text("/confirm a-b")
    await expect(page.locator("#text")).to_be_focused()
    await page.reload()
    await page.get_by_role("button", name="/cancel").click()
    await expect(page.locator("#log article.person .text")).to_have_text(["/confirm a-b", "/cancel"])
    assert [message.text for message in site.gateway.accepted] == ["/confirm a-b", "/cancel"]
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360


async def test_a_new_chat_is_a_conversation_of_its_own_and_is_listed(page: Page, site: Site) -> None:
    await send(page, "in the main one")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await page.get_by_role("link", name="New chat").click()
    await expect(page.locator("#welcome")).to_be_visible()
    await send(page, "about the trip")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await expect(page.locator("h1")).to_have_text("about the trip")
    await page.get_by_role("button", name="Conversations").click()
    await expect(page.locator("#sidebar a[aria-current]")).to_have_text("about the trip")
    await page.get_by_role("link", name="Main conversation").click()
    await expect(page.locator("#log article.person .text")).to_have_text("in the main one")
    await page.get_by_role("button", name="Conversations").click()
    await page.keyboard.press("Escape")
    await expect(page.locator("#sidebar")).to_be_hidden()
    await expect(page.locator("#menu")).to_be_focused()


async def test_two_tabs_show_the_same(page: Page, site: Site) -> None:
    other = await page.context.new_page()
    await other.goto(site.server.url)
    await send(page, "hello")
    for each in (page, other):
        await expect(each.locator("#log article.agent")).to_have_count(1)
        assert await texts(each, "person") == ["hello"]


async def test_a_page_of_another_port_of_this_machine_can_read_and_do_nothing(page: Page, site: Site) -> None:
    """It is the same site to the browser, which sends it our cookie."""
    foreign = server_of(site.data_dir / "other", site.gateway, 0, site.sign_ins)
    await foreign.start()
    serving = asyncio.create_task(foreign.serve())
    stranger = await page.context.browser.new_context()  # type: ignore[union-attr]
    await stranger.add_cookies(await page.context.cookies())  # type: ignore[arg-type]
    tab = await stranger.new_page()
    await tab.goto(foreign.url + "login")
    await tab.evaluate("document.querySelector('form').remove()")
    results = await tab.evaluate(
        """async (target) => Promise.all(["events?conversation=main", "messages", "logout"].map((path, index) =>
            fetch(target + path, {method: index ? "POST" : "GET", mode: "no-cors", credentials: "include"})
              .then((response) => response.type, () => "failed")))""",
        site.server.url,
    )
    assert set(results) <= {"failed", "opaque"}
    assert site.gateway.accepted == []
    await stranger.close()
    await foreign.stop()
    await serving


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1180])
async def test_nothing_is_wider_than_the_screen(
    browser: Browser, site: Site, tmp_path: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    """Also takes the pictures; they are kept where ETHOS_SCREENSHOTS names a directory."""
    question = InboundMessage(
        id="q1", event_id="q1", conversation=MAIN, text="What makes a chat gateway lose messages?",
        sender=Sender(channel="web", user="operator", display_name="Ada", is_verified=True),
        sent_at=datetime.now(UTC),
    )  # fmt: skip
    site.gateway.log.add_in(question)
    await site.gateway.say(MAIN, RICH)
    await site.gateway.say(MAIN, "w" * 400 + " " + "https://example.org/" + "long/" * 60)
    pictures = Path(os.environ.get("ETHOS_SCREENSHOTS", tmp_path))
    async with watched(browser, site, viewport={"width": width, "height": 740}, color_scheme=scheme) as page:
        await page.goto(site.server.login_url)
        await expect(page.locator("#log article")).to_have_count(3)
        await page.locator("#log article").first.scroll_into_view_if_needed()
        await page.screenshot(path=pictures / f"chat-{width}-{scheme}.png")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await page.evaluate("document.getElementById('scroll').scrollWidth") <= width
        box = await page.locator("#send").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 740
        background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, background[4:-1].split(","))) < 384) == (scheme == "dark")
