"""What can be set, what is set on Telegram's side, and what is said about mistakes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from adapters.telegram import Config, build
from adapters.telegram.adapter import TelegramWebhookAdapter, make_adapter
from tests.adapters.telegram.fake_telegram import TOKEN, FakeTelegram, refusal
from tests.adapters.telegram.harness import COMMANDS, adapter_of, client_of, services, unhurried
from tests.conformance.notes import FakeNotes


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram()
    await telegram.start()
    yield telegram
    await telegram.stop()


def test_a_token_is_enough() -> None:
    adapter = build(Config(token=TOKEN), services())  # type: ignore[arg-type]
    assert (adapter.name, adapter.kind) == ("phone", "telegram")
    assert not isinstance(adapter, TelegramWebhookAdapter)
    assert adapter.capabilities.markup == "markdown"


def test_an_address_makes_it_a_webhook() -> None:
    config = Config(token=TOKEN, webhook_url="https://ethos.example.org/", markup="plain")  # type: ignore[arg-type]
    adapter = build(config, services())
    assert isinstance(adapter, TelegramWebhookAdapter)
    assert adapter.capabilities.markup == "plain"


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": ""},
        {"webhook_url": "http://ethos.example.org"},
        {"webhook_url": "https://ethos.example.org:8420"},
        {"webhook_url": "https://ethos.example.org/?a=b"},
        {"webhook_url": "ethos.example.org"},
        {"poll_timeout_s": 0},
        {"poll_timeout_s": 51},
        {"api_url": "api.telegram.org"},
        {"markup": "html"},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_mistake_is_refused_without_showing_the_token(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        Config(**{"token": TOKEN, **wrong})  # type: ignore[arg-type]
    assert TOKEN not in str(caught.value)


def test_the_token_is_not_in_what_the_configuration_shows() -> None:
    assert TOKEN not in repr(Config(token=TOKEN))  # type: ignore[arg-type]


def test_a_missing_library_is_named() -> None:
    program = (
        "import sys; sys.modules['telegram'] = None\n"
        "from gateway.config.channel_kinds import load_kind\n"
        "from gateway.config.packages import KindUnusable\n"
        "try: load_kind('telegram')\n"
        "except KindUnusable as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert "pip install 'python-telegram-bot<" in said.stdout


async def test_the_menu_is_set_once_and_again_only_when_it_changes(telegram: FakeTelegram) -> None:
    notes = FakeNotes()
    for commands in (COMMANDS, COMMANDS, COMMANDS[:1], COMMANDS[:1]):
        adapter = make_adapter(client_of(telegram), services(notes, commands=commands), rate_limit=unhurried())
        await adapter.connect()
        await adapter.connect()
        await adapter.close()
    assert len(telegram.called("setMyCommands")) == 2
    assert telegram.menu == [{"command": "help", "description": "what you can type"}]


async def test_a_menu_that_cannot_be_set_stops_nothing_and_is_tried_again(telegram: FakeTelegram) -> None:
    notes = FakeNotes()
    telegram.faults["setMyCommands"].append(refusal(429, "Too Many Requests: retry after 9", retry_after=9))
    adapter = adapter_of(telegram, notes)
    await adapter.connect()
    assert telegram.menu == []
    await adapter.connect()
    await adapter.close()
    assert [command["command"] for command in telegram.menu] == ["help", "forget_me"]
