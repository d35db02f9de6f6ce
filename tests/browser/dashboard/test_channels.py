"""The channels' page in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.conftest import Open

pytestmark = pytest.mark.browser

FAKE = {"fake": {"kind": "tests.fake_channel"}}


async def test_a_channel_is_shown_as_it_is_and_a_message_shows_without_reload(open_desk: Open) -> None:
    desk = await open_desk(channels=FAKE)
    page = await desk.open("/channels")
    card = page.locator(".cards .panel", has_text="fake")
    await expect(card).to_contain_text("Connected")
    await expect(card).to_contain_text("never")
    await expect(page.locator("#live")).to_have_text("Live")
    await desk.gateway.adapters[0].ask("hello")
    await expect(card).to_contain_text("just now")


async def test_a_channel_that_goes_down_is_seen_at_once_with_what_to_do(open_desk: Open) -> None:
    desk = await open_desk(channels=FAKE)
    page = await desk.open("/channels")
    await expect(page.locator("#live")).to_have_text("Live")
    [adapter] = desk.gateway.adapters
    desk.gateway.supervisor._note(adapter, "down", "the line is cut")
    card = page.locator(".cards .panel", has_text="fake")
    await expect(card).to_contain_text("Not connected")
    await expect(card).to_contain_text("the line is cut")
    await expect(card.locator(".advice")).to_contain_text("It is tried again automatically")
