"""Telegram as a channel."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from adapters.telegram import convert
from adapters.telegram.buttons import Buttons
from adapters.telegram.chat_migration import ChatMigrations
from adapters.telegram.client import MAX_DOWNLOAD_BYTES, TelegramClient
from adapters.telegram.inbound import PART_WAIT_S, Inbound, may_be_part, was_part
from adapters.telegram.outbound import Outbound
from adapters.telegram.polling import Polling
from adapters.telegram.rate_limit import RateLimit
from adapters.telegram.render import MAX_FILE_BYTES, FilePiece, Piece, TextPiece, VoicePiece, render
from adapters.telegram.webhook import Webhook
from gateway.errors import AdapterNotReady, PermanentSendError, SendError
from gateway.messages import Attachment, Capabilities, ConversationRef, InboundMessage, Markup, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

EDIT_INTERVAL_S = 3.0
"""Between two edits of one message: a group takes 20 messages a minute, and edits seem to be counted with them."""

_DRAFT_INTERVAL_S = 0.7
_OLD_BUTTON = "This button is not in use any more. /help lists what you can type."
_MENU_NOTE = "menu"
_CAUGHT_UP_NOTE = "caught_up"
_CAUGHT_UP_EVERY = timedelta(minutes=10)
# How long Telegram keeps updates: https://core.telegram.org/bots/api#getting-updates
_RETENTION = timedelta(hours=24)
_log = logging.getLogger(__name__)


class TelegramAdapter:
    """One bot."""

    kind = "telegram"

    def __init__(
        self,
        client: TelegramClient,
        services: AdapterServices,
        source: Polling | Webhook,
        *,
        markup: Markup = "markdown",
        rate_limit: RateLimit | None = None,
        edit_interval_s: float = EDIT_INTERVAL_S,
        part_wait_s: float = PART_WAIT_S,
    ) -> None:
        self.name = services.name
        # 4096 is what one message holds. A longer answer is split, but reads worse.
        self.capabilities = Capabilities(
            max_text_chars=4_000,
            markup=markup,
            is_idempotent_send=True,
            max_attachment_bytes=MAX_FILE_BYTES,
            preview_interval_s=_DRAFT_INTERVAL_S,
            first_preview_chars=40,
            voice="message",
            typing_s=5.0,  # "for 5 seconds or less": https://core.telegram.org/bots/api#sendchataction
        )
        self._client = client
        self._services = services
        self._source = source
        self._is_markdown = markup == "markdown"
        self._aliases = convert.aliases_of(services.commands)
        self._bot: convert.Account | None = None
        self._caught_up_at: datetime | None = None
        self._part_wait_s = part_wait_s
        self._buttons = Buttons(services.notes)
        self._answering: set[asyncio.Task[None]] = set()
        self._migrations = ChatMigrations(services.notes)
        limit = rate_limit or RateLimit()
        self._outbound = Outbound(client, services.notes, self._migrations, limit, edit_interval_s=edit_interval_s)

    async def connect(self) -> None:
        """Log in, choose polling or the webhook, and update the command menu."""
        await self._buttons.load()
        await self._migrations.load()
        await self._outbound.load()
        bot = await self._client.open()
        try:
            await self._source.prepare()
            await self._set_menu(bot)
        except BaseException:
            await self.close()
            raise
        self._bot = bot

    async def run(self, accept: Accept) -> None:
        """Hand over what people write, until cancelled."""
        bot = self._bot
        if bot is None:
            raise AdapterNotReady("the bot is not connected; connect first")
        read = functools.partial(self._message_from, self._reader(bot))

        async def handle(update: convert.Json) -> None:
            message = await read(update)
            if message is not None:
                await inbound.handle(update, message)
            self._answer_button(update, message)

        await self._warn_of_loss()
        inbound = Inbound(self._services.notes, read, accept, part_wait_s=self._part_wait_s)
        await inbound.run(self._source.run(handle, self._note_caught_up))

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver it, in as many pieces as it needs; sending it twice shows it once."""
        await self._outbound.settle(message)
        pieces: list[Piece] = self._rendered(message)
        pieces += [await asyncio.to_thread(_read, file) for file in message.attachments]
        if not pieces:
            raise PermanentSendError("there is nothing in the message that Telegram could show")
        return await self._outbound.send(message, pieces, await self._buttons.keyboard(message.actions))

    async def close(self) -> None:
        """Disconnect. A webhook stays registered: Telegram keeps new updates for 24 hours."""
        self._bot = None
        for task in self._answering:
            task.cancel()
        await self._outbound.close()
        await self._client.close()

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """A file that a person sent; Telegram provides up to 20 MB."""
        return await self._client.download(attachment.ref, min(max_bytes, MAX_DOWNLOAD_BYTES))

    # ---- previews, typing, buttons: a failure is only logged --------------------------------------------------------

    async def preview(self, message: OutboundMessage) -> None:
        """Show the text so far; of a long one, the last piece."""
        if self._bot is None:
            return
        try:
            shown = [piece for piece in self._rendered(message) if isinstance(piece, TextPiece)]
            if shown:
                await self._outbound.preview(message, shown[-1])
            elif not message.text:
                await self._outbound.withdraw(message)
        except SendError as error:
            _log.debug("%s: a preview was dropped: %s", self.name, error)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show for up to 5 s that the bot is typing."""
        thread_id = None if conversation.thread is None else int(conversation.thread)
        try:
            await self._client.send_typing(self._migrations.current_id(conversation), thread_id=thread_id)
        except SendError as error:
            _log.debug("%s: the typing status was dropped: %s", self.name, error)

    def _answer_button(self, update: convert.Json, message: InboundMessage | None) -> None:
        """Answer the press of a button once it is accepted, and remove the buttons of the same question.

        Until then the button shows that it waits. A task of its own: a slow answer must not delay other messages.
        """
        query_id = convert.callback_query_id(update)
        if query_id is not None:
            task = asyncio.create_task(self._answer_query(query_id, update, message), name="telegram button")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer_query(self, query_id: str, update: convert.Json, message: InboundMessage | None) -> None:
        try:
            await self._client.answer_callback_query(query_id, _OLD_BUTTON if message is None else None)
            if message is not None and message.is_direct:  # in a group another person's press may count
                await self._remove_buttons(update["callback_query"])
        except (SendError, *convert.UNREADABLE) as error:
            _log.debug("%s: the press of a button was not answered: %s", self.name, error)

    async def _remove_buttons(self, query: convert.Json) -> None:
        message = query["message"]
        rows = (message.get("reply_markup") or {}).get("inline_keyboard") or ()
        if rows:
            keyboard = await self._buttons.remaining(query["data"], rows)
            await self._client.edit_keyboard(message["chat"]["id"], message["message_id"], keyboard)

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _reader(self, bot: convert.Account) -> convert.Reader:
        return convert.Reader(
            channel=self.name,
            bot=bot,
            aliases=self._aliases,
            original_chat=self._migrations.original_id,
            command=self._buttons.command,
            commands=frozenset(command.name for command in self._services.commands) | set(self._aliases.values()),
        )

    async def _message_from(self, reader: convert.Reader, update: convert.Json) -> InboundMessage | None:
        migration = convert.migration_of(update)
        if migration is not None:
            await self._migrations.record(*migration)
        try:
            return reader.message_from(update)
        except convert.UNREADABLE as error:
            # Skipped, so that it does not block the updates behind it. It does not come again: this is logged once.
            _log.error(
                "%s: update %s cannot be read and was passed over: %r", self.name, update.get("update_id"), error
            )
            return None

    async def _note_caught_up(self) -> None:
        """Store, every ten minutes, that nothing was missed so far."""
        now = datetime.now(UTC)
        if self._caught_up_at is None or abs(now - self._caught_up_at) >= _CAUGHT_UP_EVERY:
            self._caught_up_at = now
            await self._services.notes.put(_CAUGHT_UP_NOTE, now.isoformat(), is_durable=False)

    async def _warn_of_loss(self) -> None:
        """Warn if the gateway was away for longer than Telegram keeps updates."""
        noted = await self._services.notes.get(_CAUGHT_UP_NOTE)
        away = timedelta() if noted is None else datetime.now(UTC) - datetime.fromisoformat(noted)
        if away > _RETENTION:
            hours = int(away.total_seconds() // 3600)
            _log.warning(
                "%s: away for about %s hours; Telegram keeps messages for 24, older ones are lost", self.name, hours
            )

    def _rendered(self, message: OutboundMessage) -> list[Piece]:
        is_group = message.conversation.conversation.startswith("-")
        return render(message.text, is_markdown=self._is_markdown, is_group=is_group)

    async def _set_menu(self, bot: convert.Account) -> None:
        """Set the menu of commands if it has changed."""
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

    http_access: Literal["public"] = "public"  # the secret in each call proves the caller

    def __init__(self, client: TelegramClient, services: AdapterServices, webhook: Webhook, **options: Any) -> None:
        super().__init__(client, services, webhook, **options)
        self.http_path = f"/{services.name}"
        self.http_app = webhook.app
        self._webhook = webhook

    async def receive(self, accept: Accept) -> None:
        """Take calls while another worker has the channel: messages that are whole.

        What needs its notes is handed to that worker: parts of a message, a button that was pressed, a group that was
        upgraded.
        """
        reader = self._reader(await self._client.open())  # a mention is known by the bot's name
        notes, hand_over = self._services.notes, self._services.hand_over

        async def handle(update: convert.Json) -> None:
            if convert.callback_query_id(update) is not None or convert.migration_of(update) is not None:
                await hand_over(update)
                return
            if (convert.chat_id_of(update) or 0) < 0:
                await self._migrations.load()
            message = await self._message_from(reader, update)
            if message is None:
                return
            if await may_be_part(notes, update, message):
                await hand_over(update)
            elif not await was_part(notes, message):
                await accept(message)

        self._webhook.take(handle)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._webhook.stop()

    async def take_handed(self, call: Mapping[str, Any]) -> bool:
        """Take the update that another worker was called with."""
        return await self._webhook.is_handled(dict(call))

    async def close(self) -> None:
        """Take no more calls, and disconnect."""
        self._webhook.stop()
        await super().close()


def make_adapter(
    client: TelegramClient, services: AdapterServices, *, webhook_url: str | None = None, **options: Any
) -> TelegramAdapter:
    """The adapter for the webhook at the gateway's public address, without the channel's path; None polls."""
    if webhook_url is None:
        return TelegramAdapter(client, services, Polling(client), **options)
    webhook = Webhook(client, url=f"{webhook_url}/{services.name}/updates", secret=client.webhook_secret)
    return TelegramWebhookAdapter(client, services, webhook, **options)


def _read(file: Attachment) -> Piece:
    """An attachment of an answer, or a text that says why it is missing."""
    path = Path(file.ref)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return TextPiece(text=f"(The file {file.filename} is larger than the 50 MB that Telegram takes.)")
        content = path.read_bytes()
        if file.is_voice:
            return VoicePiece(filename=file.filename, content=content, duration_s=file.duration_s)
        return FilePiece(filename=file.filename, content=content)
    except OSError as error:
        _log.warning("a file of an answer cannot be read: %s", error)
        return TextPiece(text=f"(The file {file.filename} is not there any more.)")
