"""The page of the traces in a real browser."""

from __future__ import annotations

import json
import zipfile
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from gateway.traces.trace import Owner, Trace
from gateway.traces.trace_store import TraceStore
from tests.browser.dashboard.conftest import Desk, Open, look_over
from tests.gateway.memory.traces.transfer.corpora import Held, fill

pytestmark = pytest.mark.browser

ON = {"traces": {"enabled": True}}


def trace_store_of(desk: Desk) -> TraceStore:
    assert desk.gateway.trace_store is not None
    return desk.gateway.trace_store


async def with_traces(open_desk: Open, *contents: str) -> tuple[Desk, list[Trace]]:
    """A gateway in which Ada has said something, and these facts of hers."""
    desk = await open_desk(None, memory=ON)
    ada = await desk.gateway.identities.resolve("mail:ada@example.org", "Ada")
    now = trace_store_of(desk).now()
    traces = [
        Trace(content=content, owner=Owner("user", ada), created_at=now, last_accessed_at=now - timedelta(days=3))
        for content in contents
    ]
    await fill(trace_store_of(desk), Held(traces))
    return desk, traces


async def note(page: Page, text: str) -> None:
    await expect(page.locator(".note:not([hidden])").first).to_contain_text(text)


async def test_where_the_memory_is_off_the_page_says_how_to_switch_it_on(open_desk: Open) -> None:
    desk = await open_desk(None)
    page = await desk.open("/traces")
    await expect(page.locator(".empty")).to_contain_text("memory: {traces: {enabled: true}}")
    await look_over(page)


async def test_a_fact_of_a_turn_shows_without_reload_and_is_found_with_its_reason(open_desk: Open) -> None:
    desk = await open_desk(None, memory=ON)
    page = await desk.open("/traces")
    await expect(page.locator(".empty")).to_contain_text("Nothing is remembered yet")
    await look_over(page)
    await expect(page.locator("#live")).to_have_text("Live")
    await desk.say("my dog is called Rex")
    await expect(page.locator("tbody tr")).to_contain_text("Rex")
    await page.fill("#q", "Rex")
    await page.press("#q", "Enter")
    await expect(page.locator("#list")).to_contain_text("1 found, best first")
    await page.get_by_text("Why it was found").click()
    await expect(page.locator("details.why")).to_contain_text("words")
    await look_over(page)
    await page.fill("#q", "submarine")
    await page.press("#q", "Enter")
    await expect(page.locator(".empty")).to_contain_text("Nothing fits")


async def test_one_trace_shows_its_curve_and_its_links_and_is_edited_with_undo(open_desk: Open) -> None:
    desk, traces = await with_traces(open_desk, *(f"fact {number} about tea" for number in range(5)))
    edges = [
        (traces[0].id, each.id, "co_activated", 0.1 * number, "{}", 0) for number, each in enumerate(traces[1:], 1)
    ]
    await fill(trace_store_of(desk), Held([], edges))
    page = await desk.open("/traces")
    await page.get_by_role("link", name="fact 0 about tea").click()
    await expect(page.get_by_role("img", name="if it is never used")).to_be_visible()
    await expect(page.locator("svg.curve polyline.past")).to_have_count(1)
    await expect(page.locator(".neighbours li").first).to_contain_text("fact 4 about tea used together, weight 0.40")
    await look_over(page)
    await page.get_by_text("The numbers").click()
    await expect(page.get_by_role("table", name="Strength over time")).to_contain_text("if never used")

    await page.fill("#content", "fact 0 about coffee")
    await page.fill("#tags", "drink\nkeep")
    await page.get_by_role("button", name="Save").click()
    await note(page, "It is changed")
    await expect(page.locator(".says")).to_have_text("fact 0 about coffee")
    await expect(page.locator("#trace .tags")).to_contain_text("keep")
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".says")).to_have_text("fact 0 about tea")
    await page.locator(".neighbours a").first.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".says")).to_have_text("fact 4 about tea")


async def test_a_trace_is_deleted_and_brought_back(open_desk: Open) -> None:
    desk, [trace] = await with_traces(open_desk, "I like tea")
    page = await desk.open(f"/traces/one/{trace.id}")
    await page.get_by_role("button", name="Delete").click()
    await note(page, "It is deleted")
    await look_over(page)
    await page.get_by_role("button", name="Undo").click()
    await note(page, "It is back")
    await page.get_by_role("button", name="Delete").click()
    await desk.open("/traces?deleted=1")
    await page.get_by_role("link", name="I like tea").click()
    await page.get_by_role("button", name="Restore").click()
    await expect(page.get_by_role("button", name="Delete")).to_be_visible()


