"""Telegram as a channel."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

from adapters.telegram import convert
from adapters.telegram.buttons import Buttons
from adapters.telegram.chat_migration import Chats
from adapters.telegram.client import MAX_DOWNLOAD_BYTES, TelegramClient
from adapters.telegram.errors import ChatMoved, MarkupRefused, MessageGone
from adapters.telegram.inbound import QUIET_S, Assembly
from adapters.telegram.outbound import Delivery, Ledger, Previews
from adapters.telegram.polling import Polling, Seen, Take
from adapters.telegram.rate_limit import Pace
from adapters.telegram.render import MAX_FILE_BYTES, FilePiece, Piece, TextPiece, render
from adapters.telegram.webhook import Webhook
from gateway.errors import AdapterNotReady, PermanentSendError, SendError
from gateway.messages import (
    Attachment,
    Capabilities,
    ConversationRef,
    InboundMessage,
    Markup,
    OutboundMessage,
    Receipt,
)
from gateway.protocols import Accept, AdapterServices

EDIT_S = 3.0
"""Between two edits of one message: a group takes 20 messages a minute, and edits seem to be counted with them."""

_DRAFT_S = 0.7
_OLD_BUTTON = "This button is not in use any more. /help lists what you can type."
_MENU_NOTE = "menu"
_SEEN_NOTE = "seen"
_SEEN_EVERY = timedelta(minutes=10)
_KEPT = timedelta(
    hours=24
)  # by Telegram, of what we have not fetched: https://core.telegram.org/bots/api#getting-updates
_log = logging.getLogger(__name__)


class Receiver(Protocol):
    """The way in which updates come: `Polling` or `Webhook`."""

    async def prepare(self) -> None:
        """Tell Telegram; raises as `ChannelAdapter.connect` does."""

    async def run(self, take: Take, seen: Seen) -> None:
        """Hand over updates until cancelled; raises as `ChannelAdapter.run` does."""


class TelegramAdapter:
    """One bot."""

    kind = "telegram"

    def __init__(
        self,
        client: TelegramClient,
        services: AdapterServices,
        receiver: Receiver,
        *,
        markup: Markup = "markdown",
        pace: Pace | None = None,
        edit_s: float = EDIT_S,
        quiet_s: float = QUIET_S,
    ) -> None:
        self.name = services.name
        # 4096 is what one message holds. A longer answer is split, but reads worse.
        self.capabilities = Capabilities(
            max_text_chars=4_000,
            markup=markup,
            is_idempotent_send=True,
            max_attachment_bytes=MAX_FILE_BYTES,
            preview_interval_s=_DRAFT_S,
            first_preview_chars=40,
            typing_s=5.0,  # "for 5 seconds or less": https://core.telegram.org/bots/api#sendchataction
        )
        self._client = client
        self._services = services
        self._receiver = receiver
        self._is_markdown = markup == "markdown"
        self._aliases = convert.aliases_of(services.commands)
        self._bot: convert.Account | None = None
        self._seen_at: datetime | None = None
        self._quiet_s = quiet_s
        pace = pace or Pace()
        self._buttons = Buttons(services.notes)
        self._answering: set[asyncio.Task[None]] = set()
        self._chats = Chats(services.notes)
        self._ledger = Ledger(services.notes)
        self._delivery = Delivery(client, self._ledger, self._chats, pace)
        self._previews = Previews(client, self._ledger, self._chats, pace, edit_s=edit_s)

    async def connect(self) -> None:
        """Prove the token, say how updates are to come, and bring the command menu up to date."""
        await self._buttons.load()
        await self._chats.load()
        await self._ledger.load()
        bot = await self._client.open()
        try:
            await self._receiver.prepare()
            await self._show_menu(bot)
        except BaseException:
            await self.close()
            raise
        self._bot = bot

    async def run(self, accept: Accept) -> None:
        """Hand over what people write, until cancelled."""
        bot = self._bot
        if bot is None:
            raise AdapterNotReady("the bot is not connected; connect first")

        reader = convert.Reader(
            channel=self.name,
            bot=bot,
            aliases=self._aliases,
            home=self._chats.home,
            command=self._buttons.command,
            commands=frozenset(command.name for command in self._services.commands) | set(self._aliases.values()),
        )

        async def read(update: convert.Json) -> InboundMessage | None:
            return await self._message_from(reader, update)

        async def take(update: convert.Json) -> None:
            message = await read(update)
            if message is not None:
                await assembly.take(update, message)
            self._rest_button(update, message)

        await self._report_loss()
        assembly = Assembly(self._services.notes, read, accept, quiet_s=self._quiet_s)
        await assembly.run(self._receiver.run(take, self._note_seen))

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver it, in as many pieces as it needs; sending it twice shows it once.

        Raises:
            TransientSendError, UncertainSendError: send it again.
            PermanentSendError: the chat does not exist, or has shut us out, or there is nothing to show.
        """
        await self._previews.settle(message)
        pieces: list[Piece] = self._rendered(message)
        pieces += [await asyncio.to_thread(_read, file) for file in message.attachments]
        if not pieces:
            raise PermanentSendError("there is nothing in the message that Telegram could show")
        return await self._delivery.send(message, pieces, await self._buttons.keyboard(message.actions))

    async def close(self) -> None:
        """Hang up. A webhook stays: Telegram keeps for 24 hours what comes meanwhile."""
        self._bot = None
        for task in self._answering:
            task.cancel()
        await self._previews.close()
        await self._client.close()

    # ---- courtesies: none of them may fail ---------------------------------------------------------------------------

    async def preview(self, message: OutboundMessage) -> None:
        """Show the text so far; of a long one, its end."""
        if self._bot is None:
            return
        try:
            shown = [piece for piece in self._rendered(message) if isinstance(piece, TextPiece)]
            if shown:
                await self._previews.show(message, shown[-1])
            elif not message.text:
                await self._previews.withdraw(message)
        except SendError as error:
            _log.debug("%s: a preview was dropped: %s", self.name, error)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show it for some seconds."""
        thread = None if conversation.thread is None else int(conversation.thread)
        try:
            await self._client.show_typing(self._chats.now(conversation), thread=thread)
        except (SendError, ChatMoved, MarkupRefused, MessageGone) as error:
            _log.debug("%s: the sign of typing was dropped: %s", self.name, error)

    def _rest_button(self, update: convert.Json, message: InboundMessage | None) -> None:
        """Answer a press, and take the buttons of what it decided away, once it is accepted.

        Till then the button shows that it waits, and after a while gives up.
        Beside everything else: a line that hangs here must not hold up what people write.
        """
        press = convert.press_of(update)
        if press is not None:
            task = asyncio.create_task(self._answer_press(press, update, message), name="telegram press")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer_press(self, press: str, update: convert.Json, message: InboundMessage | None) -> None:
        try:
            await self._client.answer_press(press, _OLD_BUTTON if message is None else None)
            if message is not None and message.is_direct:  # in a group another person's press may count
                await self._take_buttons_away(update["callback_query"])
        except (SendError, ChatMoved, MarkupRefused, MessageGone, *convert.UNREADABLE) as error:
            _log.debug("%s: the press of a button was not answered: %s", self.name, error)

    async def _take_buttons_away(self, press: convert.Json) -> None:
        offered = press["message"]
        rows = (offered.get("reply_markup") or {}).get("inline_keyboard") or ()
        if rows:
            keyboard = self._buttons.left(rows, press["data"])
            await self._client.change_keyboard(offered["chat"]["id"], offered["message_id"], keyboard)

    # ---- files ------------------------------------------------------------------------------------------------------

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """A file that a person sent; Telegram hands out up to 20 MB."""
        return await self._client.download(attachment.ref, min(max_bytes, MAX_DOWNLOAD_BYTES))

    # ---- inside -----------------------------------------------------------------------------------------------------

    async def _message_from(self, reader: convert.Reader, update: convert.Json) -> InboundMessage | None:
        moved = convert.migration_of(update)
        if moved is not None:
            await self._chats.moved(*moved)
        try:
            return reader.message_from(update)
        except convert.Unreadable as error:
            # One such update must not hold up those behind it; it is passed over, so this is said once.
            _log.error(
                "%s: update %s cannot be read and was passed over: %s", self.name, update.get("update_id"), error
            )
            return None

    async def _note_seen(self) -> None:
        """Note, now and then, that nothing was missed so far."""
        now = datetime.now(UTC)
        if self._seen_at is None or abs(now - self._seen_at) >= _SEEN_EVERY:
            self._seen_at = now
            await self._services.notes.put(_SEEN_NOTE, now.isoformat(), is_durable=False)

    async def _report_loss(self) -> None:
        """Say so where we were away for longer than Telegram keeps what people write."""
        noted = await self._services.notes.get(_SEEN_NOTE)
        away = timedelta() if noted is None else datetime.now(UTC) - datetime.fromisoformat(noted)
        if away > _KEPT:
            hours = int(away.total_seconds() // 3600)
            _log.warning(
                "%s: away for about %s hours; Telegram keeps messages for 24, older ones are lost", self.name, hours
            )

    def _rendered(self, message: OutboundMessage) -> list[Piece]:
        is_group = message.conversation.conversation.startswith("-")
        return render(message.text, is_markdown=self._is_markdown, is_group=is_group)

    async def _show_menu(self, bot: convert.Account) -> None:
        """Set the menu of commands where it has changed since we set it last."""
        menu = convert.menu(self._services.commands)
        wanted = f"{bot.id}:{hashlib.sha256(json.dumps(menu).encode()).hexdigest()}"
        if await self._services.notes.get(_MENU_NOTE) == wanted:
            return
        try:
            await self._client.set_commands(menu)
        except AdapterNotReady as error:
            _log.warning("%s: the command menu could not be set, the next start tries again: %s", self.name, error)
            return
        await self._services.notes.put(_MENU_NOTE, wanted)


class TelegramWebhookAdapter(TelegramAdapter):
    """The same, called by Telegram through the gateway's web server."""

    http_access: Literal["public"] = "public"  # who calls is proved by the secret in each call

    def __init__(self, client: TelegramClient, services: AdapterServices, webhook: Webhook, **options: Any) -> None:
        super().__init__(client, services, webhook, **options)
        self.http_path = f"/{services.name}"
        self.http_app = webhook.app
        self._webhook = webhook

    async def close(self) -> None:
        """Take no more calls, and hang up."""
        self._webhook.stop()
        await super().close()


def make_adapter(
    client: TelegramClient, services: AdapterServices, *, webhook_url: str | None = None, **options: Any
) -> TelegramAdapter:
    """The adapter for the way in which updates are to come.

    Args:
        webhook_url: the gateway's public address, without the channel's path; None polls.
    """
    if webhook_url is None:
        return TelegramAdapter(client, services, Polling(client), **options)
    webhook = Webhook(client, url=f"{webhook_url}/{services.name}/updates", secret=client.webhook_secret)
    return TelegramWebhookAdapter(client, services, webhook, **options)


def _read(file: Attachment) -> Piece:
    """A file of ours that goes with an answer, or a word on why it does not."""
    path = Path(file.ref)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return TextPiece(text=f"(The file {file.filename} is larger than the 50 MB that Telegram takes.)")
        return FilePiece(filename=file.filename, content=path.read_bytes())
    except OSError as error:
        _log.warning("a file of an answer cannot be read: %s", error)
        return TextPiece(text=f"(The file {file.filename} is not there any more.)")
