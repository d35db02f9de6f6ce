"""A real gateway, killed with SIGKILL in the middle of a send: what a person sees once it is back.

The one window that is left: Telegram has taken the first words, and we have not heard the message's number. Then these
stay, and the answer comes once all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.adapters.telegram.fake_telegram import PERSON, TOKEN, FakeTelegram, Fault, Json
from tests.adapters.telegram.harness import is_filled
from tests.scenarios.process import Ethos

BEFORE, AFTER = Fault(is_hanging=True), Fault(is_hanging=True, is_done=True)


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram()
    await telegram.start()
    yield telegram
    await telegram.stop()


@pytest.fixture
def gateway(tmp_path: Path, telegram: FakeTelegram) -> Iterator[Ethos]:
    gateway = Ethos(tmp_path / "home")
    gateway.configure(
        "web: {port: 0}\n"
        "channels:\n"
        f"  phone: {{kind: telegram, token: '{TOKEN}', allow: ['{PERSON['id']}'], api_url: '{telegram.url}',"
        " poll_timeout_s: 1}\n"
    )
    yield gateway
    gateway.close()


def answers(telegram: FakeTelegram) -> list[str]:
    return [shown.text for shown in telegram.bot_messages() if is_filled(shown)]


async def killed_in(telegram: FakeTelegram, gateway: Ethos, method: str, fault: Fault, update: Json) -> None:
    """Kill the gateway while Telegram has the first request of the method, and let another one begin."""
    telegram.faults[method].append(fault)
    await asyncio.to_thread(gateway.serve)
    await telegram.give(update)
    await telegram.until(lambda: len(telegram.called(method)) == 1)
    if fault.is_done:
        await telegram.until(lambda: bool(telegram.bot_messages()))
    gateway.kill()
    telegram.drop_connections()
    await asyncio.to_thread(gateway.serve)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "fault", "lone"),
    [
        ("sendMessage", BEFORE, 0),
        ("sendMessage", AFTER, 1),
        ("editMessageText", BEFORE, 0),
        ("editMessageText", AFTER, 0),
    ],
    ids=["first words not taken", "first words taken", "text not taken", "text taken"],
)
async def test_the_answer_is_there_once_whenever_the_process_is_killed(
    telegram: FakeTelegram, gateway: Ethos, method: str, fault: Fault, lone: int
) -> None:
    await killed_in(telegram, gateway, method, fault, telegram.update(telegram.message("what is 6 * 7?")))
    await telegram.until(lambda: bool(answers(telegram)))
    await telegram.say("what is 2 * 50?")
    await telegram.until(lambda: any("100" in text for text in telegram.texts()))
    first, second = answers(telegram)
    assert "42" in first
    assert "100" in second
    left = [shown.text for shown in telegram.bot_messages() if not is_filled(shown)]
    assert len(left) == lone
    assert all(first.startswith(words.removesuffix("…")) and words != "…" for words in left)
