"""Every error of the SDK means something."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import discord
import discord.app_commands
import discord.ext.commands
import discord.ext.tasks
import pytest

from adapters.discord import errors
from gateway.errors import (
    AdapterAuthFailed,
    AdapterError,
    AdapterNotReady,
    PermanentSendError,
    SendError,
    TransientSendError,
    UncertainSendError,
)


def subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for each in kind.__subclasses__():
        yield from subclasses(each)


def every_class() -> list[type[BaseException]]:
    roots = (discord.DiscordException, aiohttp.ClientError)
    found = {kind for root in roots for kind in subclasses(root)}
    assert len(found) > 60
    return sorted(found, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


def blank(kind: type[BaseException]) -> Any:
    """One of the class, whatever its arguments; printable, as some are not without theirs."""
    printable: Any = type(kind.__name__, (kind,), {"__str__": lambda _self: "blank"})
    error: Any = printable.__new__(printable)
    if isinstance(error, discord.HTTPException):
        no_headers: Any = SimpleNamespace(headers={})
        error.status, error.code, error.text, error.response = 400, 0, "", no_headers
    if isinstance(error, discord.ConnectionClosed):
        error.code = 4000
    if isinstance(error, discord.RateLimited):
        error.retry_after = 3.0
    return error


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_every_exception_of_the_sdk_is_translated(kind: type[BaseException]) -> None:
    error = blank(kind)
    assert isinstance(errors.send_error(error), SendError)
    assert isinstance(errors.connect_error(error), AdapterError)


def answered(
    status: int, code: int = 0, text: str = "", headers: dict[str, str] | None = None
) -> discord.HTTPException:
    response: Any = SimpleNamespace(status=status, reason="", headers=headers or {})
    return discord.HTTPException(response, {"code": code, "message": text})


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (answered(400), PermanentSendError),
        (answered(401), TransientSendError),
        (answered(403, 50013), PermanentSendError),
        (answered(404, 10003), PermanentSendError),
        (answered(404, 10008), errors.MessageGone),
        (answered(404, 10015), errors.InteractionExpired),
        (answered(404, 10062), errors.InteractionExpired),
        (answered(401, 50027), errors.InteractionExpired),
        (answered(400, 160002), errors.ReplyRefused),
        (answered(400, 50035, "In message_reference: Unknown message"), errors.ReplyRefused),
        (answered(429), TransientSendError),
        (answered(500), UncertainSendError),
        (answered(503), UncertainSendError),
        (discord.RateLimited(9.0), TransientSendError),
        (aiohttp.ClientOSError(104, "Connection reset by peer"), UncertainSendError),
        (aiohttp.ServerDisconnectedError(), UncertainSendError),
        (aiohttp.ConnectionTimeoutError(), TransientSendError),
        (TimeoutError(), UncertainSendError),
        (ConnectionResetError(104, "Connection reset by peer"), UncertainSendError),
        (RuntimeError("Session is closed"), TransientSendError),
        (KeyError("id"), UncertainSendError),
    ],
    ids=repr,
)
def test_how_certain_it_is_that_nothing_was_sent(error: Exception, meaning: type[SendError]) -> None:
    assert type(errors.send_error(error)) is meaning


async def test_a_line_that_was_never_there_is_certain_not_to_have_carried_anything() -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError) as failure:
            await session.post(f"http://127.0.0.1:{port}/")
    assert type(errors.send_error(failure.value)) is TransientSendError


@pytest.mark.parametrize("headers", [{"Retry-After": "12.5"}, {"Retry-After": "soon"}, {}], ids=repr)
def test_a_pause_is_as_long_as_discord_says(headers: dict[str, str]) -> None:
    error = errors.send_error(answered(429, headers=headers))
    assert isinstance(error, TransientSendError)
    assert error.retry_after_s == (12.5 if headers.get("Retry-After") == "12.5" else None)


def test_only_the_bots_own_token_counts_as_refused() -> None:
    assert errors.is_token_refused(answered(401))
    assert not errors.is_token_refused(answered(401, 50027))
    assert not errors.is_token_refused(answered(403))


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (discord.LoginFailure("Improper token has been passed."), AdapterAuthFailed),
        (discord.PrivilegedIntentsRequired(None), AdapterAuthFailed),
        (answered(401), AdapterAuthFailed),
        (answered(503), AdapterNotReady),
        (AttributeError("'NoneType' object has no attribute 'sequence'"), AdapterNotReady),
        (OSError("no route"), AdapterNotReady),
        (KeyError("a defect"), AdapterNotReady),
        (None, AdapterNotReady),
    ],
    ids=repr,
)
def test_why_there_is_no_connection(error: Exception | None, meaning: type[AdapterError]) -> None:
    assert type(errors.connect_error(error)) is meaning
