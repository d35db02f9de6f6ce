"""The Bot API. Only this file and `errors` use python-telegram-bot; its errors are translated here.

The library's own loops (`Application`, `Updater`) are not used: they confirm updates before these are handled, end on a
401 without an error, and repeat without a pause the request for an update that they cannot parse.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
from telegram import (
    Bot,
    BotCommand,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaDocument,
    LinkPreviewOptions,
    MessageEntity,
    ReplyParameters,
)
from telegram.constants import ChatAction
from telegram.error import InvalidToken, TelegramError
from telegram.request import HTTPXRequest

from adapters.telegram.buttons import Keyboard
from adapters.telegram.convert import UPDATE_KINDS, Account, Json
from adapters.telegram.errors import MessageGone, connect_error, send_error
from adapters.telegram.render import Style, TextPiece, VoicePiece
from gateway.errors import AdapterNotReady, PermanentSendError, TransientSendError, UncertainSendError

# Makes the library return timedeltas; without it, each 429 logs a deprecation warning.
os.environ.setdefault("PTB_TIMEDELTA", "true")

MAX_DOWNLOAD_BYTES = 20 * 1024 * 1024
"""Of the public server: https://core.telegram.org/bots/api#getfile."""

_CONNECT_S, _REQUEST_S, _UPLOAD_S = 10.0, 20.0, 120.0
_CONNECTIONS = 100
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BotFacts:
    """A bot as Telegram describes it: https://core.telegram.org/bots/api#getme, #getwebhookinfo.

    Attributes:
        reads_groups: privacy mode is off, so it gets every message of its groups.
        webhook_url: the address that Telegram calls; empty for none.
        webhook_error: why the last call of it failed, if it did.
    """

    username: str
    can_join_groups: bool
    reads_groups: bool
    webhook_url: str
    webhook_error: str | None


