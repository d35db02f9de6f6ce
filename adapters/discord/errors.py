"""What discord.py's errors mean: how certain a failure is, and what an operator can do.

Discord's codes: https://docs.discord.com/developers/topics/opcodes-and-status-codes.
"""

from __future__ import annotations

import warnings

import aiohttp

from gateway.errors import (
    AdapterAuthFailed,
    AdapterError,
    AdapterNotReady,
    PermanentSendError,
    SendError,
    TransientSendError,
    UncertainSendError,
)

with warnings.catch_warnings():  # its voice part imports audioop, which is deprecated up to Python 3.12
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord

_PORTAL = "https://discord.com/developers/applications"
WRONG_TOKEN = (
    f"Discord refused the bot's token. Make a new one at {_PORTAL} (your application, Bot, Reset Token), put it into "
    "`token` as it is, without `Bot ` before it, and start again."
)
INTENT_ADVICE = (
    f"Switch it on at {_PORTAL} (your application, Bot, Privileged Gateway Intents), or set `message_content: false`"
)
_FATAL_CLOSES = {
    4004: WRONG_TOKEN,
    4010: "Discord refused the shard; this bot may need a gateway program of a newer version.",
    4011: "the bot is in more servers than one connection may serve (2500); remove it from some.",
    4012: "Discord no longer speaks this version of its protocol; update the gateway and discord.py.",
    4013: "Discord does not know one of the intents; update the gateway and discord.py.",
    4014: f"Discord refused the Message Content Intent. {INTENT_ADVICE}, and start again.",
}
_REMEDIES = {
    50001: "the bot cannot see that channel; give it the permission View Channel",
    50007: "that person takes no direct messages from the bot",
    50013: "the bot may not write there; give it the permissions Send Messages and, for files, Attach Files",
    40005: "the files are too large",
    50278: "that person shares no server with the bot any more",
}
_UNKNOWN_CHANNEL = 10003
_EXPIRED = (10015, 10062, 50027)  # unknown webhook, unknown interaction, invalid webhook token
_NO_HISTORY = 160002  # cannot reply without the permission to read the history


class MessageGone(PermanentSendError):
    """The message or the file was deleted."""


class InteractionExpired(PermanentSendError):
    """The interaction's token is not valid any more; nothing was sent."""


class ReplyRefused(PermanentSendError):
    """Discord refuses the reply to that message; nothing was sent."""


def connect_error(error: BaseException | None) -> AdapterError:  # noqa: PLR0911 (a table)
    """What an error means for the connection; None: it ended without one."""
    if isinstance(error, discord.LoginFailure) or _status(error) == 401:
        return AdapterAuthFailed(WRONG_TOKEN)
    if isinstance(error, discord.PrivilegedIntentsRequired):
        return AdapterAuthFailed(_FATAL_CLOSES[4014])
    if isinstance(error, discord.ConnectionClosed):
        fatal = _FATAL_CLOSES.get(error.code)
        return AdapterNotReady(f"Discord hung up ({error.code})") if fatal is None else AdapterAuthFailed(fatal)
    if isinstance(error, discord.RateLimited):
        return AdapterNotReady("Discord asks for a pause", error.retry_after)
    if isinstance(error, discord.HTTPException):
        return AdapterNotReady(f"Discord answers {error.status}", _retry_after_s(error))
    if isinstance(error, AttributeError):  # Rapptz/discord.py issue 10520
        return AdapterNotReady("Discord's gateway cannot be reached")
    if isinstance(error, (OSError, aiohttp.ClientError, discord.GatewayNotFound)):
        return AdapterNotReady(f"Discord cannot be reached: {type(error).__name__}: {error}")
    if error is None:
        return AdapterNotReady("the connection to Discord ended")
    return AdapterNotReady(f"the connection to Discord broke: {type(error).__name__}")


def send_error(error: Exception) -> SendError:  # noqa: PLR0911 (a table)
    """What an error means for a send."""
    if isinstance(error, SendError):
        return error
    if isinstance(error, discord.RateLimited):
        return TransientSendError("Discord asks for a pause", error.retry_after)
    if isinstance(error, discord.HTTPException):
        return _of_answer(error)
    # the second for the connection only: it is raised before anything is sent
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return TransientSendError(f"Discord cannot be reached: {error}")
    if isinstance(error, (discord.LoginFailure, discord.GatewayNotFound, discord.MissingApplicationID)):
        return TransientSendError(f"the connection to Discord is not open: {type(error).__name__}")
    if isinstance(error, RuntimeError) and "closed" in str(error):  # aiohttp, before anything is sent
        return TransientSendError("the connection to Discord was closed")
    if isinstance(error, aiohttp.InvalidURL):
        return PermanentSendError(f"Discord cannot be asked that: {error}")
    # a reset (errno 104), a time-out, an answer that cannot be read: the message may be there
    return UncertainSendError(f"Discord did not confirm: {type(error).__name__}: {error}")


def is_token_refused(error: BaseException) -> bool:
    """The bot's token was refused, not that of an interaction."""
    return _status(error) == 401 and getattr(error, "code", 0) not in _EXPIRED


def _of_answer(error: discord.HTTPException) -> SendError:  # noqa: PLR0911 (a table)
    problem = _REMEDIES.get(error.code) or f"{error.status}, code {error.code}: {error.text[:200]}"
    if error.code in _EXPIRED:
        return InteractionExpired("the command waits for its answer no longer")
    if error.status == 401:
        return TransientSendError("Discord refused the bot's token")
    if error.status == 429:
        return TransientSendError("Discord asks for a pause", _retry_after_s(error))
    if error.status >= 500:
        return UncertainSendError(f"Discord answers {error.status}")
    if error.status == 404 and error.code != _UNKNOWN_CHANNEL:
        return MessageGone("the message is not there any more")
    if error.code == _NO_HISTORY or (error.status == 400 and "message_reference" in error.text):
        return ReplyRefused(problem)
    return PermanentSendError(f"Discord refused: {problem}")


def _status(error: BaseException | None) -> int | None:
    return error.status if isinstance(error, discord.HTTPException) else None


def _retry_after_s(error: discord.HTTPException) -> float | None:
    """Of a 429 without a `Via` header, which the SDK takes for a ban by Discord's proxy."""
    value = error.response.headers.get("Retry-After", "") if error.status == 429 else ""
    return float(value) if value.replace(".", "", 1).isdigit() else None
