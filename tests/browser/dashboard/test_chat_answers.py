"""What an answer looks like, who gave it, and how one hears of it: in a real browser."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.conftest import Open, look_over
from tests.browser.dashboard.test_chatting import begun, say
from tests.gateway.way.conftest import settled
from tests.gateway.web.test_markdown import FORMULAS, GROWING
from tests.scripted_model import Hang, ScriptedModel

pytestmark = pytest.mark.browser

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000002000000020802000000fdd49a730000001049444154789c6338916204440c"
    "100a0028ae057942e127ee0000000049454e44ae426082"
)
SUM = " + ".join(f"x_{{{number}}}" for number in range(90))
WIDE = f"{GROWING}\n\n$$\n{SUM}\n$$\n\n| {' | '.join(['columncolumn'] * 9)} |\n|{'-|' * 9}\n"


async def test_code_tables_and_formulas_are_shown_and_reached_with_the_keyboard(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel(WIDE))
    page = await begun(desk, "show all")
    await settled(desk.gateway)
    await expect(page.locator("#log figcaption")).to_contain_text("python")
    await expect(page.locator("#log .c-keyword").first).to_have_text("def")
    await expect(page.locator("#log math mfrac")).to_have_count(1)
    await expect(page.get_by_role("img", name="To do")).to_be_visible()
    await expect(page.locator("figcaption .copy")).to_be_visible()
    assert await page.evaluate(
        "[...document.querySelectorAll('#log pre, #log table, .formula')].every((e) => e.tabIndex === 0)"
    )
    await look_over(page)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.locator("figcaption .copy").click()
    assert await page.evaluate("navigator.clipboard.readText()") == "def f(): pass\n"


async def test_formulas_run_nothing_and_fetch_nothing(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("\n\n".join(FORMULAS)))
    page = await begun(desk, "formulas")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await expect(page.locator("#log article.agent math").first).to_be_attached()
    found = "[...document.querySelectorAll('#log .text *')]"
    tags = await page.evaluate(f"{found}.map((each) => each.tagName.toUpperCase())")
    assert set(tags).isdisjoint({"SCRIPT", "IMG", "SVG", "IFRAME", "STYLE", "FORM", "OBJECT", "INPUT"})
    names = await page.evaluate(f"{found}.flatMap((each) => [...each.attributes]).map((each) => each.name)")
    assert set(names).isdisjoint({"style", "href", "onmouseover", "id", "mathcolor", "mathbackground"})
    assert dialogs == []


async def test_what_has_not_changed_stays_as_it_is_while_an_answer_grows(open_desk: Open) -> None:
    first, second = Hang(), Hang()
    desk = await open_desk(ScriptedModel("One.", ["A **paragraph**\n\nand **bo", first, "ld** words", second, " end."]))
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    await say(page, "second")
    await expect(page.locator("#previews strong")).to_have_text(["paragraph", "bo"])
    await page.evaluate("window.begun = document.querySelector('#previews p')")
    first.released.set()
    await expect(page.locator("#previews strong").last).to_have_text("bold")
    assert await page.evaluate("window.begun.isConnected")
    second.released.set()
    await expect(page.locator("#log article.agent .text").last).to_contain_text("and bold words end.")
    assert await page.evaluate("window.begun.isConnected"), "the answer is what was on the screen"


async def test_pictures_are_shown_before_they_are_sent_and_in_the_message(open_desk: Open, tmp_path: Path) -> None:
    model = ScriptedModel("One.", "I see it.")
    desk = await open_desk(model)
    page = await begun(desk, "first")
    await settled(desk.gateway)
    for name, data in {"plan.png": PNG, "evil.svg": b"<svg onload='alert(1)'/>", "notes <b>.txt": b"Kiwi"}.items():
        (tmp_path / name).write_bytes(data)
    await page.set_input_files("#file", [tmp_path / name for name in ("plan.png", "evil.svg", "notes <b>.txt")])
    await expect(page.locator("#files canvas")).to_have_count(1)
    await look_over(page)
    await page.get_by_role("button", name="Remove evil.svg").click()
    await expect(page.locator("#files li")).to_have_count(2)
    await say(page, "look")
    picture = page.locator("#log .sent img")
    await expect(picture).to_have_attribute("alt", "plan.png")
    await expect(page.locator("#log article.agent")).to_have_count(2)
    await page.reload()
    await picture.scroll_into_view_if_needed()
    await expect(picture).to_have_js_property("naturalWidth", 2)
    await look_over(page)
    address = await page.locator("#log .sent a").last.get_attribute("href")
    answer = await page.request.get(f"{desk.url}{address}")
    assert await answer.body() == b"Kiwi"
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''notes")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (await page.request.get(f"{desk.url}{address}0")).status == 404
    await page.get_by_role("link", name="Edit").last.click()
    await page.get_by_label("Your message").press("Enter")
    await expect(page.locator("#branched")).to_be_visible()
    await expect(picture).to_have_js_property("naturalWidth", 2)


async def test_files_dropped_anywhere_are_taken_and_all_that_is_wrong_is_said_at_once(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One."))
    page = await begun(desk, "first")
    drop = """([count, bytes, kind]) => {
        const dataTransfer = new DataTransfer();
        for (let at = 0; at < count; at++) dataTransfer.items.add(new File(["x".repeat(bytes)], `f${at}.txt`));
        const given = {dataTransfer, bubbles: true, cancelable: true};
        document.querySelector("#log").dispatchEvent(new DragEvent(kind, given));
    }"""
    await page.evaluate(drop, [1, 3, "dragenter"])
    await expect(page.locator("#dropping")).to_be_visible()
    await look_over(page)
    await page.evaluate(drop, [1, 3, "drop"])
    await expect(page.locator("#dropping")).to_be_hidden()
    await expect(page.locator("#files li")).to_contain_text("f0.txt")
    await page.evaluate(drop, [20, 300_000, "drop"])
    complaint = page.locator("#complaint")
    await expect(complaint).to_contain_text(
        "may have 4 MiB; these would have 5.7 MiB. A message may have 20 files; these would be 21."
    )
    await expect(page.locator("#files li")).to_have_count(1)


async def test_who_answers_is_changed_in_a_running_conversation(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."))
    page = await begun(desk, "first")
    await settled(desk.gateway)
    await expect(page.locator("#offline")).to_contain_text("offline demo")
    await page.get_by_label("Who answers").select_option("engineer")
    await expect(page.locator("#log article.agent .text").last).to_contain_text("answers here")
    await page.reload()
    await expect(page.get_by_label("Who answers")).to_have_value("engineer")
    await expect(page.locator("#log article.agent .meta").first).to_contain_text("scripted")
    [session, *_] = await desk.gateway.store.sessions.list_sessions()
    assert session.personality_id == "engineer"


SEEN = """
window.told = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { window.asked = (window.asked ?? 0) + 1; return (this.permission = "granted"); }
  constructor(title, options) { window.told.push([title, options.body]); }
  addEventListener() {}
};
window.isHidden = false;
Object.defineProperty(document, "hidden", {get: () => window.isHidden});
"""


async def test_answers_that_nobody_sees_are_counted_and_told_to_who_wants_it(open_desk: Open) -> None:
    first, second = Hang(), Hang()
    desk = await open_desk(ScriptedModel("One.", [first, "A **long** answer " * 9], ["Three.", second]))
    await desk.context.add_init_script(SEEN)
    page = await begun(desk, "first")
    await expect(page.locator("#log article.agent")).to_have_count(1)
    assert await page.evaluate("window.asked") is None, "nobody is asked unbidden"
    await page.get_by_role("button", name="Notify me of answers").click()
    await expect(page.get_by_role("button", name="Stop notifying me")).to_be_visible()
    await say(page, "second")
    async with asyncio.timeout(60):
        await first.started.wait()
    await page.evaluate("window.isHidden = true")
    first.released.set()
    await expect(page).to_have_title("(1) first · Ethos")
    [told] = await page.evaluate("window.told")
    assert told[0] == "first"
    assert told[1].startswith("A long answer A long")
    assert len(told[1]) <= 81
    await page.evaluate("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page).to_have_title("first · Ethos")
    await page.get_by_role("button", name="Stop notifying me").click()
    await page.evaluate("window.isHidden = true")
    second.released.set()
    await say(page, "third")
    await expect(page).to_have_title("(1) first · Ethos")
    assert len(await page.evaluate("window.told")) == 1


async def test_the_header_says_at_once_that_the_network_is_gone(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("One.", "Two."))
    page = await begun(desk, "first")
    await page.context.set_offline(True)
    await say(page, "second")
    await expect(page.locator("#pending article .meta")).to_contain_text("Not sent yet")
    await expect(page.locator("#connection")).to_have_text("Reconnecting")
    await page.context.set_offline(False)
    await expect(page.locator("#log article.agent")).to_have_count(2)
    await expect(page.locator("#connection")).to_have_text("Connected")
