"""The page of the sessions in a real browser: found, read while they grow, forked, tidied; small and very many."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from gateway.app.gateway import Gateway
from gateway.domain.sessions import Role, Session, SessionMessage, conversation_key
from gateway.messages import ConversationRef
from gateway.store.sessions import save_message, save_session
from tests.browser.dashboard.conftest import Desk, Open, look_over
from tests.scripted_model import ScriptedModel, call

pytestmark = pytest.mark.browser

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
EVIL = "see <img src=https://example.com/a.png onerror=alert(1)> and ![a cat](https://example.com/cat.png)"


def note(page: Page) -> Locator:
    return page.locator(".note:not([hidden])")


async def keep(gateway: Gateway, numbers: range, messages: int = 0) -> None:
    """Sessions as turns leave them, with that many messages each."""

    def work(connection: sqlite3.Connection) -> None:
        for number in numbers:
            place = ConversationRef(channel="web", conversation=f"c{number}")
            at = START + timedelta(seconds=number)
            session = Session(
                id=f"s_{number}",
                key=conversation_key(place),
                user_id="u_ada",
                personality_id="assistant",
                conversation=place,
                title=f"Session {number}",
                created_at=at,
                updated_at=at,
            )
            save_session(connection, session)
            for index in range(messages):
                role: Role = "assistant" if index % 2 else "user"
                message = SessionMessage(
                    session_id=f"s_{number}",
                    turn_id=f"t_{number}_{index // 2}",
                    role=role,
                    personality_id="assistant",
                    user_id="u_ada",
                    text=f"message number {index}",
                    created_at=at + timedelta(seconds=index),
                )
                save_message(connection, message)

    await gateway.store.engine.write(work)


async def opened(desk: Desk, title: str) -> Page:
    page = await desk.open("/sessions")
    await page.locator("a.title", has_text=title).last.click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(title)
    return page


# ---- the list -------------------------------------------------------------------------------------------------------


async def test_what_is_said_on_a_channel_shows_without_reload_and_is_found_by_its_words(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("It is on Friday.", "Rome, then.", "What is it about?"))
    page = await desk.open("/sessions")
    await expect(page.locator(".empty")).to_contain_text("No messages yet")
    await look_over(page)
    await expect(page.locator("#live")).to_have_text("Live")

    await desk.say("when is the <b>release</b> [draft]?")
    await desk.say("plan a trip", conversation="trip")
    await expect(page.locator("a.title")).to_have_text(["plan a trip", "when is the <b>release</b> [draft]?"])
    await look_over(page)

    await page.get_by_label("Search all that was said").fill("release")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("a.title")).to_have_count(1)
    await expect(page.locator(".snippet")).to_have_text("when is the <b>release</b> [draft]?")
    await expect(page.get_by_role("link", name="Older")).to_have_count(0)
    await expect(page.locator(".snippet mark")).to_have_text("release")  # brackets of a person are no marks
    await look_over(page)
    await page.locator(".snippet a").click()
    await expect(page.locator(".message:target")).to_contain_text("when is the <b>release</b> [draft]?")

    page = await desk.open("/sessions?q=nothing+like+it")
    await expect(page.locator(".empty")).to_contain_text("Nothing was found")
    await look_over(page)


async def test_sessions_are_filtered_by_person_personality_and_channel(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."))
    await desk.say("mine")
    await desk.say("of the dashboard")  # the same session
    page = await desk.open("/sessions")
    await page.get_by_label("Person", exact=True).select_option(label="Operator")
    await page.get_by_label("Personality").select_option("assistant")
    await page.get_by_label("Channel").select_option("local")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("a.title")).to_have_text(["mine"])
    await expect(page.get_by_label("Channel")).to_have_value("local")
    await page.get_by_label("Personality").select_option("engineer")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator(".empty")).to_contain_text("Nothing was found")
    page = await desk.open("/sessions?user=u_nobody")
    await expect(page.get_by_role("alert").filter(has_text="there is no user u_nobody")).to_be_visible()


async def test_a_pinned_session_stands_first_and_pinning_is_undone(open_desk: Open) -> None:
    desk = await open_desk()
    await keep(desk.gateway, range(3))
    page = await desk.open("/sessions")
    await expect(page.locator("a.title")).to_have_text(["Session 2", "Session 1", "Session 0"])
    await page.get_by_role("button", name="Pin Session 0").click()
    await expect(page.locator("a.title")).to_have_text(["Session 0", "Session 2", "Session 1"])
    await look_over(page)
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("a.title")).to_have_text(["Session 2", "Session 1", "Session 0"])


async def test_ten_thousand_sessions_are_paged_and_each_is_listed_once(open_desk: Open) -> None:
    desk = await open_desk()
    await keep(desk.gateway, range(10_000), messages=1)
    page = await desk.open("/sessions")
    await expect(page.locator("a.title").first).to_have_text("Session 9999")
    seen = await page.locator("a.title").all_inner_texts()
    for _ in range(3):
        await page.get_by_role("link", name="Older").click()
        await expect(page.locator(f"a.title >> text='{seen[-1]}'")).to_have_count(0)
        seen += await page.locator("a.title").all_inner_texts()
    assert seen == [f"Session {number}" for number in range(9999, 9799, -1)]
    await page.get_by_role("link", name="Newer").click()
    await expect(page.locator("a.title").first).to_have_text("Session 9999")


# ---- one session ----------------------------------------------------------------------------------------------------


async def test_a_transcript_shows_who_what_where_tools_and_others_words_and_runs_nothing(open_desk: Open) -> None:
    desk = await open_desk(
        ScriptedModel([call("current_time", '{"zone": "UTC"}')], f"**Now**, {EVIL}", "A prince writes.")
    )
    await desk.say(f"what time is it? {EVIL}")
    await desk.say("and this?", quoted="Send the money at once, says the prince.")
    page = await opened(desk, "what time is it?")
    rows = page.locator("#transcript > .message")
    await expect(rows.first.locator(".who")).to_contain_text("Operator")
    await expect(rows.first.locator(".who")).to_contain_text("on local")
    await expect(rows.nth(2).locator(".who")).to_contain_text("assistant")
    await expect(rows.nth(2).locator("strong")).to_have_text("Now")
    await expect(page.locator("#transcript img")).to_have_count(0)
    tool = page.locator("details.tool")
    await expect(tool.locator("pre").first).to_be_hidden()
    await tool.locator("summary").click()
    await expect(tool).to_contain_text('{"zone": "UTC"}')
    await expect(tool.get_by_text("Returned")).to_be_visible()
    await expect(rows.filter(has_text="and this?").locator(".chip")).to_have_text("others\u2019 words")
    await expect(rows.filter(has_text="A prince writes.").locator(".chip")).to_have_text("after others\u2019 words")
    await look_over(page)


async def test_a_message_joins_the_open_transcript_and_nothing_that_is_there_moves(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel([call("current_time")], *["word " * 400] * 3, "And one more."))
    for number in range(3):
        await desk.say(f"question {number}")
    page = await opened(desk, "question 0")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.locator("details.tool summary").click()
    button = page.locator(".fork button").nth(2)
    await button.focus()
    before = await page.evaluate("scrollY")
    top = await button.bounding_box()

    await desk.say("question 3")
    await expect(page.locator("#transcript article.agent").last).to_contain_text("And one more.")
    await expect(page.get_by_role("region", name="About this session")).to_contain_text("10")
    assert await page.evaluate("scrollY") == before
    assert await button.bounding_box() == top
    await expect(button).to_be_focused()
    await expect(page.locator("details.tool")).to_have_attribute("open", "")
    assert await page.locator("#transcript article.person .text").all_inner_texts() == [
        f"question {number}" for number in range(4)
    ]


async def test_two_thousand_messages_are_read_a_page_at_a_time(open_desk: Open) -> None:
    desk = await open_desk()
    await keep(desk.gateway, range(1), messages=2000)
    page = await opened(desk, "Session 0")
    texts = page.locator("#transcript .text")
    await expect(texts).to_have_count(100)
    await expect(texts.last).to_have_text("message number 1999")
    await page.get_by_role("link", name="Earlier").click()
    await expect(texts.last).to_have_text("message number 1899")
    await expect(page.locator("#tail")).to_have_count(0)  # what is said now stands at the end, not here
    await page.get_by_role("link", name="From the beginning").click()
    await expect(texts.first).to_have_text("message number 0")
    await page.get_by_role("link", name="Later").click()
    await expect(texts.first).to_have_text("message number 100")
    page = await desk.open("/sessions?q=1234")
    await page.locator(".snippet a").click()
    await expect(page.locator(".message:target")).to_contain_text("message number 1234")
    await expect(page.locator(".message:target")).to_be_in_viewport()


async def test_a_fork_ends_at_its_message_and_goes_on_in_the_chat(open_desk: Open) -> None:
    model = ScriptedModel("First answer.", "Second answer.", "Third answer.")
    desk = await open_desk(model, channels={"fake": {"kind": "tests.fake_channel"}})
    for text in ("first", "second"):
        await desk.gateway.adapters[0].ask(text)
    page = await opened(desk, "first")
    await page.get_by_role("button", name="Fork here").nth(1).click()
    await expect(note(page)).to_contain_text("This is a copy.")
    await expect(page.locator("#transcript .text")).to_have_text(["first", "First answer."])
    await page.get_by_role("link", name="Continue").click()
    await expect(page.locator(".copied .text")).to_have_text(["first", "First answer."])
    await expect(page.locator("#connection")).to_have_text("Connected")
    await look_over(page)
    await page.fill("#text", "another way")
    await page.press("#text", "Enter")
    await expect(page.locator("#log article.agent .text")).to_have_text("Third answer.")

    page = await opened(desk, "first")
    await expect(page.locator("#transcript .text")).to_have_count(4)
    await page.get_by_role("button", name="Continue here with a copy").click()
    await expect(page.locator(".copied .text")).to_have_count(4)
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("first")
    assert len(await desk.gateway.store.sessions.list_sessions()) == 2


async def test_a_session_is_renamed_undone_exported_and_deleted_after_a_question(
    open_desk: Open, tmp_path: Path
) -> None:
    desk = await open_desk(ScriptedModel("It is on Friday."))
    await desk.say("when is it?")
    page = await opened(desk, "when is it?")
    await page.locator(".rename summary").click()
    await page.get_by_label("Title").fill("The release")
    await look_over(page)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("The release")
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("when is it?")

    for kind in ("Markdown", "JSON"):
        async with page.expect_download() as downloading:
            await page.get_by_role("link", name=kind).click()
        await (await downloading.value).save_as(tmp_path / kind)
    assert "It is on Friday." in (tmp_path / "Markdown").read_text()
    assert [one["text"] for one in json.loads((tmp_path / "JSON").read_text())["messages"]] == [
        "when is it?",
        "It is on Friday.",
    ]

    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Delete this session?")
    await look_over(page)
    await page.get_by_role("link", name="Cancel").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("when is it?")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("button", name="Delete it").click()
    await expect(note(page)).to_contain_text("The session is deleted.")
    await expect(page.locator(".empty")).to_be_visible()


async def test_sessions_that_are_selected_are_deleted_together_after_a_question(open_desk: Open) -> None:
    desk = await open_desk()
    await keep(desk.gateway, range(4))
    page = await desk.open("/sessions")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.get_by_label("Select Session 1").check()
    await page.get_by_label("Select Session 2").check()
    await page.get_by_label("Search all that was said").focus()
    await desk.say("hello")
    await expect(page.locator("a.title")).to_have_count(4)
    await expect(page.get_by_label("Select Session 1")).to_be_checked()
    await look_over(page)
    await page.get_by_role("button", name="Delete selected").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Delete 2 sessions?")
    await expect(page.locator("#main")).to_contain_text("“Session 2”, “Session 1” are forgotten here")
    await page.get_by_role("button", name="Delete them").click()
    await expect(note(page)).to_contain_text("2 sessions are deleted.")
    await expect(page.locator("a.title")).to_have_text(["hello", "Session 3", "Session 0"])
    await page.get_by_label("Select all on this page").check()
    await page.get_by_role("button", name="Delete selected").click()
    await page.get_by_role("button", name="Delete them").click()
    await expect(page.locator(".empty")).to_be_visible()


async def test_the_login_ends_while_a_title_is_typed_and_it_is_given_after_the_next(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("Yes."))
    await desk.say("hello")
    page = await opened(desk, "hello")
    await page.locator(".rename summary").click()
    await page.get_by_label("Title").fill("A long thought")
    await desk.log_out_elsewhere()
    await page.get_by_role("button", name="Save").click()
    await desk.log_in(page)
    await page.get_by_role("button", name="Send it again").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("A long thought")
