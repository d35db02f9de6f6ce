"""The chat of the dashboard in a real browser: any personality, streaming, cut off, without script."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.browser.dashboard.conftest import Desk, Open, look_over, visiting
from tests.gateway.way.conftest import settled
from tests.scripted_model import Hang, ScriptedModel, call

pytestmark = pytest.mark.browser

RICH = "**Three** things.\n\n<b>not bold</b> ![a cat](https://example.com/cat.png)"


async def begun(desk: Desk, text: str, personality: str = "assistant") -> Page:
    """A conversation, connected."""
    page = await desk.open("/chat")
    await page.get_by_label("Who answers").select_option(personality)
    await say(page, text)
    await expect(page.locator("#connection")).to_have_text("Connected")
    return page


async def say(page: Page, text: str) -> None:
    await page.fill("#text", text)
    await page.press("#text", "Enter")


async def said(page: Page, author: str) -> list[str]:
    return [text.strip() for text in await page.locator(f"#log article.{author} .text").all_inner_texts()]


async def test_a_conversation_begins_with_a_chosen_personality_and_goes_on(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel(RICH, "Gladly."))
    page = await desk.open("/chat")
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(page.locator("#text")).to_be_focused()
    await look_over(page)
    page = await begun(desk, "What decides it?", "engineer")
    await expect(page.locator("#log article.agent strong")).to_have_text("Three")
    await expect(page.locator("#log img")).to_have_count(0)
    await expect(page.get_by_label("Who answers")).to_have_value("engineer")
    await expect(page.get_by_role("heading", level=1)).to_have_text("What decides it?")
    await say(page, "Tell me more")
    await expect(page.locator("#log article.agent")).to_have_count(2)
    await expect(page.locator("#pending article, #previews article")).to_have_count(0)
    await expect(page.locator("#text")).to_be_focused()
    await look_over(page)
    await page.reload()
    await expect(page.locator("#connection")).to_have_text("Connected")
    assert await said(page, "person") == ["What decides it?", "Tell me more"]
    assert (await said(page, "agent"))[1] == "Gladly."

    page = await desk.open("/chat")
    await page.set_viewport_size({"width": 1280, "height": 900})
    row = page.locator("#chats li")
    await expect(row).to_have_count(1)
    await row.get_by_role("link").click()
    await page.get_by_role("link", name="Transcript").click()
    await expect(page.locator("#transcript .text")).to_have_count(4)


async def test_what_the_operator_says_here_is_remembered_as_elsewhere(open_desk: Open) -> None:
    desk = await open_desk()
    await desk.say("remember that my name is Ada")
    page = await begun(desk, "what is my name?")
    await expect(page.locator("#log article.agent").last).to_contain_text("Ada")


async def test_an_answer_streams_in_and_its_tools_are_named(open_desk: Open) -> None:
    hang = Hang()
    model = ScriptedModel("Hello.", [call("current_time")], ["The **first** half", hang, " and the rest."])
    desk = await open_desk(model)
    page = await begun(desk, "hello")
    await settled(desk.gateway)
    await say(page, "and now?")
    async with asyncio.timeout(60):
        await hang.started.wait()
    await expect(page.locator("#previews strong")).to_have_text("first")
    await expect(page.get_by_role("button", name="Stop the answer")).to_be_enabled()
    hang.released.set()
    await expect(page.locator("#log article.agent .text").last).to_have_text("The first half and the rest.")
    await expect(page.locator("#previews article")).to_have_count(0)


def cut() -> None:
    """Break every connection of a browser, as a network does that is gone."""
    for one in gc.get_objects():
        if isinstance(one, H11Protocol) and one.transport is not None:
            one.transport.abort()


async def test_a_page_that_comes_again_while_the_answer_is_written_sees_the_rest_of_it(open_desk: Open) -> None:
    first, second = Hang(), Hang()
    desk = await open_desk(ScriptedModel("One.", ["The first", first, " and the second", second, " and the rest."]))
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await say(page, "second")
    await expect(page.locator("#previews")).to_contain_text("The first")
    cut()
    await expect(page.locator("#connection")).to_have_text("Reconnecting")
    await expect(page.locator("#connection")).to_have_text("Connected")
    first.released.set()
    await expect(page.locator("#previews .text")).to_have_text("The first and the second")
    second.released.set()
    await expect(page.locator("#log article.agent .text")).to_have_text(
        ["One.", "The first and the second and the rest."]
    )
    assert await said(page, "person") == ["first", "second"]


async def test_a_connection_that_breaks_in_the_middle_of_an_answer_loses_and_repeats_nothing(open_desk: Open) -> None:
    hang = Hang()
    desk = await open_desk(ScriptedModel("One.", ["The first half", hang, " and the rest."], "Three."))
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await say(page, "second")
    async with asyncio.timeout(60):
        await hang.started.wait()
    await expect(page.locator("#previews")).to_contain_text("The first half")

    await desk.context.set_offline(True)
    cut()
    await expect(page.locator("#connection")).to_have_text("Reconnecting")
    await expect(page.locator("#previews article")).to_have_count(0)
    hang.released.set()
    await settled(desk.gateway)
    await say(page, "third")  # typed while nothing can be sent
    await expect(page.locator("#pending article .meta")).to_contain_text("Not sent yet")
    assert await said(page, "agent") == ["One."]

    await desk.context.set_offline(False)
    await expect(page.locator("#log article.agent")).to_have_count(3)
    assert await said(page, "person") == ["first", "second", "third"]
    assert await said(page, "agent") == ["One.", "The first half and the rest.", "Three."]
    await expect(page.locator("#pending article, #previews article")).to_have_count(0)


async def test_a_running_answer_is_stopped(open_desk: Open) -> None:
    hang = Hang()
    desk = await open_desk(ScriptedModel("One.", ["It never", hang, " ends."]))
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await say(page, "second")
    await expect(page.locator("#previews")).to_contain_text("It never")
    await page.get_by_role("button", name="Stop the answer").click()
    await settled(desk.gateway)
    await expect(page.locator("#previews article")).to_have_count(0)
    assert "ends." not in " ".join(await said(page, "agent"))


async def test_an_answer_to_the_post_that_is_lost_makes_no_second_message(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."))
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
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
    await expect(page.locator("#log article.agent")).to_have_count(2)
    await expect(page.locator("#pending article")).to_have_count(0)
    assert await said(page, "person") == ["first", "once"]


async def test_the_login_ends_in_the_middle_of_a_message_and_nothing_typed_is_lost(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two.", "Three."))
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await page.fill("#text", "a long thought")
    await desk.log_out_elsewhere()
    await page.press("#text", "Enter")
    await expect(page.locator("#expired")).to_be_visible()
    await expect(page.locator("#pending article .meta")).to_contain_text("Not sent: log in again.")
    await page.fill("#text", "half a sentence")
    await page.get_by_role("link", name="Log in again").click()
    await desk.log_in(page)
    await expect(page.locator("#log article.agent")).to_have_count(2)
    assert await said(page, "person") == ["first", "a long thought"]
    await expect(page.locator("#text")).to_have_value("half a sentence")

    page = await desk.open("/chat")
    await desk.log_out_elsewhere()
    await say(page, "a new beginning")
    await page.fill("#text", "and half of what follows")
    await expect(page.locator("#pending article .meta")).to_contain_text("Not sent: log in again.")
    await page.get_by_role("link", name="Log in again").click()
    await desk.log_in(page)
    await expect(page.locator("#log article.agent .text")).to_have_text("Three.")
    assert await said(page, "person") == ["a new beginning"]
    await expect(page.locator("#text")).to_have_value("and half of what follows")


async def test_without_a_script_one_sends_reloads_and_stops(browser: Browser, open_desk: Open) -> None:
    hang = Hang()
    desk = await open_desk(ScriptedModel("One.", ["It never", hang, " ends."]))
    async with visiting(browser, desk.gateway, java_script_enabled=False) as (_, page):
        await page.goto(f"{desk.url}/dashboard/chat")
        await page.get_by_role("textbox", name="Message").fill("first")
        await page.get_by_role("button", name="Send").click()
        await settled(desk.gateway)
        await page.get_by_role("link", name="Look for the answer").click()
        await expect(page.locator("#log article.agent .text")).to_have_text("One.")
        await page.get_by_role("textbox", name="Message").fill("second")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("#log article.person .text")).to_have_text(["first", "second"])
        async with asyncio.timeout(60):
            await hang.started.wait()
        await page.get_by_role("button", name="Stop the answer").click()
        await settled(desk.gateway)
        await page.get_by_role("link", name="Look for the answer").click()
        await expect(page.locator("#log")).not_to_contain_text("ends.")
        await page.get_by_role("textbox", name="Message").fill("   ")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert")).to_contain_text("There is nothing to send yet")


@pytest.mark.parametrize("event", ["paste", "drop"])
async def test_a_file_is_taken_that_is_pasted_or_dropped(open_desk: Open, event: str) -> None:
    desk = await open_desk(ScriptedModel("seen"))
    page = await begun(desk, "first")
    await expect(page).to_have_title("first · Ethos")
    await page.locator("#text").evaluate(
        """(field, name) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File(["a plan"], "plan.txt", {type: "text/plain"}));
            const given = name === "paste" ? {clipboardData: transfer} : {dataTransfer: transfer};
            const kind = name === "paste" ? ClipboardEvent : DragEvent;
            field.dispatchEvent(new kind(name, {...given, bubbles: true, cancelable: true}));
        }""",
        event,
    )
    await expect(page.locator("#files li")).to_contain_text("plan.txt")


async def test_a_file_goes_with_a_message(open_desk: Open, tmp_path: Path) -> None:
    model = ScriptedModel("One.", "I read it.")
    desk = await open_desk(model)
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    (tmp_path / "plan.txt").write_text("The secret word is Kiwi.")
    await page.set_input_files("#file", [tmp_path / "plan.txt"])
    await expect(page.locator("#files li")).to_contain_text("plan.txt")
    await look_over(page)
    await say(page, "read this")
    await expect(page.locator("#log article.agent .text").last).to_have_text("I read it.")
    assert "Kiwi" in str(model.requests[-1])
    await expect(page.locator("#files li")).to_have_count(0)

    (tmp_path / "large.bin").write_bytes(b"x" * (5 * 1024 * 1024))
    await page.set_input_files("#file", [tmp_path / "large.bin"])
    await expect(page.locator("#complaint")).to_contain_text("may have 4 MiB")


async def test_what_cannot_be_sent_is_offered_again_with_the_reason(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/chat")
    await page.eval_on_selector("#personality", "(one) => { one.options[0].value = 'nobody'; one.selectedIndex = 0 }")
    await say(page, "a thought")
    await expect(page.locator("#pending .failed .meta")).to_contain_text("nobody")
    await look_over(page)
    await page.get_by_role("button", name="Edit").click()
    await expect(page.locator("#text")).to_have_value("a thought")
    await page.get_by_label("Who answers").select_option("engineer")
    await page.press("#text", "Enter")
    await expect(page.get_by_label("Who answers")).to_have_value("engineer")
    await expect(page.locator("#log article.person .text")).to_have_text("a thought")


async def test_new_leads_to_a_new_conversation_and_a_session_of_another_channel_to_its_transcript(
    open_desk: Open,
) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."), channels={"fake": {"kind": "tests.fake_channel"}})
    page = await begun(desk, "first", "engineer")
    await say(page, "/new")
    await expect(page.get_by_label("Who answers")).to_have_value("engineer")
    await desk.gateway.adapters[0].ask("elsewhere")
    [newest, *_] = await desk.gateway.store.sessions.list_sessions()
    page = await desk.open(f"/chat/{newest.id}")
    assert page.url.endswith(f"/dashboard/sessions/{newest.id}")
    page = await desk.open("/chat/s_none")
    await expect(page.get_by_role("heading", level=1)).to_have_text("There is nothing here")
