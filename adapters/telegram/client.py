"""The Bot API: with `faults`, all that touches python-telegram-bot. Every foreign error becomes one of ours here.

The library's own loops (`Application`, `Updater`) are not used: they confirm updates before these are handled, stop for
good on a 401 without telling anybody, and ask without a pause for an update that they cannot parse.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Iterator, Sequence
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
from adapters.telegram.errors import ChatMoved, MarkupRefused, MessageGone, connect_error, send_error
from adapters.telegram.render import Style, TextPiece
from gateway.errors import AdapterNotReady, PermanentSendError, TransientSendError, UncertainSendError

# The library's way to say early that times are to be timedeltas; without it, each 429 comes with a deprecation warning.
os.environ.setdefault("PTB_TIMEDELTA", "true")

MAX_DOWNLOAD_BYTES = 20 * 1024 * 1024
"""Of the public server: https://core.telegram.org/bots/api#getfile."""

_CONNECT_S, _ANSWER_S, _UPLOAD_S = 10.0, 20.0, 120.0
_CONNECTIONS = 100
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class TelegramClient:
    """One bot. It is opened once, and then used from many tasks."""

    def __init__(
        self, token: str, *, api_url: str, poll_timeout_s: float, answer_s: float = _ANSWER_S, slack_s: float = 10.0
    ) -> None:
        """Nothing is opened before `open`.

        Args:
            answer_s: the longest that an answer may take.
            slack_s: for a long poll, on top of its own time: then the line is taken for dead.
        """
        self._token = token
        self._api_url = api_url
        self._poll_timeout_s = poll_timeout_s
        self._answer_s = answer_s
        self._slack_s = slack_s
        self._bot: Bot | None = None
        self._polling: _UpdatesRequest | None = None

    @property
    def webhook_secret(self) -> str:
        """What Telegram must send with every call; derived from the token, so there is one secret less to keep."""
        return hmac.new(self._token.encode(), b"webhook", hashlib.sha256).hexdigest()

    async def open(self) -> Account:
        """Who we are, told by Telegram. May be called again, as often as the connection breaks.

        Raises:
            AdapterNotReady: Telegram cannot be reached now.
            AdapterAuthFailed: it does not know the token.
        """
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

    async def close(self) -> None:
        """Hang up. Idempotent."""
        bot, self._bot = self._bot, None
        if bot is not None:
            await bot.shutdown()

    # ---- what comes in ----------------------------------------------------------------------------------------------

    async def updates(self, offset: int | None) -> list[Json]:
        """The next updates, as they came; waits for one, and returns none when none came in time.

        Args:
            offset: everything below is confirmed by this, and will not come again.

        Raises:
            AdapterNotReady, AdapterAuthFailed: as `open`; another process polling with this token is the former.
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
        """Let Telegram call `url`, with the secret in a header; raises as `open` does."""
        with self._connecting():
            await self._connected().set_webhook(url, secret_token=secret, allowed_updates=list(UPDATE_KINDS))

    async def webhook_url(self) -> str:
        """What Telegram calls now; raises as `open` does."""
        with self._connecting():
            return (await self._connected().get_webhook_info()).url

    async def remove_webhook(self) -> None:
        """So that updates can be polled; what waits goes on waiting. Raises as `open` does."""
        with self._connecting():
            await self._connected().delete_webhook()

    async def set_commands(self, menu: Sequence[tuple[str, str]]) -> None:
        """The menu of commands, everywhere; raises as `open` does."""
        with self._connecting():
            await self._connected().set_my_commands([BotCommand(name, text) for name, text in menu])

    async def download(self, file_id: str, max_bytes: int) -> bytes:
        """A file that a person sent.

        Raises:
            TransientSendError, PermanentSendError: it cannot be had now, or never.
        """
        try:
            with self._sending():
                file = await self._connected().get_file(file_id)
                if (file.file_size or 0) > max_bytes:
                    raise PermanentSendError(f"the file has {file.file_size} bytes; {max_bytes} is the most")
                content = bytes(await file.download_as_bytearray())
        except UncertainSendError as error:
            raise TransientSendError(str(error)) from error
        except (ChatMoved, MarkupRefused, MessageGone, RuntimeError) as error:
            raise PermanentSendError(f"the file cannot be had: {error}") from error
        if len(content) > max_bytes:
            raise PermanentSendError(f"the file has {len(content)} bytes; {max_bytes} is the most")
        return content

    # ---- what goes out; raises SendErrors, and the three errors above -----------------------------------------------

    async def place(
        self, chat: int, piece: TextPiece, *, thread: int | None = None, reply_to: int | None = None
    ) -> int:
        """Show a new message; returns its number. This, and nothing else here, shows a second one when repeated."""
        with self._sending():
            message = await self._connected().send_message(
                chat,
                piece.text,
                entities=_entities(piece.styles),
                message_thread_id=thread,
                reply_parameters=None
                if reply_to is None
                else ReplyParameters(reply_to, allow_sending_without_reply=True),
                link_preview_options=LinkPreviewOptions(is_disabled=True),  # a page's server would learn of it
            )
            return int(message.message_id)

    async def edit(self, chat: int, number: int, piece: TextPiece, keyboard: Keyboard = ()) -> None:
        """Put this text, and these buttons below it, in place of what a message shows; harmless when repeated."""
        with self._sending():
            await self._connected().edit_message_text(
                piece.text,
                chat_id=chat,
                message_id=number,
                entities=_entities(piece.styles),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=_markup(keyboard),
            )

    async def attach(self, chat: int, number: int, filename: str, content: bytes, keyboard: Keyboard = ()) -> None:
        """Put a file in place of what a message shows (Bot API 7.11 and later take a text message for that)."""
        with self._sending():
            await self._connected().edit_message_media(
                InputMediaDocument(content, filename=filename, disable_content_type_detection=True),
                chat_id=chat,
                message_id=number,
                reply_markup=_markup(keyboard),
                read_timeout=_UPLOAD_S,
                write_timeout=_UPLOAD_S,
            )

    async def answer_press(self, press: str, text: str | None = None) -> None:
        """Let the button that was pressed rest, and show a line where there is one to show."""
        with self._sending():
            await self._connected().answer_callback_query(press, text)

    async def change_keyboard(self, chat: int, number: int, keyboard: Keyboard) -> None:
        """Put these buttons below a message; harmless when repeated."""
        with self._sending():
            await self._connected().edit_message_reply_markup(
                chat_id=chat, message_id=number, reply_markup=_markup(keyboard)
            )

    async def delete(self, chat: int, number: int) -> None:
        """Take a message away; one that is not there is fine."""
        with self._sending(), contextlib.suppress(MessageGone):
            await self._connected().delete_message(chat, number)

    async def draft(self, chat: int, draft: int, piece: TextPiece, *, thread: int | None = None) -> None:
        """Show a text that is being written, for 30 s at most; in private chats only."""
        with self._sending():
            await self._connected().send_message_draft(
                chat, draft, piece.text, message_thread_id=thread, entities=_entities(piece.styles)
            )

    async def show_typing(self, chat: int, *, thread: int | None = None) -> None:
        """Show that an answer is on its way, for 5 s at most."""
        with self._sending():
            await self._connected().send_chat_action(chat, ChatAction.TYPING, message_thread_id=thread)

    # ---- errors ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _connecting(self) -> Iterator[None]:
        try:
            yield
        except InvalidToken:
            # Neither chained nor quoted: the library puts the token into the text.
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
        # The libraries log whole addresses, the token in them, and the bodies of answers. All that they have to say
        # reaches our own log as an error of ours.
        for name, level in (("httpx", logging.WARNING), ("httpcore", logging.WARNING), ("telegram", logging.CRITICAL)):
            logging.getLogger(name).setLevel(level)
        # A server of one's own on this machine is not reached through a proxy.
        options = {"trust_env": urlsplit(self._api_url).hostname not in _LOOPBACK}
        self._polling = _UpdatesRequest(
            connection_pool_size=1,
            connect_timeout=_CONNECT_S,
            read_timeout=self._slack_s,  # the library adds the long poll's own time
            write_timeout=self._answer_s,
            pool_timeout=_CONNECT_S,
            httpx_kwargs=options,
        )
        request = HTTPXRequest(
            connection_pool_size=_CONNECTIONS,
            connect_timeout=_CONNECT_S,
            read_timeout=self._answer_s,
            write_timeout=self._answer_s,
            media_write_timeout=_UPLOAD_S,
            pool_timeout=self._answer_s,
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
    """Keeps the answer to a long poll as it came, and shows the library an empty one.

    The library parses a batch as a whole; one update of an unknown form, and it logs them all and raises, each time.
    """

    answer = b""

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        """Ask, and keep what was answered."""
        status, payload = await super().do_request(*args, **kwargs)
        if status != httpx.codes.OK:
            return status, payload
        self.answer = payload
        return status, b'{"ok": true, "result": []}'


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
