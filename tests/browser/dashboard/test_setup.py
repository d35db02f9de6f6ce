"""The first visit, in a real browser: from nothing to a model, a channel, an owner and a backup."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Browser, expect

from gateway.services.caller import operator
from tests.adapters.telegram.fake_telegram import TOKEN, FakeTelegram, refusal
from tests.browser.dashboard.conftest import look_over, visiting
from tests.browser.dashboard.first_visit import MODEL_KEY, FirstVisit
from tests.fresh_gateway import fresh_gateway
from tests.model_server import ModelServer

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 800}
STEPS = ("you", "model", "channel", "channel/telegram", "message", "backup", "done")


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram()
    await telegram.start()
    yield telegram
    await telegram.stop()


async def test_a_new_user_gets_from_nothing_to_an_answer_on_a_channel(
    browser: Browser, telegram: FakeTelegram, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    async with fresh_gateway(home) as gateway, ModelServer() as model, visiting(browser, gateway) as (_, page):
        way = FirstVisit(page=page, model=model, telegram=telegram)
        await way.log_in(gateway.web.url)
        await way.say_who()
        assert "It answered “You said: Say hello in one word.” in " in await way.choose_model()
        assert "This is @ethos_test_bot" in await way.connect_channel()
        await way.write_first()
        await way.back_up()
        assert telegram.texts()[-1] == "You said: hello from my phone"
        config = yaml.safe_load((home / "config.yaml").read_text())
        assert (config["model"], config["time_zone"], list(config["channels"])) == (
            "main",
            "Europe/Berlin",
            ["telegram"],
        )
        assert TOKEN not in (home / "config.yaml").read_text()
        assert MODEL_KEY not in (home / "config.yaml").read_text()
        assert {path.stat().st_mode & 0o777 for path in (home / "secrets").iterdir()} == {0o600}
        kept = {path.read_bytes().strip() for path in (home / "secrets").iterdir()}
        assert kept >= {TOKEN.encode(), MODEL_KEY.encode()}
        await page.get_by_role("button", name="Finish, and chat").click()
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        await expect(page.get_by_role("link", name="Set up")).to_have_count(0)
        await page.goto(f"{gateway.web.url}dashboard/setup/message")
        await page.get_by_role("button", name="That is me: one memory for both").click()
        await expect(page.get_by_text("the same person as you here")).to_be_visible()
        person = await gateway.services.people.operator(operator("test"))
        assert person is not None
        assert {one.key for one in person.accounts} == {"local:operator", "telegram:42"}


async def test_every_step_can_be_read_by_everybody_and_fits_a_phone(
    browser: Browser, telegram: FakeTelegram, tmp_path: Path
) -> None:
    async with fresh_gateway(tmp_path / "home") as gateway, visiting(browser, gateway, viewport=PHONE) as (_, page):
        for step in STEPS:
            await page.goto(f"{gateway.web.url}dashboard/setup/{step}")
            await look_over(page)
        await page.goto(f"{gateway.web.url}dashboard/setup/channel/telegram")
        telegram.faults["getMe"].append(refusal(401, "Unauthorized"))
        await page.get_by_label("Token", exact=True).fill(TOKEN)
        await page.get_by_text("All other settings").click()
        await page.locator("[name='key.api_url']").fill(telegram.url)
        await page.get_by_role("button", name="Try it and connect it").click()
        await expect(page.get_by_role("alert")).to_contain_text("The login does not work.")
        await look_over(page)
        assert not gateway.config.channels, "nothing was connected"
        await page.get_by_role("button", name="Try it and connect it").click()
        await expect(page.get_by_role("region", name="What to send")).to_be_visible()
        assert [call for call, _ in telegram.calls].count("getMe") >= 2, "with the token that was typed first"
        await look_over(page)
