"""Every error of the library becomes one of ours, says how certain it is, and never holds the token."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest
import telegram.error
from telegram.error import BadRequest, ChatMigrated, InvalidToken, NetworkError, RetryAfter, TelegramError, TimedOut

from adapters.telegram.client import TelegramClient
from adapters.telegram.errors import ChatMoved, MarkupRefused, MessageGone, connect_error, send_error
from adapters.telegram.render import TextPiece
from gateway.errors import (
    AdapterAuthFailed,
    AdapterError,
    AdapterNotReady,
    EthosError,
    PermanentSendError,
    SendError,
    TransientSendError,
    UncertainSendError,
)
from tests.adapters.telegram.fake_telegram import TOKEN, FakeTelegram, Fault, refusal
from tests.adapters.telegram.harness import adapter_of, client_of

CLASSES = sorted(
    (each for _, each in inspect.getmembers(telegram.error, inspect.isclass) if issubclass(each, TelegramError)),
    key=lambda each: each.__name__,
)
HTTPX = sorted(
    (each for _, each in inspect.getmembers(httpx, inspect.isclass) if issubclass(each, httpx.TransportError)),
    key=lambda each: each.__name__,
)
NOT_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    fake = FakeTelegram()
    await fake.start()
    yield fake
    await fake.stop()


def made(kind: type[TelegramError]) -> TelegramError:
    argument: object = 5 if kind in (RetryAfter, ChatMigrated) else "words"
    return kind(argument)  # type: ignore[arg-type]


def caused_by(kind: type[Exception], error: TelegramError) -> TelegramError:
    error.__cause__ = kind("words")
    return error


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_of_the_library_is_translated(kind: type[TelegramError]) -> None:
    assert isinstance(connect_error(made(kind)), AdapterError)
    assert isinstance(send_error(made(kind)), (SendError, ChatMoved))


def test_the_walk_meets_the_errors_that_there_are() -> None:
    assert len(CLASSES) >= 11
    assert len(HTTPX) >= 12


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RetryAfter(timedelta(seconds=7)), TransientSendError),
        (telegram.error.Forbidden("bot was blocked"), PermanentSendError),
        (BadRequest("Chat not found"), PermanentSendError),
        (BadRequest("Can't parse entities: x"), MarkupRefused),
        (BadRequest("ENTITY_BOUNDS_INVALID"), MarkupRefused),
        (BadRequest("Message to edit not found"), MessageGone),
        (BadRequest("MESSAGE_ID_INVALID"), MessageGone),
        (BadRequest("Message is not modified: x"), type(None)),
        (ChatMigrated(-100), ChatMoved),
        (InvalidToken(), TransientSendError),
        (telegram.error.Conflict("x"), TransientSendError),
        (NetworkError("Bad Gateway (502)"), UncertainSendError),
        (NetworkError("Request Entity Too Large (413)"), PermanentSendError),
        (TimedOut(), UncertainSendError),
        (TelegramError("Invalid server response"), UncertainSendError),
    ],
    ids=str,
)
def test_an_error_says_how_certain_it_is(error: TelegramError, expected: type) -> None:
    assert type(send_error(error)) is expected


@pytest.mark.parametrize("kind", HTTPX, ids=lambda kind: kind.__name__)
def test_a_broken_line_is_certain_only_where_nothing_was_sent(kind: type[Exception]) -> None:
    library = TimedOut() if issubclass(kind, httpx.TimeoutException) else NetworkError("words")
    expected = TransientSendError if kind.__name__ in NOT_SENT else UncertainSendError
    assert type(send_error(caused_by(kind, library))) is expected


def test_the_seconds_of_a_pause_are_passed_on() -> None:
    for outcome in (send_error(RetryAfter(7)), connect_error(RetryAfter(timedelta(seconds=7)))):
        assert isinstance(outcome, (TransientSendError, AdapterNotReady))
        assert outcome.retry_after_s == 7


# ---- the token ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["123456:AAH-another_token_that_nobody_knows", "nonsense"])
async def test_a_wrong_token_is_named_without_printing_it(
    fake: FakeTelegram, caplog: pytest.LogCaptureFixture, token: str
) -> None:
    caplog.set_level(logging.DEBUG)
    adapter = adapter_of(fake, client=client_of(fake, token=token))
    with pytest.raises(AdapterAuthFailed) as caught:
        await adapter.connect()
    await adapter.close()
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
    assert token not in shown
    assert "BotFather" in str(caught.value)


async def test_the_token_is_in_no_log_and_in_no_error_whatever_happens(
    fake: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = client_of(fake, poll_timeout_s=0.01)
    await client.open()
    shown = ""
    leaking = f"Bad Request: see https://api.telegram.org/bot{TOKEN}/sendMessage"
    for fault in (
        refusal(400, leaking), refusal(403, leaking), refusal(500, leaking), refusal(409, leaking), Fault(),
        Fault(502, leaking.encode()), Fault(200, leaking.encode()), refusal(418, leaking, odd=leaking),
    ):  # fmt: skip
        fake.faults["sendMessage"].append(fault)
        fake.faults["getUpdates"].append(fault)
        for call in (client.send_message(42, TextPiece(text="x")), client.get_updates(None)):
            with pytest.raises((EthosError, MarkupRefused)) as caught:
                await call
            shown += "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    await client.close()
    assert TOKEN not in shown
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(vars(adapter_of(fake)))


async def test_a_client_that_is_not_open_says_so(fake: FakeTelegram) -> None:
    client = client_of(fake)
    with pytest.raises(AdapterNotReady):
        await client.get_updates(None)
    with pytest.raises(TransientSendError):
        await client.send_message(42, TextPiece(text="x"))
    await client.close()


async def test_a_start_that_fails_leaves_nothing_open(fake: FakeTelegram) -> None:
    for fault in (Fault(), refusal(500, "Internal Server Error"), Fault(200, b"<html>"), Fault(200, b'{"ok":true}')):
        fake.faults["getMe"].append(fault)
        client = client_of(fake)
        with pytest.raises(AdapterNotReady):
            await client.open()
        assert client._bot is None


async def test_who_we_are_is_asked_anew_at_each_connection(fake: FakeTelegram) -> None:
    client: TelegramClient = client_of(fake)
    assert (await client.open()).username == "ethos_test_bot"
    assert (await client.open()).id == 123456
    assert len(fake.called("getMe")) == 2
    await client.close()
