"""The channels' page in a real browser: their state, and each kind set up from nothing by clicking."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

import pytest
import yaml
from playwright.async_api import Page, expect

import adapters.discord  # noqa: F401 (before the SDK by itself: it knows which of its warnings mean nothing)
from gateway.messages import ConversationRef, OutboundMessage
from tests.adapters.discord.fake_discord import FakeDiscord
from tests.adapters.discord.world import DM
from tests.adapters.discord.world import TOKEN as DISCORD_TOKEN
from tests.adapters.email.harness import Person, a_mail, new_address, plain_text
from tests.adapters.email.mail_server import AUTHSERV_ID, PASSWORD, MailServer, missing_packages, running_mail_server
from tests.adapters.slack.fake_slack import APP_TOKEN, BOT_TOKEN, DIRECT, FakeSlack
from tests.adapters.telegram.fake_telegram import TOKEN as TELEGRAM_TOKEN
from tests.adapters.telegram.fake_telegram import FakeTelegram
from tests.browser.dashboard.conftest import Desk, Open, look_over

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


# ---- set up from nothing --------------------------------------------------------------------------------------------


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    fake = FakeTelegram()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def slack(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeSlack]:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeSlack()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def discord() -> AsyncIterator[FakeDiscord]:
    fake = FakeDiscord()
    await fake.start()
    yield fake
    await fake.close()


async def begun(desk: Desk, title: str) -> Page:
    """From the page of channels to the form of one kind, by clicking."""
    page = await desk.open("/channels")
    await page.get_by_role("link", name="Add a channel", exact=True).click()
    await page.get_by_role("link", name=title, exact=True).click()
    await expect(page.get_by_role("heading", name=f"What you need from {title}")).to_be_visible()
    for picture in await page.locator(".steps img").all():
        await picture.scroll_into_view_if_needed()
        await expect(picture).to_have_js_property("complete", True)
        assert await picture.evaluate("image => image.naturalWidth") > 0
    return page


async def owner_code(page: Page) -> str:
    """What the channel's page says to send."""
    await page.get_by_role("button", name="Make a code for the owner").click()
    shown = await page.get_by_text(re.compile(r"^/(ethos )?owner ")).inner_text()
    return shown.strip()


async def test_telegram_from_nothing_with_a_wrong_token_first(open_desk: Open, telegram: FakeTelegram) -> None:
    desk = await open_desk()
    page = await begun(desk, "Telegram")
    await look_over(page)
    wrong = "999999:AAH-canary_of_a_wrong_token_012345"
    await page.get_by_label("Token", exact=True).fill(wrong)
    await page.get_by_label("Who may talk").select_option("owner")
    await page.get_by_text("All other settings").click()
    await page.get_by_label("API URL").fill(telegram.url)
    await page.get_by_role("button", name="Try the login").click()
    await expect(page.get_by_role("alert")).to_contain_text("The login does not work")
    await expect(page.get_by_role("alert")).to_contain_text("@BotFather")
    await expect(page.get_by_label("Who may talk")).to_have_value("owner")
    await expect(page.get_by_label("API URL")).to_have_value(telegram.url)
    assert "canary" not in await page.content(), "a secret is never put into a page"
    await look_over(page)

    await page.get_by_label("Token", exact=True).fill(TELEGRAM_TOKEN)
    await page.get_by_role("button", name="Try the login").click()
    said = page.get_by_role("status").filter(has_text="The login works: this is @ethos_test_bot.")
    await expect(said).to_be_visible()
    assert TELEGRAM_TOKEN not in await page.content()
    assert yaml.safe_load((desk.gateway.home / "config.yaml").read_text())["channels"] == {}
    await page.get_by_label("Poll timeout (seconds)").fill("99")
    await page.get_by_role("button", name="Add the channel").click()
    await expect(
        page.get_by_text("expected a value of at most 50").or_(page.locator(".field-of .error"))
    ).to_be_visible()
    await look_over(page)
    await page.get_by_label("Poll timeout (seconds)").fill("1")
    await page.get_by_role("button", name="Add the channel").click()  # the token is kept since the try
    await expect(page.locator("#state")).to_contain_text("Connected")
    assert (desk.gateway.home / "secrets" / "channels-telegram-token").read_text().strip() == TELEGRAM_TOKEN
    await look_over(page)

    await telegram.say(await owner_code(page))
    await telegram.until(lambda: len(telegram.texts()) == 1)
    await telegram.say("what is 6 * 7?")
    await telegram.until(lambda: any("42" in text for text in telegram.texts()))
    await expect(page.locator("#state")).to_contain_text("just now")