class TelegramClient:
    """One bot, for many tasks at once."""

    def __init__(
        self,
        token: str,
        *,
        api_url: str,
        poll_timeout_s: float,
        request_timeout_s: float = _REQUEST_S,
        poll_grace_s: float = 10.0,
    ) -> None:
        """Nothing is opened before `open`; a long poll may take `poll_grace_s` longer than `poll_timeout_s`."""
        self._token = token
        self._api_url = api_url
        self._poll_timeout_s = poll_timeout_s
        self._request_timeout_s = request_timeout_s
        self._poll_grace_s = poll_grace_s
        self._bot: Bot | None = None
        self._polling: _UpdatesRequest | None = None

    @property
    def webhook_secret(self) -> str:
        """What Telegram must send with every call; derived from the token, so it need not be stored."""
        return hmac.new(self._token.encode(), b"webhook", hashlib.sha256).hexdigest()

    async def open(self) -> Account:
        """Log in, and return the bot's account. Raises as `ChannelAdapter.connect`, and may then be called again."""
        with self._connecting():
            if self._bot is not None:
                me = await self._bot.get_me()
                return Account(id=me.id, username=me.username or "")
            bot = self._make_bot()
            try:
                await bot.initialize()
            except BaseException:
                await bot.shutdown()
                raise
            self._bot = bot
            return Account(id=bot.bot.id, username=bot.bot.username or "")

    async def describe(self) -> BotFacts:
        """The bot and its webhook, after `open`. Raises as `open` does."""
        with self._connecting():
            bot = self._connected()
            webhook = await bot.get_webhook_info()
            return BotFacts(
                username=bot.bot.username or "",
                can_join_groups=bool(bot.bot.can_join_groups),
                reads_groups=bool(bot.bot.can_read_all_group_messages),
                webhook_url=webhook.url,
                webhook_error=webhook.last_error_message,
            )

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        bot, self._bot = self._bot, None
        if bot is not None:
            await bot.shutdown()

    # ---- receiving --------------------------------------------------------------------------------------------------

    async def get_updates(self, offset: int | None) -> list[Json]:
        """The next updates, as JSON; none if none came within `poll_timeout_s`. The offset confirms all below it.

        Raises as `open`; also AdapterNotReady if another process polls this bot.
        """
        with self._connecting():
            bot, polling = self._connected(), self._polling
            await bot.get_updates(
                offset, timeout=timedelta(seconds=self._poll_timeout_s), allowed_updates=list(UPDATE_KINDS)
            )
        try:
            answer = json.loads(polling.answer if polling is not None else b"")
            return [update for update in answer["result"] if isinstance(update, dict)]
        except _MALFORMED as error:
            raise AdapterNotReady("what answered the long poll was not Telegram; is a proxy in between?") from error

    async def set_webhook(self, url: str, secret: str) -> None:
        """Let Telegram call `url`, with the secret in a header. Raises as `open` does."""
        with self._connecting():
            await self._connected().set_webhook(url, secret_token=secret, allowed_updates=list(UPDATE_KINDS))

    async def webhook_url(self) -> str:
        """The address that Telegram calls now. Raises as `open` does."""
        with self._connecting():
            return (await self._connected().get_webhook_info()).url

    async def remove_webhook(self) -> None:
        """Remove it, so that updates can be polled; waiting updates are kept. Raises as `open` does."""
        with self._connecting():
            await self._connected().delete_webhook()

    async def set_commands(self, menu: Sequence[tuple[str, str]]) -> None:
        """Set the menu of commands for all chats. Raises as `open` does."""
        with self._connecting():
            await self._connected().set_my_commands([BotCommand(name, text) for name, text in menu])

    async def download(self, file_id: str, max_bytes: int) -> bytes:
        """A file that a person sent. Raises as `SupportsAttachments.fetch`."""
        try:
            with self._sending():
                file = await self._connected().get_file(file_id)
                if (file.file_size or 0) > max_bytes:
                    raise PermanentSendError(f"the file has {file.file_size} bytes; {max_bytes} is the most")
                content = bytes(await file.download_as_bytearray())
        except UncertainSendError as error:
            raise TransientSendError(str(error)) from error
        except RuntimeError as error:
            raise PermanentSendError(f"the file cannot be had: {error}") from error
        if len(content) > max_bytes:
            raise PermanentSendError(f"the file has {len(content)} bytes; {max_bytes} is the most")
        return content

    # ---- sending: raises TransientSendError, UncertainSendError, PermanentSendError and its subclasses in `errors` ---

    async def send_message(
        self, chat_id: int, piece: TextPiece, *, thread_id: int | None = None, reply_to: int | None = None
    ) -> int:
        """Send a new message and return its id. Not idempotent, unlike the methods below."""
        with self._sending():
            message = await self._connected().send_message(
                chat_id,
                piece.text,
                entities=_entities(piece.styles),
                message_thread_id=thread_id,
                reply_parameters=_reply(reply_to),
                link_preview_options=LinkPreviewOptions(is_disabled=True),  # a page's server would learn of it
            )
            return int(message.message_id)

    async def edit_text(self, chat_id: int, message_id: int, piece: TextPiece, keyboard: Keyboard = ()) -> None:
        """Replace a message's text and buttons."""
        with self._sending():
            await self._connected().edit_message_text(
                piece.text,
                chat_id=chat_id,
                message_id=message_id,
                entities=_entities(piece.styles),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=_markup(keyboard),
            )

    async def replace_with_file(
        self, chat_id: int, message_id: int, filename: str, content: bytes, keyboard: Keyboard = ()
    ) -> None:
        """Replace a message by a file (Bot API 7.11 and later take a text message for that)."""
        with self._sending():
            await self._connected().edit_message_media(
                InputMediaDocument(content, filename=filename, disable_content_type_detection=True),
                chat_id=chat_id,
                message_id=message_id,
                reply_markup=_markup(keyboard),
                read_timeout=_UPLOAD_S,
                write_timeout=_UPLOAD_S,
            )

    async def send_voice(
        self, chat_id: int, piece: VoicePiece, *, thread_id: int | None = None, reply_to: int | None = None
    ) -> int:
        """Send a voice message and return its id. Not idempotent, and no other message can become one by an edit."""
        with self._sending():
            message = await self._connected().send_voice(
                chat_id,
                piece.content,
                filename=piece.filename,
                duration=timedelta(seconds=round(piece.duration_s)),
                message_thread_id=thread_id,
                reply_parameters=_reply(reply_to),
                read_timeout=_UPLOAD_S,
                write_timeout=_UPLOAD_S,
            )
            return int(message.message_id)

    async def answer_callback_query(self, query_id: str, text: str | None = None) -> None:
        """End the waiting state of a pressed button, and show a notice if there is a text."""
        with self._sending():
            await self._connected().answer_callback_query(query_id, text)

    async def edit_keyboard(self, chat_id: int, message_id: int, keyboard: Keyboard) -> None:
        """Replace a message's buttons."""
        with self._sending():
            await self._connected().edit_message_reply_markup(
                chat_id=chat_id, message_id=message_id, reply_markup=_markup(keyboard)
            )

    async def delete_message(self, chat_id: int, message_id: int) -> None:
        """Delete a message, if it exists."""
        with self._sending(), contextlib.suppress(MessageGone):
            await self._connected().delete_message(chat_id, message_id)

    async def send_draft(self, chat_id: int, draft_id: int, piece: TextPiece, *, thread_id: int | None = None) -> None:
        """Show an unfinished text for at most 30 s; in private chats only."""
        with self._sending():
            await self._connected().send_message_draft(
                chat_id, draft_id, piece.text, message_thread_id=thread_id, entities=_entities(piece.styles)
            )

    async def send_typing(self, chat_id: int, *, thread_id: int | None = None) -> None:
        """Show that the bot is typing, for at most 5 s."""
        with self._sending():
            await self._connected().send_chat_action(chat_id, ChatAction.TYPING, message_thread_id=thread_id)

    # ---- errors ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _connecting(self) -> Iterator[None]:
        try:
            yield
        except InvalidToken:
            # Neither chained nor quoted: the library's text contains the token.
            raise connect_error(InvalidToken()) from None
        except TelegramError as error:
            raise self._redacted(connect_error(error)) from None
        except TransientSendError as error:
            raise AdapterNotReady(str(error)) from None
        except _MALFORMED as error:
            raise AdapterNotReady(f"Telegram gave no answer that can be read ({type(error).__name__})") from None

    @contextlib.contextmanager
    def _sending(self) -> Iterator[None]:
        try:
            yield
        except TelegramError as error:
            outcome = send_error(error)
            if outcome is not None:
                raise self._redacted(outcome) from None
        except _MALFORMED as error:
            raise UncertainSendError(f"Telegram gave no answer that can be read ({type(error).__name__})") from None

    def _redacted(self, error: Exception) -> Exception:
        error.args = tuple(
            argument.replace(self._token, "…") if isinstance(argument, str) else argument for argument in error.args
        )
        return error

    def _connected(self) -> Bot:
        if self._bot is None:
            raise TransientSendError("the channel is not connected")
        return self._bot

    def _make_bot(self) -> Bot:
        # The libraries log addresses with the token, and the bodies of answers. Their errors reach our log anyway.
        for name, level in (("httpx", logging.WARNING), ("httpcore", logging.WARNING), ("telegram", logging.CRITICAL)):
            logging.getLogger(name).setLevel(level)
        # A Bot API server on this machine is not reached through a proxy.
        options = {"trust_env": urlsplit(self._api_url).hostname not in _LOOPBACK}
        self._polling = _UpdatesRequest(
            connection_pool_size=1,
            connect_timeout=_CONNECT_S,
            read_timeout=self._poll_grace_s,  # the library adds the long poll's own time
            write_timeout=self._request_timeout_s,
            pool_timeout=_CONNECT_S,
            httpx_kwargs=options,
        )
        request = HTTPXRequest(
            connection_pool_size=_CONNECTIONS,
            connect_timeout=_CONNECT_S,
            read_timeout=self._request_timeout_s,
            write_timeout=self._request_timeout_s,
            media_write_timeout=_UPLOAD_S,
            pool_timeout=self._request_timeout_s,
            httpx_kwargs=options,
        )
        return Bot(
            self._token,
            base_url=f"{self._api_url}/bot",
            base_file_url=f"{self._api_url}/file/bot",
            request=request,
            get_updates_request=self._polling,
        )


class _UpdatesRequest(HTTPXRequest):
    """Keeps the raw answer to a long poll, and gives the library an empty one.

    The library parses a batch as a whole: with one update of an unknown form it logs them all and raises, each time.
    """

    answer = b""

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        """Send the request, and keep the answer."""
        status, payload = await super().do_request(*args, **kwargs)
        if status != httpx.codes.OK:
            return status, payload
        self.answer = payload
        return status, b'{"ok": true, "result": []}'


def _reply(reply_to: int | None) -> ReplyParameters | None:
    return None if reply_to is None else ReplyParameters(reply_to, allow_sending_without_reply=True)


def _entities(styles: Sequence[Style]) -> list[MessageEntity] | None:
    return [
        MessageEntity(each.kind, each.start, each.end - each.start, url=each.url, language=each.language)
        for each in styles
    ] or None


def _markup(keyboard: Keyboard) -> InlineKeyboardMarkup | None:
    if not keyboard:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(each.label, callback_data=each.data) for each in row] for row in keyboard]
    )
