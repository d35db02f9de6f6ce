"""The chat page in a real browser: what is typed is not lost, what is said comes once, and everyone can use it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs

import pytest
from playwright.async_api import Browser, Route, expect

from gateway.app.gateway import Gateway
from gateway.errors import StoreUnavailable
from gateway.messages import OutboundMessage
from tests.browser.dashboard.conftest import Open, axe_violations, visiting
from tests.browser.dashboard.test_chatting import begun, said, say
from tests.gateway.way.conftest import House, settled
from tests.gateway.web.test_markdown import PAYLOADS
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.browser

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


def fail_to_keep(monkeypatch: pytest.MonkeyPatch, gateway: Gateway) -> Callable[[], None]:
    """The disk is full; gives what mends it."""
    is_full = True
    keep = gateway.inbox.accept

    async def refuse(*asked: object) -> object:
        if is_full:
            raise StoreUnavailable("the disk is full")
        return await keep(*asked)  # type: ignore[arg-type]

    def mend() -> None:
        nonlocal is_full
        is_full = False

    monkeypatch.setattr(gateway.inbox, "accept", refuse)
    return mend


async def test_a_newcomer_logs_in_and_writes_at_once(browser: Browser, open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("You said **it**."))
    page = desk.page
    assert page.url == f"{desk.url}/dashboard/chat", "the printed link leads there"
    await page.get_by_role("button", name="Log out").click()
    await page.wait_for_url("**/login")
    await page.goto(desk.url)
    assert page.url.endswith("/login?next=%2F")
    await page.fill("#token", "wrong")
    await page.press("#token", "Enter")
    await expect(page.get_by_role("alert")).to_have_text("That is not the token of this gateway.")
    await desk.log_in(page)
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(page.locator("#text")).to_be_focused()
    await page.keyboard.type("hello <b>there</b>")
    await page.keyboard.press("Enter")
    await expect(page.locator("#log article.agent strong")).to_have_text("it")
    assert await said(page, "person") == ["hello <b>there</b>"]
    await expect(page.locator("#pending article, #previews article")).to_have_count(0)
    await expect(page.locator("#text")).to_be_focused()


async def test_the_printed_link_leaves_no_token_in_the_address_or_the_history(open_desk: Open) -> None:
    page = (await open_desk()).page
    assert await page.evaluate("document.referrer") == ""
    cookies = await page.context.cookies()
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
    assert await page.evaluate("document.cookie") == ""
    await page.go_back()
    assert "token" not in page.url


async def test_an_idea_is_put_into_the_box_and_sent_by_the_person(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("Much."))
    page = await desk.open("/chat")
    await page.get_by_role("button", name="What can you do?").click()
    await expect(page.locator("#text")).to_have_value("What can you do?")
    await expect(page.locator("#text")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#log article.agent .text")).to_have_text("Much.")


async def test_a_withdrawn_preview_disappears(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One."))
    page = await begun(desk, "hello")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    [session, *_] = await desk.gateway.store.sessions.list_sessions()
    for text in ("Never mind", ""):
        await desk.gateway.local_channel.preview(OutboundMessage(id="a2", conversation=session.conversation, text=text))
        await expect(page.locator("#previews article")).to_have_count(1 if text else 0)


async def test_after_a_restart_the_page_goes_on_without_loss_or_repetition(browser: Browser, tmp_path: Path) -> None:
    house, port = House(tmp_path / "home"), 0
    async with house.served(ScriptedModel("One."), channels={}) as gateway:
        assert gateway.web is not None
        port = gateway.web._port or 0
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(gateway.web.login_url)
        await say(page, "one")
        await expect(page.locator("#log article.agent")).to_have_count(1)
        await expect(page.locator("#connection")).to_have_text("Connected")
    await expect(page.locator("#connection")).to_have_text("Reconnecting")
    await say(page, "two")
    await expect(page.locator("#pending article .meta")).to_contain_text("Not sent yet")
    other = await context.new_page()
    async with house.served(ScriptedModel("Two."), channels={}, web={"port": port}):
        await expect(page.locator("#log article.agent")).to_have_count(2)
        assert await said(page, "person") == ["one", "two"]
        assert await said(page, "agent") == ["One.", "Two."]
        await expect(page.locator("#connection")).to_have_attribute("data-state", "connected")
        assert await page.evaluate("Object.keys(localStorage)") == []
        await other.goto(page.url)
        assert await said(other, "agent") == ["One.", "Two."]
    await context.close()


@pytest.mark.parametrize("where", ["in a conversation", "where one begins"])
async def test_what_was_typed_survives_a_closed_page(
    open_desk: Open, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."))
    page = await (begun(desk, "first") if where == "in a conversation" else desk.open("/chat"))
    mend = fail_to_keep(monkeypatch, desk.gateway)
    await say(page, "keep this")
    await expect(page.locator("#pending article .meta")).to_contain_text("the disk is full")
    await page.fill("#text", "half a thou")
    await page.reload()
    await expect(page.locator("#pending article .text")).to_have_text("keep this")
    await expect(page.locator("#text")).to_have_value("half a thou")
    mend()  # it is sent again without a word
    await expect(page.locator("#log article.person .text").last).to_have_text("keep this")
    await expect(page.locator("#pending article")).to_have_count(0)
    await expect(page.locator("#text")).to_have_value("half a thou")
    await settled(desk.gateway)
    assert (await said(page, "person")).count("keep this") == 1


async def test_a_conversation_whose_first_answer_is_lost_on_the_line_begins_once(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."))
    page = await desk.open("/chat")
    lost: list[str] = []

    async def lose_the_first_answer(route: Route) -> None:
        if not lost:
            lost.append(route.request.post_data or "")
            await route.fetch()
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await page.route("**/chat/messages", lose_the_first_answer)
    await say(page, "once")
    await say(page, "and then")  # goes where the first one went
    await expect(page.locator("#log article.agent")).to_have_count(2)
    assert await said(page, "person") == ["once", "and then"]
    assert len(await desk.gateway.store.sessions.list_sessions()) == len(lost) == 1


@pytest.mark.parametrize("size", [20, 4_000_000])
async def test_files_that_are_chosen_while_a_conversation_begins_are_not_lost(
    open_desk: Open, tmp_path: Path, size: int
) -> None:
    """Small ones come along to the conversation; what no browser keeps holds the page until it is sent."""
    model = ScriptedModel("One.", "Two.")
    desk = await open_desk(model)
    page = await desk.open("/chat")
    is_chosen = asyncio.Event()

    async def wait(route: Route) -> None:
        await is_chosen.wait()
        await route.continue_()

    await page.route("**/chat/messages", wait)
    await say(page, "first")
    (tmp_path / "plan.txt").write_text("x" * size)
    await page.set_input_files("#file", [tmp_path / "plan.txt"])
    await expect(page.locator("#files li")).to_contain_text("plan.txt")
    is_chosen.set()
    if size > 100:
        await expect(page.locator("#complaint")).to_contain_text("Send or remove these files")
        await expect(page.locator("#files li")).to_contain_text("plan.txt")
    else:
        await expect(page.locator("#log article.agent")).to_have_count(1)
        await expect(page.locator("#files li")).to_contain_text("plan.txt")
    await say(page, "read this")
    await expect(page.locator("#log article.agent")).to_have_count(2)
    assert await said(page, "person") == ["first", "read this"]
    await expect(page.locator("#files li")).to_have_count(0)
    assert ["plan.txt" in str(request) for request in model.requests] == [False, True]
    assert await page.evaluate("Object.keys(localStorage)") == []


async def test_a_refused_message_can_be_discarded(open_desk: Open) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=413, json={"error": "The message is too long."})

    page = await (await open_desk()).open("/chat")
    await page.route("**/chat/messages", refuse)
    await say(page, "far too long")
    await expect(page.locator("#pending .failed .meta")).to_contain_text("Not sent. The message is too long.")
    await page.get_by_role("button", name="Discard").click()
    await expect(page.locator("#pending article")).to_have_count(0)
    assert await page.evaluate("Object.keys(localStorage)") == []


async def test_five_megabytes_are_not_pasted_and_what_was_written_stays(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One."))
    page = await desk.open("/chat")
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
    assert await said(page, "person") == ["already here"]


async def test_a_message_above_the_limit_stays_in_the_box(open_desk: Open) -> None:
    page = await (await open_desk()).open("/chat")
    await page.fill("#text", "x" * 1_000_001)
    await expect(page.locator("#complaint")).to_contain_text("1,000,000 characters at most")
    await page.press("#text", "Enter")
    assert len(await page.input_value("#text")) == 1_000_001
    await expect(page.locator("#pending article")).to_have_count(0)


async def test_what_the_model_wrote_runs_nothing_and_fetches_nothing(open_desk: Open) -> None:
    payloads = [payload for payload in PAYLOADS if len(payload) < 1_000]
    desk = await open_desk(ScriptedModel(*payloads))
    page = await begun(desk, "<img src=x onerror=alert(1)>")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for number in range(1, len(payloads)):
        await say(page, f"more {number}")
    await expect(page.locator("#log article.agent")).to_have_count(len(payloads))
    for is_from_the_page in (False, True):
        if is_from_the_page:
            await page.reload()
        elements = await page.evaluate(
            "[...new Set([...document.querySelectorAll('#log .text *')].map((each) => each.tagName))].sort()"
        )
        assert set(elements).isdisjoint({"SCRIPT", "IMG", "SVG", "IFRAME", "STYLE", "FORM", "OBJECT", "MATH", "INPUT"})
        attributes = "[...document.querySelectorAll('#log .text *')].flatMap((each) => [...each.attributes])"
        assert await page.evaluate(f"{attributes}.filter((each) => each.name.startsWith('on')).length") == 0
    assert dialogs == []


async def test_commands_and_what_may_follow_them_are_completed_with_the_keyboard(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One."))
    page = await desk.open("/chat")
    await page.fill("#text", "/")
    await expect(page.locator("#hints li").first).to_contain_text("/help")
    await page.press("#text", "ArrowDown")
    await expect(page.locator("#hints [aria-selected=true]")).to_contain_text("/new")
    await page.locator("#text").press_sequentially("per")
    await expect(page.locator("#hints li")).to_have_count(1)
    await page.press("#text", "Tab")
    await expect(page.locator("#text")).to_have_value("/personality ")
    await page.locator("#text").press_sequentially("eng")
    await page.press("#text", "Enter")
    await expect(page.locator("#text")).to_have_value("/personality engineer")
    await page.press("#text", "Escape")
    await expect(page.locator("#hints")).to_be_hidden()
    await page.fill("#text", "/help")
    await page.press("#text", "Enter")
    await expect(page.locator("#log article.person .text")).to_have_text("/help")


async def test_a_choice_is_a_button_that_says_its_command_also_after_a_reload_and_without_a_script(
    browser: Browser, open_desk: Open
) -> None:
    desk = await open_desk(ScriptedModel("One."))
    page = await begun(desk, "/forget-me")
    choice = page.get_by_role("button", name="Erase everything about me")
    await expect(choice).to_be_visible()
    assert await axe_violations(page) == []
    await page.reload()
    command = await choice.get_attribute("title")
    assert command is not None
    assert command.startswith("/forget-me ")
    async with visiting(browser, desk.gateway, java_script_enabled=False) as (_, plain):
        await plain.goto(page.url)
        await plain.route("**/chat/send", lambda route: route.fulfill(status=204))
        async with plain.expect_request("**/chat/send") as request:
            await plain.get_by_role("button", name="Erase everything about me").click()
        sent = parse_qs((await request.value).post_data or "")
        assert sent["choice"] == [command]
    await choice.click()
    await expect(page.locator("#log article.person .text")).to_have_text(["/forget-me", command])
    await expect(page.locator("#text")).to_be_focused()


async def test_the_conversations_are_listed_beside_the_one_that_is_open(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."), viewport=(360, 740))
    await begun(desk, "about the house")
    page = await begun(desk, "about the trip")
    await expect(page.get_by_role("heading", level=1)).to_have_text("about the trip")
    await page.get_by_role("button", name="Conversations").click()
    await expect(page.locator("#conversations a[aria-current]")).to_have_text("about the trip")
    assert await axe_violations(page) == []
    await page.keyboard.press("Escape")
    await expect(page.locator("#conversations")).to_be_hidden()
    await expect(page.get_by_role("button", name="Conversations")).to_be_focused()
    await page.get_by_role("button", name="Conversations").click()
    await page.get_by_role("link", name="about the house").click()
    await expect(page.locator("#log article.person .text")).to_have_text("about the house")
    await page.get_by_role("link", name="New").click()
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(page.locator("#chats li > a")).to_have_text(["about the trip", "about the house"])


async def test_two_tabs_show_the_same_and_an_answer_can_be_copied_after_a_reload(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "**Two.**"))
    page = await begun(desk, "hello")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(other.locator("#connection")).to_have_text("Connected")
    await say(page, "again")
    for each in (page, other):
        await expect(each.locator("#log article.agent")).to_have_count(2)
        assert await said(each, "person") == ["hello", "again"]
    await page.reload()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy").last.click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == "**Two.**"


async def test_a_page_of_another_port_of_this_machine_can_read_and_do_nothing(
    browser: Browser, open_desk: Open
) -> None:
    """It is the same site to the browser, which sends it our cookie."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello"
        )
        writer.close()

    desk = await open_desk(ScriptedModel("One."))
    page = await begun(desk, "hello")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as foreign:
        stranger = await browser.new_context()
        await stranger.add_cookies(await page.context.cookies())  # type: ignore[arg-type]
        tab = await stranger.new_page()
        await tab.goto(f"http://127.0.0.1:{foreign.sockets[0].getsockname()[1]}/")
        results = await tab.evaluate(
            """async (target) => Promise.all([target + "/events", target.replace(/s_.*/, "messages"), "/logout"].map(
                (address, index) => fetch(new URL(address, target),
                    {method: index ? "POST" : "GET", mode: "no-cors", credentials: "include"})
                  .then((response) => response.type, () => "failed")))""",
            page.url,
        )
        assert set(results) <= {"failed", "opaque"}
        await stranger.close()
    await page.reload()
    assert await said(page, "person") == ["hello"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1180])
async def test_nothing_is_wider_than_the_screen(
    open_desk: Open, tmp_path: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    """Also takes the pictures; they are kept where ETHOS_SCREENSHOTS names a directory."""
    model = ScriptedModel(RICH, "w" * 400 + " " + "https://example.org/" + "long/" * 60)
    desk = await open_desk(model, viewport=(width, 740))
    await desk.page.emulate_media(color_scheme=scheme)
    page = await begun(desk, "What makes a chat gateway lose messages?")
    await say(page, "And?")
    await expect(page.locator("#log article")).to_have_count(4)
    await page.locator("#log article").first.scroll_into_view_if_needed()
    pictures = Path(os.environ.get("ETHOS_SCREENSHOTS", tmp_path))
    await page.screenshot(path=pictures / f"chat-{width}-{scheme}.png")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await page.evaluate("(one) => one.scrollWidth <= one.clientWidth", await page.query_selector("#scroll"))
    for path in ("", page.url.rpartition("/chat")[2]):
        page = await desk.open(f"/chat{path}")
        box = await page.locator("#send").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 740
    background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 384) == (scheme == "dark")