async def test_slack_from_nothing(open_desk: Open, slack: FakeSlack) -> None:
    desk = await open_desk()
    page = await begun(desk, "Slack")
    await page.get_by_text("Show what to paste").click()
    await expect(page.locator(".steps pre")).to_contain_text("socket_mode_enabled: true")
    await look_over(page)
    await page.get_by_label("Bot token").fill(BOT_TOKEN)
    await page.get_by_label("App token").fill("xoxb-of-another-kind")
    await page.get_by_text("All other settings").click()
    await page.get_by_label("API URL").fill(slack.api_url)
    await page.get_by_role("button", name="Try the login").click()
    await expect(page.get_by_role("alert")).to_contain_text("begins with xapp-")
    await page.get_by_label("App token").fill(APP_TOKEN)
    await page.get_by_role("button", name="Try the login").click()
    said = page.get_by_role("status").filter(has_text="this is @ethos in the workspace Home.")
    await expect(said).to_be_visible()
    await page.get_by_role("button", name="Add the channel").click()
    await expect(page.locator("#state")).to_contain_text("Connected")
    code = await owner_code(page)
    assert code.startswith("/ethos owner ")
    await slack.deliver(slack.command(code.removeprefix("/ethos "), channel=DIRECT), kind="slash_commands")
    await slack.until(lambda: len(slack.ours()) == 1)
    await slack.deliver(slack.event(slack.write(DIRECT, "what is 6 * 7?")))
    await slack.until(lambda: "42" in str(slack.ours()))


async def test_discord_from_nothing_with_an_intent_that_is_off(open_desk: Open, discord: FakeDiscord) -> None:
    discord.application["flags"] = 0
    desk = await open_desk()
    page = await begun(desk, "Discord")
    await look_over(page)
    await page.get_by_label("Token", exact=True).fill(DISCORD_TOKEN)
    await page.get_by_role("button", name="Try the login").click()
    await expect(page.get_by_role("alert")).to_contain_text("The login works: this is ethos.")
    await expect(page.get_by_role("alert")).to_contain_text("Message Content Intent is off")
    discord.application["flags"] = 1 << 19
    await page.get_by_role("button", name="Add the channel").click()
    await expect(page.locator("#state")).to_contain_text("Connected")
    await look_over(page)
    code = await owner_code(page)
    discord.say(DM, code)
    await discord.until(lambda: len(discord.texts()) == 1)
    discord.say(DM, "what is 6 * 7?")
    await discord.until(lambda: any("42" in text for text in discord.texts()))


@pytest.fixture(scope="session")
def mail_server() -> Iterator[MailServer]:
    missing = missing_packages()
    if missing is not None:
        pytest.skip(missing)
    with running_mail_server() as server:
        yield server


async def test_mail_from_nothing(open_desk: Open, mail_server: MailServer) -> None:
    desk = await open_desk()
    address, person = new_address("bot"), Person(mail_server, new_address("ada"))
    page = await begun(desk, "Mail")
    await look_over(page)
    await page.get_by_label("Address", exact=True).fill(address)
    await page.get_by_label("IMAP host").fill("127.0.0.1")
    await page.get_by_label("SMTP host").fill("127.0.0.1")
    await page.get_by_label("Password", exact=True).fill("wrong")
    await page.get_by_text("All other settings").click()
    await page.get_by_label("IMAP port").fill(str(mail_server.ports["imaps"]))
    await page.get_by_label("SMTP port").fill(str(mail_server.ports["smtps"]))
    await page.get_by_label("CA file").fill(str(mail_server.ca_file))
    await page.get_by_label("Trusted authserv ID").fill(AUTHSERV_ID)
    await page.get_by_role("button", name="Try the login").click()
    await expect(page.get_by_role("alert")).to_contain_text("refuses the login of")
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.get_by_role("button", name="Try the login").click()
    await expect(page.get_by_role("status").filter(has_text=f"this is {address}.")).to_be_visible()
    await page.get_by_role("button", name="Add the channel").click()
    await expect(page.locator("#state")).to_contain_text("Connected")
    code = await owner_code(page)
    mail = a_mail(code, sender=person.address, recipient=address, subject="Owner")
    del mail["Authentication-Results"]  # Exim, which takes it, says who wrote it
    await person.submit(mail, address)
    await expect(page.locator("#state")).to_contain_text("just now")
    async with asyncio.timeout(60):
        while not (mails := await person.mails()):
            mail_server.deliver_queue()
    assert "owner" in plain_text(mails[0][1])


