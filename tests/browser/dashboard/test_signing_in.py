"""Several people in their browsers: invited, signed in with a second factor, each with what is their own."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from playwright.async_api import Browser, Page, expect

from gateway.people.logins import STEP_S, totp
from gateway.services.caller import operator
from gateway.services.naming import Wanted
from tests.browser.dashboard.conftest import Desk, Open, axe_violations, look_over
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import settled

pytestmark = pytest.mark.browser

OPERATOR = operator("test")
PASSWORD = "several words of hers"
SIZES = [(1280, 900), (390, 740)]


@asynccontextmanager
async def browser_of_ada(browser: Browser, size: tuple[int, int]) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport={"width": size[0], "height": size[1]})
    context.set_default_timeout(60_000)
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def ada_writes(desk: Desk) -> str:
    """On a channel, with something to remember; her user id."""
    channel = desk.gateway.adapters[0]
    assert isinstance(channel, FakeChannel)
    await channel.say("remember that my boat is called Albatross", user="1", conversation="direct 1")
    await settled(desk.gateway)
    user_id = await desk.gateway.identities.resolve("fake:1", "")
    await desk.gateway.web.api.services.people.set_role(OPERATOR, user_id, "member")
    return user_id


async def link_of(desk: Desk, user_id: str) -> str:
    """As an owner makes it on the page of the person."""
    page = await desk.open(f"/people/person?user={user_id}")
    await page.get_by_role("button", name="Invite", exact=True).click()
    field = page.get_by_label("The link")
    await expect(field).to_be_visible()
    assert await axe_violations(page) == []
    return await field.input_value()


async def join(page: Page, link: str) -> bytes:
    """Set up by the link; the secret of the app."""
    await page.goto(link)
    await page.get_by_text("The app cannot scan it").click()
    secret = base64.b32decode((await page.locator(".secret").text_content() or "").strip())
    await page.get_by_label("Name").fill("Ada")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_label("Code of the app").fill("000000")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_have_text("This is not the code that the app shows now.")
    assert await page.get_by_label("Name").input_value() == "Ada"
    assert await axe_violations(page) == []
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_label("Code of the app").fill(totp(secret, int(datetime.now(UTC).timestamp()) // STEP_S))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="You are signed in")).to_be_visible()
    assert await axe_violations(page) == []
    return secret


@pytest.mark.parametrize("size", SIZES, ids=["desk", "phone"])
async def test_an_invited_person_talks_as_themselves_on_the_same_memory_until_an_owner_ends_it(
    open_desk: Open, browser: Browser, size: tuple[int, int]
) -> None:
    desk = await open_desk(channels={"fake": {"kind": "tests.fake_channel"}})
    await desk.say("remember that the operator's word is Zugzwang")
    ada = await ada_writes(desk)
    link = await link_of(desk, ada)
    async with browser_of_ada(browser, size) as page:
        await join(page, link)
        codes = await page.locator(".recovery code").all_text_contents()
        assert len(set(codes)) == 10
        await page.get_by_role("link", name="go on").click()
        await page.wait_for_url("**/dashboard/chat")
        await page.get_by_role("textbox", name="Message").fill("remember that my boat has two masts")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/dashboard/chat/s_*")
        await settled(desk.gateway)
        document = await desk.gateway.web.api.services.memory.get(OPERATOR, Wanted(user=ada, store="user"))
        assert "Albatross" in document.content
        assert "two masts" in document.content, "the same memory as on the channel"
        for path, seen in (
            ("memory", "Albatross"),
            ("sessions", "Albatross"),
            ("sign-ins", "10 recovery codes are left"),
        ):
            await page.goto(f"{desk.url}/dashboard/{path}")
            await expect(page.locator("main")).to_contain_text(seen)
            assert "Zugzwang" not in await page.content()
            assert await axe_violations(page) == []
        links = page.get_by_role("navigation", name="Pages", include_hidden=True).get_by_role(
            "link", include_hidden=True
        )
        names = {(await one.text_content() or "").strip() for one in await links.all()}
        wanted = {"Memory", "Chat", "Sessions", "Schedules", "Tools", "Usage", "API keys", "Sign-ins", "Ethos"}
        assert names == wanted
        await page.goto(f"{desk.url}/dashboard/settings")
        await expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
        await page.goto(f"{desk.url}/dashboard/sessions")
        await expect(page.locator("#live")).to_have_text("Live")
        owner = await desk.open(f"/people/person?user={ada}")
        await owner.get_by_role("button", name="End all sign-ins").click()
        await owner.get_by_role("button", name="End them").click()
        await expect(owner.get_by_role("status").filter(has_text="signed out everywhere")).to_be_visible()
        await expect(page.locator("#expired")).to_be_visible()


async def test_the_login_with_a_password_is_usable_by_all_and_brings_back_what_was_typed(
    open_desk: Open, browser: Browser
) -> None:
    desk = await open_desk(channels={"fake": {"kind": "tests.fake_channel"}})
    link = await link_of(desk, await ada_writes(desk))
    async with browser_of_ada(browser, SIZES[0]) as page:
        secret = await join(page, link)
        await page.goto(f"{desk.url}/dashboard/schedules/new")
        await page.get_by_label("Text", exact=True).fill("water the plants")
        await page.context.clear_cookies()
        await page.get_by_role("button", name="Make").click()
        await expect(page.get_by_role("heading", name="Your login has ended")).to_be_visible()
        await look_over(page)
        await page.get_by_label("Name").fill("ada")
        await page.get_by_label("Password").fill("something else")
        await page.get_by_label("Code of your app").fill("000000")
        await page.get_by_role("button", name="Log in", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("The name, the password or the code is wrong")
        assert await page.get_by_label("Name").input_value() == "ada"
        await page.get_by_label("Password").fill(PASSWORD)
        next_step = int(datetime.now(UTC).timestamp()) // STEP_S + 1
        await page.get_by_label("Code of your app").fill(totp(secret, next_step))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Nothing you typed is lost")).to_be_visible()
        assert "water the plants" in await page.content()


async def test_a_key_is_made_shown_once_copied_and_ended(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/keys")
    await look_over(page)
    await page.get_by_role("link", name="Make a key").click()
    await look_over(page)
    await page.get_by_role("textbox", name="Name").fill("Backup")
    await page.get_by_label("Read documents").check()
    await page.get_by_role("button", name="Make the key").click()
    field = page.get_by_label("The key")
    assert (await field.input_value()).startswith("ethos_")
    assert await axe_violations(page) == []
    await page.get_by_role("button", name="Copy").click()
    await expect(page.locator("[data-copy]")).to_have_text("Copied")
    await page.get_by_role("link", name="Done").click()
    await page.get_by_role("button", name="End Backup").click()
    await page.get_by_role("button", name="End it").click()
    await expect(page.get_by_role("row").filter(has_text="Backup")).to_contain_text("Ended")