async def test_two_are_merged_after_a_look_and_parted_again(open_desk: Open) -> None:
    desk, _ = await with_traces(open_desk, "Rex is a dog", "Rex is brown", "the train is late")
    page = await desk.open("/traces")
    await page.get_by_role("button", name="Merge selected").click()
    await note(page, "Choose two traces or more")
    for name in ("Rex is a dog", "Rex is brown"):
        await page.get_by_role("checkbox", name=name).check()
    await page.get_by_role("button", name="Merge selected").click()
    await look_over(page)
    await page.fill("#content", "Rex is a brown dog")
    await page.get_by_role("button", name="Merge").click()
    await note(page, "2 traces are one now")
    await expect(page.locator(".says")).to_have_text("Rex is a brown dog")
    await page.get_by_role("button", name="Undo").click()
    await note(page, "They are apart again")
    for name in ("Rex is a dog", "Rex is brown"):
        await expect(page.get_by_role("link", name=name)).to_be_visible()
    await expect(page.get_by_role("link", name="Rex is a brown dog")).to_have_count(0)


async def test_something_is_written_down_and_a_consolidation_is_started_by_hand(open_desk: Open) -> None:
    desk, _ = await with_traces(open_desk, "one")
    page = await desk.open("/traces")
    await page.get_by_text("Write one down").click()
    await page.fill("#new-content", "the office closes at six")
    await page.get_by_label("Everybody may know it").check()
    await page.get_by_role("button", name="Remember").click()
    await note(page, "It is remembered")
    await expect(page.locator("#trace")).to_contain_text("Everybody")
    await desk.open("/traces/log")
    await expect(page.locator(".empty")).to_contain_text("Nothing was consolidated yet")
    await page.get_by_role("button", name="Consolidate now").click()
    await note(page, "Nothing was to be done")
    await expect(page.locator("tbody tr")).to_contain_text("dashboard")
    await look_over(page)


@pytest.mark.parametrize("has_script", [True, False])
async def test_a_file_is_looked_at_and_comes_in_with_a_yes_also_without_script(
    open_desk: Open, tmp_path: Path, *, has_script: bool
) -> None:
    desk, _ = await with_traces(open_desk, "I like tea")
    file = tmp_path / "facts.csv"
    file.write_text("content,tags\nI like tea,\nI like trains,a|b\n,lost\n")
    context = desk.context
    if not has_script:
        browser = desk.context.browser
        assert browser is not None
        context = await browser.new_context(java_script_enabled=False, storage_state=await desk.context.storage_state())
    page = await context.new_page()
    page.set_default_timeout(60_000)
    await page.goto(f"{desk.url}/dashboard/traces/files")
    if has_script:
        await look_over(page)
    await page.select_option("#user", label="Ada")
    await page.set_input_files("#file", file)
    await page.get_by_role("button", name="Preview import").press("Enter")
    await expect(page.locator(".figures")).to_contain_text("New traces")
    await expect(page.locator(".errors")).to_contain_text("facts.csv: line 4: it has no content")
    if has_script:
        await look_over(page)
    assert len(await waiting(desk)) == 1
    await page.get_by_role("button", name="Import").click()
    await note(page, "1 trace is new")
    await expect(page.get_by_role("link", name="I like trains")).to_be_visible()
    assert await waiting(desk) == []
    if not has_script:
        await context.close()


async def waiting(desk: Desk) -> list[Path]:
    place = desk.gateway.home / "run" / "transfers"
    return list(place.iterdir()) if place.exists() else []