# ---- what one does with a channel -----------------------------------------------------------------------------------


async def test_a_channel_is_paused_resumed_changed_tested_and_removed(open_desk: Open, telegram: FakeTelegram) -> None:
    settings = {"kind": "telegram", "token": TELEGRAM_TOKEN, "api_url": telegram.url, "poll_timeout_s": 1}
    desk = await open_desk(channels={"phone": settings})
    config = desk.gateway.home / "config.yaml"
    page = await desk.open("/channels")
    await look_over(page)
    await page.get_by_role("button", name="Test phone").click()
    await expect(page.get_by_role("status").filter(has_text="this is @ethos_test_bot")).to_be_visible()
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("#state")).to_contain_text("Paused")
    await desk.gateway.outbox.post(
        OutboundMessage(id="note", conversation=ConversationRef(channel="phone", conversation="42"), text="later")
    )
    page = await desk.open("/channels")
    await expect(page.locator(".cards .panel", has_text="phone")).to_contain_text("Paused")
    await look_over(page)

    await page.get_by_role("link", name="Change phone").click()
    assert TELEGRAM_TOKEN not in await page.content()
    await expect(page.get_by_label("Token", exact=True)).to_have_attribute("placeholder", "Kept")
    await page.get_by_label("Markup").select_option("plain")
    await look_over(page)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="phone is changed")).to_be_visible()
    assert yaml.safe_load(config.read_text())["channels"]["phone"] == {**settings, "enabled": False, "markup": "plain"}

    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("1 answers wait to be sent")).to_be_visible()
    await look_over(page)
    await page.get_by_role("link", name="Cancel").click()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#state")).to_contain_text("Connected")
    await telegram.until(lambda: telegram.texts() == ["later"])
    await page.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("heading", name="No further channel")).to_be_visible()
    assert yaml.safe_load(config.read_text()).get("channels", {}) == {}
    assert desk.gateway.adapters == []


async def test_without_scripts_a_secret_that_was_typed_survives_a_try_and_not_the_login(
    open_desk: Open, telegram: FakeTelegram
) -> None:
    desk = await open_desk()
    assert desk.context.browser is not None
    plain = await desk.context.browser.new_context(java_script_enabled=False)
    await plain.add_cookies(await desk.context.cookies())  # type: ignore[arg-type]
    page = await plain.new_page()
    await page.goto(f"{desk.url}/dashboard/channels/add/telegram")
    await page.get_by_label("Token", exact=True).fill(TELEGRAM_TOKEN)
    await page.get_by_text("All other settings").click()
    await page.get_by_label("API URL").fill(telegram.url)
    await page.get_by_role("button", name="Try the login").click()
    await expect(page.get_by_text("this is @ethos_test_bot.")).to_be_visible()
    await page.get_by_label("Token", exact=True).fill("999999:AAH-canary_of_a_wrong_token_012345")
    await plain.clear_cookies()
    await page.get_by_role("button", name="Add the channel").click()
    await expect(page.get_by_label("Token", exact=True)).to_be_visible()
    assert "canary" not in await page.content(), "the login page holds what was typed, but no secret"
    await plain.close()


async def test_a_kind_without_its_library_says_the_command(open_desk: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.services.channels.is_installed", lambda kind: kind != "slack")
    desk = await open_desk()
    page = await desk.open("/channels/add")
    card = page.locator(".cards .panel", has_text="Slack")
    await expect(card).to_contain_text("pip install")
    await expect(card.get_by_role("link")).to_have_count(0)
    await look_over(page)
