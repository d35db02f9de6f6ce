"""No channel's library gets a secret or a text into the log, whatever level it was given. Row 26 of the promises.

Each channel talks with its platform's stand-in while every logger of the process is at `debug`. A spy beside the log
shows that the libraries do tell: so the silence of the log is its own doing.
"""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from gateway.errors import PermanentSendError
from gateway.runtime.logs import configure_logs
from gateway.testing.adapters import Harness, answer, running, soon
from tests.adapters.discord.harness import discord_harness
from tests.adapters.discord.world import TOKEN as DISCORD_TOKEN
from tests.adapters.email.harness import EmailHarness
from tests.adapters.email.mail_server import PASSWORD, missing_packages, running_mail_server
from tests.adapters.slack.fake_slack import APP_TOKEN, BOT_TOKEN
from tests.adapters.slack.harness import SocketHarness
from tests.adapters.telegram.fake_telegram import TOKEN as TELEGRAM_TOKEN
from tests.adapters.telegram.harness import PollingHarness

SECRETS = (DISCORD_TOKEN, PASSWORD, APP_TOKEN, BOT_TOKEN, TELEGRAM_TOKEN)
QUESTION, ANSWER = "the canary in the question", "the canary in the answer"


@asynccontextmanager
async def telegram() -> AsyncIterator[PollingHarness]:
    harness = PollingHarness()
    await harness.start()
    yield harness
    await harness.close()


@asynccontextmanager
async def slack() -> AsyncIterator[SocketHarness]:
    harness = SocketHarness()
    await harness.start()
    yield harness
    await harness.close()


@asynccontextmanager
async def email() -> AsyncIterator[EmailHarness]:
    missing = missing_packages()
    if missing is not None:
        pytest.skip(missing)
    with running_mail_server() as server:
        harness = EmailHarness(server)
        await harness.start()
        yield harness
        await harness.close()


class Spy(logging.Handler):
    """Everything that was said, with the name of the logger."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")


@pytest.fixture
def log() -> Iterator[tuple[io.StringIO, Spy]]:
    """The gateway's log at `debug`, with every library as loud as it can be."""
    stream, spy = io.StringIO(), Spy()
    configure_logs("debug", "json", stream=stream, secrets=SECRETS)
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", *logging.Logger.manager.loggerDict)}
    for name in levels:
        logging.getLogger(name).setLevel(logging.DEBUG)
    root.addHandler(spy)
    yield stream, spy
    root.removeHandler(spy)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


Channel = tuple[Callable[[], AbstractAsyncContextManager[Any]], str]
CHANNELS: dict[str, Channel] = {
    # What its libraries tell below `warning`, as the spy hears it.
    "telegram": (telegram, TELEGRAM_TOKEN),  # the addresses that it asks
    "slack": (slack, ANSWER),  # the bodies of requests
    "discord": (discord_harness, QUESTION),  # the frames of the gateway
    "email": (email, "imap"),
}


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
async def test_no_library_gets_a_secret_or_a_text_into_the_log(channel: Channel, log: tuple[io.StringIO, Spy]) -> None:
    make, told = channel
    stream, spy = log
    async with make() as harness:
        await talk(harness)
    heard = "\n".join(spy.lines)
    assert told in heard, "the libraries have changed; this test must plant its canary where they tell it"
    written = stream.getvalue()
    for secret in (*SECRETS, PASSWORD.replace('"', '\\"'), QUESTION, ANSWER):
        assert secret not in written, written


async def talk(harness: Harness) -> None:
    """A question, an answer, and one that cannot be sent."""
    async with running(harness) as inbox:
        event = await harness.person_says(QUESTION)
        await soon(inbox.has(1))
        await soon(harness.wait_acknowledged(event))
        message = answer(harness, ANSWER)
        await harness.record(message)
        await soon(harness.adapter.send(message))
        await soon(harness.saw(1))
        nowhere: Any = harness
        with pytest.raises(PermanentSendError):
            await soon(harness.adapter.send(answer(harness, ANSWER, conversation=nowhere.unknown_conversation)))


async def test_an_error_that_a_library_tells_is_heard_without_the_secret(log: tuple[io.StringIO, Spy]) -> None:
    stream, _ = log
    logging.getLogger("httpx").error("POST https://api.example.org/bot%s/send failed", TELEGRAM_TOKEN)
    written = stream.getvalue()
    assert "https://api.example.org/bot***/send failed" in written
