"""What python-telegram-bot's errors mean, and three refusals after which the adapter can go on."""

from __future__ import annotations

from datetime import timedelta

import httpx
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    PassportDecryptionError,
    RetryAfter,
    TelegramError,
)

from gateway.errors import (
    AdapterAuthFailed,
    AdapterError,
    AdapterNotReady,
    PermanentSendError,
    SendError,
    TransientSendError,
    UncertainSendError,
)

_CONFLICT_S = 5.0
# Raised before anything was sent. After any other connection error the request may have arrived.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
_GONE = (
    "message to edit not found",
    "message can't be edited",
    "message to delete not found",
    "message can't be deleted",
    "message_id_invalid",
)


class ChatMoved(PermanentSendError):
    """The group was upgraded and has a new id; nothing was done."""

    def __init__(self, new_chat_id: int) -> None:
        super().__init__(f"the group has moved to {new_chat_id}")
        self.new_chat_id = new_chat_id


class MarkupRefused(PermanentSendError):
    """Telegram cannot read the entities; nothing was done."""


class MessageGone(PermanentSendError):
    """The message was deleted, or cannot be changed any more; nothing was done."""


def connect_error(error: TelegramError) -> AdapterError:
    """What an error means for the channel as a whole."""
    if isinstance(error, InvalidToken):
        return AdapterAuthFailed(
            "Telegram does not know the bot's token; take the right one from @BotFather, set `token`, and start again"
        )
    if isinstance(error, Conflict):
        return AdapterNotReady(
            "another process fetches the updates of the same bot; stop it, or make a bot of its own for each gateway",
            retry_after_s=_CONFLICT_S,
        )
    if isinstance(error, RetryAfter):
        return AdapterNotReady("Telegram asks us to wait", retry_after_s=_seconds(error))
    return AdapterNotReady(f"Telegram cannot be used now: {error}")


def send_error(error: TelegramError) -> SendError | None:
    """What an error means for a send; None if the message already shows what it should.

    Of connection errors, only those that come before the request was sent are transient.
    """
    text = str(error).lower()
    outcome: SendError | None
    if isinstance(error, RetryAfter):
        outcome = TransientSendError("Telegram asks us to wait", retry_after_s=_seconds(error))
    elif isinstance(error, ChatMigrated):
        outcome = ChatMoved(error.new_chat_id)
    elif isinstance(error, BadRequest):
        outcome = _refusal(text, error)
    elif (
        isinstance(error, (Forbidden, EndPointNotFound, PassportDecryptionError)) or "request entity too large" in text
    ):
        outcome = PermanentSendError(f"Telegram refuses: {error}")
    elif isinstance(error, InvalidToken):
        outcome = TransientSendError("Telegram does not know the bot's token")  # the channel goes down for it
    elif isinstance(error, Conflict) or isinstance(error.__cause__, _NOT_SENT):
        outcome = TransientSendError(f"Telegram cannot be reached: {error}")
    else:
        outcome = UncertainSendError(f"Telegram did not confirm: {error}")
    return outcome


def _refusal(text: str, error: BadRequest) -> SendError | None:
    """What a 400 means. There are no codes for these; the texts are those of Telegram's open-source server.

    https://github.com/tdlib/telegram-bot-api/blob/master/telegram-bot-api/Client.cpp
    """
    if "message is not modified" in text:
        return None
    if "can't parse entities" in text or "entity_" in text or "entities_" in text:
        return MarkupRefused(text)
    if any(words in text for words in _GONE):
        return MessageGone(text)
    return PermanentSendError(f"Telegram refuses: {error}")


def _seconds(error: RetryAfter) -> float:
    after = error.retry_after
    return after.total_seconds() if isinstance(after, timedelta) else float(after)
