"""The page of schedules, in a real browser: made by a form, read with their history, changed, paused, removed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Page, expect

from gateway.schedules.rule import Every
from tests.browser.dashboard.conftest import Desk, Open, look_over
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.browser

TODAY = datetime.now(UTC).date()
MONDAY = TODAY + timedelta(days=105 - TODAY.weekday())


async def fill(page: Page, text: str) -> None:
    """The form, for every Monday at 18:00 UTC."""
    await page.get_by_label("Text").fill(text)
    await page.get_by_label("Every so many days").check()
    await page.get_by_label("Days", exact=True).fill("7")
    await page.get_by_label("Time of day").fill("18:00")
    await page.get_by_label("First day").fill(f"{MONDAY}")
    await page.get_by_text("More", exact=True).click()
    await page.get_by_label("Time zone").fill("UTC")


async def made(desk: Desk, text: str = "Water the plants") -> Page:
    page = await desk.open("/schedules/new")
    await fill(page, text)
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("status").filter(has_text="every week on Monday at 18:00 (UTC)")).to_be_visible()
    return page


async def test_a_schedule_is_made_by_the_form_and_shown_with_its_next_times(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("hello"))
    await desk.say("hi")
    page = await desk.open("/schedules")
    await expect(page.get_by_role("heading", name="Nothing is scheduled")).to_be_visible()
    await look_over(page)
    await page.get_by_role("link", name="New schedule").click()
    await expect(page.get_by_label("Date and time")).to_be_visible()
    await expect(page.get_by_label("Time of day")).to_be_hidden()
    await fill(page, "<b>\u202eWater the plants")
    await expect(page.get_by_label("Date and time")).to_be_hidden()
    await look_over(page)
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("heading", name="Schedule 1")).to_be_visible()
    facts = page.get_by_role("region", name="What it does")
    await expect(facts).to_contain_text("Water the plants")
    await expect(facts.locator("time").first).to_have_text(f"{MONDAY:%a, %-d %b %Y}, 18:00")
    await expect(facts.locator("dd").filter(has_text="in 10").locator("time")).to_have_count(3)
    await look_over(page)
    await desk.open("/schedules")
    row = page.locator("#list tbody tr")
    await expect(row).to_contain_text("1: every week on Monday at 18:00 (UTC)")
    await expect(row).to_contain_text("Active")
    await look_over(page)


async def test_a_long_list_has_pages_and_a_schedule_is_moved_by_the_form(
    open_desk: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.dashboard.pages.schedules.ROWS", 1)
    desk = await open_desk(ScriptedModel("hello"))
    await desk.say("hi")
    await made(desk)
    await made(desk, "Buy tea")
    page = await desk.open("/schedules")
    rows = page.locator("#list tbody tr")
    await expect(rows).to_contain_text(["Water the plants"])
    await look_over(page)
    await page.get_by_role("link", name="More").click()
    await expect(rows).to_contain_text(["Buy tea"])
    await expect(page.get_by_role("link", name="More")).to_have_count(0)
    await page.get_by_role("link", name="First").click()
    await expect(rows).to_contain_text(["Water the plants"])
    await desk.open("/schedules/of/1")
    await page.get_by_role("link", name="Change").click()
    await page.get_by_label("Where").fill("mail")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("only local:operator")
    await page.get_by_label("Where").fill("local")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="Schedule 1 is changed")).to_be_visible()


async def test_where_they_are_off_the_page_says_so(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("hello"), schedules={"enabled": False})
    await desk.say("hi")
    page = await desk.open("/schedules")
    await expect(page.get_by_role("status").filter(has_text="Schedules are off")).to_be_visible()
    await look_over(page)
    await desk.open("/schedules/new")
    await fill(page, "Tea")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("alert").filter(has_text="schedules are off; set `schedules.enabled")).to_be_visible()


async def test_a_mistake_is_told_and_what_was_typed_stays(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("hello"))
    page = await desk.open("/schedules/new")
    await fill(page, "Tea")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("alert").filter(has_text="there are no users yet")).to_be_visible()
    await desk.say("hi")
    await page.get_by_label("Time zone").fill("Europe/Berln")
    await page.get_by_role("button", name="Make it").click()
    await expect(
        page.get_by_role("alert").filter(has_text="Time zone: 'Europe/Berln' is no time zone; did you")
    ).to_be_visible()
    await expect(page.get_by_label("Days", exact=True)).to_have_value("7")
    await expect(page.get_by_label("Text")).to_have_value("Tea")
    await look_over(page)
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await page.get_by_label("Time of day").fill("")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("alert").filter(has_text="Time of day: Days needs it")).to_be_visible()
    await page.get_by_label("Time of day").fill("18:00")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("status").filter(has_text="18:00 (Europe/Berlin)")).to_be_visible()


async def test_it_is_changed_paused_resumed_and_removed(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("hello"))
    await desk.say("hi")
    page = await made(desk)
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("status").filter(has_text="Schedule 1 is paused.")).to_be_visible()
    await expect(page.get_by_role("region", name="What it does")).to_contain_text("Paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("status").filter(has_text="Schedule 1 goes on.")).to_be_visible()
    await page.get_by_role("link", name="Change").click()
    await expect(page.get_by_label("Text")).to_have_value("Water the plants")
    await expect(page.get_by_label("Every so many days")).to_be_checked()
    await expect(page.get_by_label("Days", exact=True)).to_have_value("7")
    await expect(page.get_by_label("First day")).to_have_value(f"{MONDAY}")
    await look_over(page)
    await page.get_by_label("Text").fill("Feed the cat")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("region", name="What it does")).to_contain_text("Feed the cat")
    await page.get_by_role("link", name="Change").click()
    await page.get_by_label("By five fields of cron").check()
    await page.get_by_label("Cron", exact=True).fill("0 8 * * 1-5")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="every weekday at 08:00 (UTC)")).to_be_visible()
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("heading", name="Remove schedule 1?")).to_be_visible()
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("status").filter(has_text="Schedule 1 is removed.")).to_be_visible()
    await expect(page.get_by_role("heading", name="Nothing is scheduled")).to_be_visible()
    await desk.open("/schedules/of/1")
    await expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()


async def test_a_time_on_the_clock_is_changed_on_the_clock_of_its_zone(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("hello"))
    await desk.say("hi")
    page = await desk.open("/schedules/new")
    await page.get_by_label("Text").fill("Call home")
    await page.get_by_label("Date and time").fill(f"{MONDAY}T18:00")
    await page.get_by_text("More", exact=True).click()
    await page.get_by_label("Time zone").fill("Asia/Tokyo")
    await page.get_by_role("button", name="Make it").click()
    await page.get_by_role("link", name="Change").click()
    await expect(page.get_by_label("Date and time")).to_have_value(f"{MONDAY}T18:00")


async def test_what_is_every_so_many_minutes_keeps_its_rhythm_where_only_its_text_changes(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("hello"))
    await desk.say("hi")
    page = await desk.open("/schedules/new")
    await page.get_by_label("Text").fill("Stretch")
    await page.get_by_label("Every so many minutes").check()
    await page.get_by_label("Minutes", exact=True).fill("90")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("status").filter(has_text="every 90 minutes")).to_be_visible()
    stored = await desk.gateway.store.schedules.schedule(1)
    assert stored is not None
    rule = Every(minutes=90, since=stored.created_at - timedelta(minutes=30))
    earlier = replace(stored, rule=rule)
    assert await desk.gateway.store.schedules.replace(earlier, stored)
    await page.get_by_role("link", name="Change").click()
    await page.get_by_label("Text").fill("Stand up")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("region", name="What it does")).to_contain_text("Stand up")
    changed = await desk.gateway.store.schedules.schedule(1)
    assert changed is not None
    assert (changed.text, changed.rule) == ("Stand up", rule)


async def test_its_history_leads_to_the_sessions_of_its_turns(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("hello", "All done."))
    await desk.say("hi")
    page = await desk.open("/schedules/new")
    await fill(page, "Tidy up")
    await page.get_by_label("What happens").select_option("do")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_text("It was not due yet.")).to_be_visible()
    await expect(page.locator("#live")).to_have_text("Live")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("status").filter(has_text="Schedule 1 is done once, now.")).to_be_visible()
    row = page.get_by_role("region", name="History").locator("tbody tr")
    await expect(row).to_contain_text("Done")
    await expect(row).to_contain_text("by hand")
    await look_over(page)
    await row.get_by_role("link", name="Session").click()
    await expect(page.get_by_text("All done.")).to_be_visible()


async def test_the_list_is_narrowed_to_a_person_and_a_state(open_desk: Open) -> None:
    desk = await open_desk(ScriptedModel("hello"))
    await desk.say("hi")
    await desk.gateway.identities.resolve("mail:ada@example.org", "Ada")
    page = await desk.open("/schedules/new")
    await fill(page, "Water the plants")
    await page.get_by_label("Person", exact=True).select_option(label="Operator")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("heading", name="Schedule 1")).to_be_visible()
    await desk.open("/schedules")
    await page.get_by_label("State").select_option("paused")
    await expect(page.get_by_role("heading", name="There is none")).to_be_visible()
    await page.get_by_label("State").select_option("active")
    await expect(page.locator("#list tbody tr")).to_have_count(1)
    await page.get_by_label("Person").select_option(label="Ada")
    await expect(page.get_by_role("heading", name="There is none")).to_be_visible()
    await page.get_by_role("link", name="Show all").click()
    await expect(page.locator("#list tbody tr")).to_have_count(1)