async def test_a_file_that_is_dropped_on_the_field_is_the_one_that_is_sent(open_desk: Open) -> None:
    desk, _ = await with_traces(open_desk, "I like tea")
    page = await desk.open("/traces/files")
    await page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["content\\ndropped here\\n"], "dropped.csv"));
          document.getElementById("file").files = data.files;
        }"""
    )
    await page.get_by_role("button", name="Preview import").click()
    await expect(page.locator("main")).to_contain_text("dropped.csv")
    await expect(page.locator("main")).to_contain_text("CSV")


async def test_what_cannot_be_imported_is_said_and_not_kept(open_desk: Open, tmp_path: Path) -> None:
    desk, _ = await with_traces(open_desk, "I like tea")
    file = tmp_path / "odd.bin"
    file.write_bytes(b"\x00\x01\x02")
    page = await desk.open("/traces/files")
    await page.set_input_files("#file", file)
    await page.get_by_role("button", name="Preview import").click()
    await note(page, "odd.bin is none of sqlite, json")
    assert await waiting(desk) == []


async def test_an_export_is_downloaded(open_desk: Open, tmp_path: Path) -> None:
    desk, _ = await with_traces(open_desk, "I like tea")
    page = await desk.open("/traces/files")
    for label, name in (("JSON, for programs", "ethos-traces.json"), ("Obsidian", "ethos-traces-obsidian.zip")):
        await page.select_option("#out-format", label=label if "," in label else "Obsidian, a zip of notes with links")
        async with page.expect_download() as started:
            await page.get_by_role("button", name="Download").click()
        download = await started.value
        assert download.suggested_filename == name
        await download.save_as(tmp_path / name)
    assert json.loads((tmp_path / "ethos-traces.json").read_text())["traces"][0]["content"] == "I like tea"
    with zipfile.ZipFile(tmp_path / "ethos-traces-obsidian.zip") as archive:
        assert any(name.startswith("episodic/") for name in archive.namelist())


async def test_a_file_without_the_page_s_token_is_not_taken(open_desk: Open) -> None:
    """A foreign page cannot send one; neither can a form whose token stands behind the file."""
    desk, _ = await with_traces(open_desk, "I like tea")
    cookies = {cookie["name"]: cookie["value"] for cookie in await desk.context.cookies()}
    page = await desk.open("/traces/files")
    token = await page.locator("form[enctype] input[name=form_token]").get_attribute("value")
    assert token is not None
    headers = {"origin": desk.url, "accept": "text/html"}
    async with httpx.AsyncClient(cookies=cookies, headers=headers, trust_env=False) as client:
        address = f"{desk.url}/dashboard/traces/import"

        async def send(*parts: tuple[str, tuple[str | None, bytes]], origin: str | None = None) -> httpx.Response:
            more = {} if origin is None else {"origin": origin}
            return await client.post(address, files=list(parts), headers=more)

        file = ("file", ("x.csv", b"content\nplanted\n"))
        good, bad = ("form_token", (None, token.encode())), ("form_token", (None, b"0" * 64))
        assert (await send(file)).status_code == 403
        assert (await send(bad, file)).status_code == 403
        assert (await send(file, good)).status_code == 403
        assert (await send(good, file, origin="http://evil.example")).status_code == 403
        assert (await send(good, file, file)).status_code == 400
        assert await waiting(desk) == []
        assert (await send(good, file)).status_code == 200
        many = [(f"f{number}", (None, b"x" * 60_000)) for number in range(3)]
        assert (await send(good, *many)).status_code == 413
        wrong = await client.post(
            address, content=b"--x\r\nbroken", headers={"content-type": "multipart/form-data; boundary=x"}
        )
        assert wrong.status_code == 400
    assert len(await waiting(desk)) == 1


async def test_filters_in_use_are_shown_and_taken_away_one_by_one(open_desk: Open) -> None:
    desk, _ = await with_traces(open_desk, "I like tea", "the train is late")
    page = await desk.open("/traces?q=tea&type=episodic&tag=drink")
    chips = page.get_by_role("list", name="Filters in use")
    names = ["Without “tea”", "Without What happened", "Without Tags: drink", "Show all"]
    await expect(chips.get_by_role("listitem")).to_have_text(names)
    await expect(page.locator(".empty")).to_contain_text("Nothing fits")
    await look_over(page)
    await chips.get_by_role("link", name="Without Tags: drink").click()
    await expect(page.locator("tbody tr")).to_contain_text("I like tea")
    await page.select_option("#type", "semantic")  # a choice takes effect at once
    await expect(chips.get_by_role("listitem")).to_have_text(["Without “tea”", "Without Knowledge", "Show all"])
    await chips.get_by_role("link", name="Show all").click()
    await expect(chips).to_have_count(0)
    await expect(page.locator("tbody tr")).to_have_count(2)
