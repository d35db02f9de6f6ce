"""The page of the people in a real browser: letting in, roles, links, export and erasure."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from gateway.services.caller import operator
from tests.browser.dashboard.conftest import Desk, Open, look_over
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import settled
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.browser

CHANNELS = {"fake": {"kind": "tests.fake_channel", "access": "pairing"}}
OPERATOR = operator("test")


def fake(desk: Desk) -> FakeChannel:
    return next(adapter for adapter in desk.gateway.adapters if isinstance(adapter, FakeChannel))


async def opened(open_desk: Open) -> Desk:
    desk = await open_desk(ScriptedModel(*["fine"] * 20), channels=CHANNELS)
    await desk.say("hello")
    return desk


async def knocks(desk: Desk, user: str) -> None:
    """A stranger writes, and is told a code."""
    channel = fake(desk)
    await channel.answers_to(await channel.say("hello", user=user, conversation=f"dm-{user}"))


async def let_in(desk: Desk, user: str) -> str:
    """Somebody who is let in; the user id."""
    await knocks(desk, user)
    assert desk.gateway.web is not None
    await desk.gateway.web.api.services.pairing.approve(OPERATOR, f"fake:{user}")
    await settled(desk.gateway)
    return (await desk.gateway.identities.known((f"fake:{user}",)))[f"fake:{user}"]


def note(page: Page) -> Locator:
    return page.locator(".note:not([hidden])")


async def test_a_stranger_shows_without_reload_and_is_let_in_as_a_guest(open_desk: Open) -> None:
    desk = await opened(open_desk)
    page = await desk.open("/people")
    await expect(page.locator("#list")).to_contain_text("runs this gateway")
    await expect(page.locator("#live")).to_have_text("Live")
    await look_over(page)

    await knocks(desk, "7")
    card = page.locator("#waiting .panel")
    await expect(card).to_contain_text("Person 7")
    await expect(card).to_contain_text("fake:7")
    await look_over(page)

    await card.get_by_label("Role").select_option("guest")
    await card.get_by_role("button", name="Let in").click()
    await expect(note(page)).to_contain_text("is let in on the channel fake, as a guest")
    await expect(note(page).get_by_role("button", name="Undo")).to_be_visible()
    await settled(desk.gateway)
    row = page.locator("#list tr", has_text="Person 7")
    await expect(row).to_contain_text("Guest")
    await expect(page.locator("#waiting .panel")).to_have_count(0)
    assert fake(desk).sent[-1].text == "fine", "what the stranger wrote is answered"


async def test_a_refusal_is_asked_first(open_desk: Open) -> None:
    desk = await opened(open_desk)
    await knocks(desk, "7")
    page = await desk.open("/people")
    await page.get_by_role("button", name="Refuse").click()
    await expect(page.locator("main")).to_contain_text("no other code for a week")
    await look_over(page)
    await page.get_by_role("button", name="Refuse").click()
    await expect(note(page)).to_contain_text("is refused")
    await expect(page.locator("#waiting .panel")).to_have_count(0)


async def test_a_role_is_changed_and_changed_back_and_taken_away_after_a_question(open_desk: Open) -> None:
    desk = await opened(open_desk)
    await let_in(desk, "7")
    page = await desk.open("/people")
    await page.get_by_role("link", name="Person 7").click()
    await expect(page.locator("#person")).to_contain_text("Member")
    await expect(page.locator("#person")).to_contain_text("let in by test")
    await look_over(page)

    await page.get_by_role("combobox", name="Role").select_option("owner")
    await page.get_by_role("button", name="Save").click()
    await expect(note(page)).to_contain_text("is owner from the next message on")
    await expect(page.locator("#person")).to_contain_text("owners always are")
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("#person .chip").first).to_have_text("Member")

    await page.get_by_role("button", name="Revoke access everywhere").click()
    await expect(page.locator("main")).to_contain_text("None of this person's accounts is answered any more")
    await page.get_by_role("button", name="Revoke").click()
    await expect(page.locator("#person .chip").first).to_have_text("Revoked")
    await look_over(page)


async def test_whoever_runs_the_gateway_has_no_role_to_lose(open_desk: Open) -> None:
    desk = await opened(open_desk)
    page = await desk.open("/people")
    await page.locator("#list tbody a").click()
    await expect(page.locator("main")).to_contain_text("who is always an owner")
    await expect(page.get_by_role("combobox", name="Role")).to_have_count(0)


async def test_two_are_linked_on_the_page_and_parted_again(open_desk: Open) -> None:
    desk = await opened(open_desk)
    first, second = await let_in(desk, "1"), await let_in(desk, "2")
    page = await desk.open(f"/people/person?user={first}")
    await page.get_by_label("Their user id or account").fill("fake:99")
    await page.get_by_label("Their user id or account").fill("not an account")
    await page.get_by_role("button", name="Link").click()
    await expect(note(page)).to_contain_text("not an account")

    await page.get_by_label("Their user id or account").fill("fake:2")
    await page.get_by_role("button", name="Link").click()
    await expect(note(page)).to_contain_text("They are one person now. Told: fake:1, fake:2.")
    await expect(page.locator("#person")).to_contain_text("fake:2")
    await look_over(page)

    await page.locator("#person").get_by_role("button", name="Unlink").click()
    await expect(note(page)).to_contain_text("two people again")
    await expect(page.locator("#person")).not_to_contain_text("fake:2")
    known = await desk.gateway.identities.known(("fake:1", "fake:2"))
    assert known == {"fake:1": first, "fake:2": second}


async def test_an_export_is_downloaded_and_an_erasure_wants_the_id_typed(open_desk: Open, tmp_path: Path) -> None:
    desk = await opened(open_desk)
    user_id = await let_in(desk, "7")
    page = await desk.open(f"/people/person?user={user_id}")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="Export everything").click()
    download = await downloading.value
    assert re.fullmatch(r"ethos-export-.*\.zip", download.suggested_filename)
    await download.save_as(tmp_path / "export.zip")
    with zipfile.ZipFile(tmp_path / "export.zip") as archive:
        assert user_id in archive.read("README.md").decode()

    await page.get_by_role("link", name="Erase").click()
    await expect(page.locator("main")).to_contain_text("This cannot be taken back")
    await look_over(page)
    field = page.get_by_label("To do it, type")
    await field.fill("u_somebody")
    await page.get_by_role("button", name="Erase for good").click()
    await expect(page.get_by_role("alert")).to_contain_text("Nothing was erased")
    await page.get_by_label("To do it, type").fill(user_id)
    await page.get_by_role("button", name="Erase for good").click()
    await expect(note(page)).to_contain_text("Person 7 is erased.")
    await expect(page.locator("#list")).not_to_contain_text("fake:7")
    assert await desk.gateway.identities.known(("fake:7",)) == {}


async def test_people_are_searched_for_and_who_is_not_found_is_said_so(open_desk: Open) -> None:
    desk = await opened(open_desk)
    await let_in(desk, "7")
    page = await desk.open("/people?q=person+7")
    await expect(page.locator("#list tbody tr")).to_have_count(1)
    await page.get_by_label("Name, account or id").fill("nobody")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator(".empty")).to_contain_text("No match")
    await look_over(page)
    await page.get_by_role("link", name="Show everybody").click()
    await expect(page.locator("#list tbody tr")).to_have_count(2)


async def test_a_person_whom_somebody_else_erased_meanwhile_is_said_to_be_gone(open_desk: Open) -> None:
    desk = await opened(open_desk)
    page = await desk.open("/people/person?user=u_gone")
    await expect(page.locator("main")).to_contain_text("there is no user u_gone")
