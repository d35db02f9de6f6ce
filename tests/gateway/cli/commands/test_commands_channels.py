"""`ethos channels`: a login is tried, a channel is added, listed, tested, paused, resumed and removed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.adapters.telegram.fake_telegram import TOKEN, FakeTelegram
from tests.gateway.cli.commands.conftest import CONFIG, Ethos

WRONG = "999999:AAH-canary_of_another_token_012345"


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    """In a thread of its own, because a command has an event loop of its own."""
    fake, loop = FakeTelegram(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(fake.start(), loop).result()
    yield fake
    asyncio.run_coroutine_threadsafe(fake.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def channels(home: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = yaml.safe_load((home / "config.yaml").read_text())["channels"]
    return found


def add(telegram: FakeTelegram, token: str, *words: str) -> tuple[str, ...]:
    return ("channels", "add", "telegram", "--set", f"token={token}", "--set", f"api_url={telegram.url}", *words)


def test_the_kinds_are_listed_and_one_is_shown_with_its_steps_and_keys(ethos: Ethos, home: Path) -> None:
    del home
    listed = ethos("channels", "kinds")
    assert [line.split()[0] for line in listed.out.splitlines()[1:]][:2] == ["discord", "email"]
    shown = ethos("channels", "kinds", "telegram").out
    assert shown.startswith("Telegram: A bot that answers in private chats")
    assert "1. Make a bot. In Telegram, open @BotFather (<https://t.me/BotFather>)" in shown
    assert "the bot's token, from @BotFather" in shown
    assert "there is no kind 'telegramm' (did you mean `telegram`?)" in ethos("channels", "kinds", "telegramm").err


def test_a_login_that_is_not_taken_is_written_nowhere(ethos: Ethos, home: Path, telegram: FakeTelegram) -> None:
    refused = ethos(*add(telegram, WRONG))
    assert refused.code == 1
    assert refused.out.startswith("The login does not work.\n  Telegram does not know the bot's token;")
    assert "nothing was written: Telegram does not know the bot's token" in refused.err
    assert "canary" not in refused.out + refused.err
    assert (home / "config.yaml").read_text() == CONFIG
    added = ethos(*add(telegram, WRONG, "--no-try"))
    assert added.code == 0
    assert "canary" not in (home / "config.yaml").read_text()


def test_a_channel_is_added_tested_paused_resumed_and_removed(
    ethos: Ethos, home: Path, telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOT_TOKEN", TOKEN)
    added = ethos(*add(telegram, "${BOT_TOKEN}", "--name", "phone", "--set", "poll_timeout_s=9", "--set", "allow=1,2"))
    assert added.out == (
        "The login works: this is @ethos_test_bot. https://t.me/ethos_test_bot\n"
        "  Its privacy mode is on: in groups it gets mentions, replies and commands. That is all that it needs.\n"
        "phone is added. No gateway runs; the next start takes that over.\n"
    )
    assert channels(home)["phone"] == {
        "kind": "telegram", "token": "${BOT_TOKEN}", "api_url": telegram.url, "poll_timeout_s": 9, "allow": ["1", "2"],
    }  # fmt: skip
    again = ethos(*add(telegram, "${BOT_TOKEN}", "--name", "phone", "--no-try"))
    assert "name: there is a channel of this name already; choose another one" in again.err
    assert ethos("channels", "test", "phone").out.startswith("The login works: this is @ethos_test_bot.")
    assert ethos("channels", "pause", "phone").out.startswith("phone is paused.")
    [_, phone] = ethos("channels", "list", "--json").value
    assert (phone["name"], phone["state"], phone["waiting_out"]) == ("phone", "paused", 0)
    assert channels(home)["phone"]["enabled"] is False
    assert ethos("channels", "resume", "phone").out.startswith("phone is resumed.")
    assert "nothing was removed: there is no terminal to ask at" in ethos("channels", "remove", "phone").err
    assert ethos("channels", "remove", "phone", "--yes").out.startswith("phone is removed.")
    assert (home / "config.yaml").read_text() == CONFIG
    for words in (("test", "phone"), ("pause", "phone"), ("remove", "phone", "-y")):
        assert "there is no channel 'phone' in config.yaml; there are: fake" in ethos("channels", *words).err


def test_a_test_that_finds_something_wrong_ends_with_another_code(
    ethos: Ethos, home: Path, telegram: FakeTelegram
) -> None:
    del home
    ethos(*add(telegram, TOKEN))
    telegram.webhook = {"url": "https://shop.example/bot"}
    tested = ethos("channels", "test", "telegram")
    assert tested.code == 1
    assert "  Another program at shop.example receives this bot's messages" in tested.out


def test_what_is_wrong_is_named_by_its_key(ethos: Ethos, home: Path, telegram: FakeTelegram) -> None:
    wrong = ethos(*add(telegram, TOKEN, "--set", "poll_timeout_s=soon", "--set", "markup=blink"))
    assert "poll_timeout_s: " in wrong.err
    assert "markup: " in wrong.err
    assert "--set nonsense: expected --set KEY=VALUE" in ethos(*add(telegram, TOKEN, "--set", "nonsense")).err
    assert (home / "config.yaml").read_text() == CONFIG
