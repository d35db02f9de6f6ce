"""Discord as a channel."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence

from adapters.discord import convert, errors
from adapters.discord.client import DiscordClient
from adapters.discord.convert import Interaction, Payload, ReadContext
from adapters.discord.inbound import FIRST_RETRY_S, Inbound
from adapters.discord.interactions import Interactions
from adapters.discord.outbound import MAX_FILE_BYTES, Outbound
from adapters.discord.render import MAX_CHARS
from gateway.errors import AdapterNotReady, PermanentSendError, SendError, StoreError
from gateway.messages import Attachment, Capabilities, ConversationRef, InboundMessage, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

_log = logging.getLogger(__name__)

PREVIEW_INTERVAL_S = 1.5  # edits share the five requests in five seconds that a channel has
_ALIVE_INTERVAL_S = 60.0
_COMMANDS_NOTE = "commands"


class DiscordAdapter:
    """A bot: receives through the WebSocket, sends through the REST API."""

    kind = "discord"
    capabilities = Capabilities(
        max_text_chars=MAX_CHARS,
        max_attachment_bytes=MAX_FILE_BYTES,
        voice="message",
        preview_interval_s=PREVIEW_INTERVAL_S,
        first_preview_chars=40,
        typing_s=10.0,  # https://docs.discord.com/developers/resources/channel#trigger-typing-indicator
    )

    def __init__(self, client: DiscordClient, services: AdapterServices, *, retry_s: float = FIRST_RETRY_S) -> None:
        """`retry_s` is the first wait before a message that was not accepted is offered again."""
        self.name = services.name
        self._client, self._services = client, services
        self._inbound = Inbound(services.notes, self._read, client.history, retry_s=retry_s)
        self._interactions = Interactions(client, services.notes)
        self._outbound = Outbound(
            client, services.notes, self._interactions, newest=self._inbound.newest, is_guild=self._inbound.is_guild
        )
        self._accept: Accept | None = None
        self._offline_since: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def problems(self) -> Sequence[str]:
        """Set while a broken connection is made again, for up to a minute."""
        return ("the connection to Discord broke; it is tried again",) if self._client.is_reconnecting else ()

    async def connect(self) -> None:
        """Log in and wait for READY."""
        await self.close()
        try:
            await self._inbound.load()
            await self._interactions.load()
            await self._outbound.load()
        except StoreError as error:
            raise AdapterNotReady(f"the notes cannot be read: {error}") from error
        await self._client.open(self._on_event)

    async def run(self, accept: Accept) -> None:
        """Hand over what arrives, until the connection ends or `run` is cancelled."""
        self._accept = accept
        self._inbound.start(accept)
        self._in_background(self._register_commands())
        alive = asyncio.create_task(self._store_alive(), name="discord alive")
        try:
            await self._client.watch()
        finally:
            self._accept = None
            alive.cancel()
            await asyncio.wait({alive})
            await self._end_tasks()
            await self._inbound.stop()

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver a message, in as many pieces as it needs."""
        return await self._outbound.send(message)

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """The receipt of an uncertain message, if it arrived."""
        return await self._outbound.find_sent(message)

    async def preview(self, message: OutboundMessage) -> None:
        """Show the answer so far in a message that is edited into the final one."""
        await self._outbound.preview(message)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show for ten seconds that the bot is typing."""
        channel = convert.snowflake(conversation.conversation)
        if channel is not None:
            with contextlib.suppress(SendError):
                await self._client.show_typing(channel)

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """A file that came with a message; a new address is fetched if the old one has expired."""
        try:
            channel, message, identifier, url = convert.parse_file_ref(attachment.ref)
        except ValueError as error:
            raise PermanentSendError(f"there is no such file: {error}") from error
        if attachment.size_bytes > max_bytes:
            raise PermanentSendError(f"{attachment.filename} is larger than {max_bytes} bytes")
        try:
            return await self._client.download(url, max_bytes)
        except errors.MessageGone:
            fresh = convert.file_url(await self._client.message(channel, message), identifier)
            if fresh is None:
                raise
            return await self._client.download(fresh, max_bytes)

    async def close(self) -> None:
        """Disconnect."""
        await self._outbound.close()
        await self._client.close()

    # ---- events ----------------------------------------------------------------------------------------------------

    def _on_event(self, event: str, payload: Payload) -> None:
        """Called in Discord's order; it must not wait."""
        if event == "MESSAGE_CREATE":
            self._inbound.receive(payload, convert.guild_id_of(payload))
        elif event == "INTERACTION_CREATE":
            self._receive_interaction(payload)
        elif event == "READY":
            # A new session: Discord does not deliver what was written since the last one. A server's channels wait for
            # their GUILD_CREATE, which has the bot's roles there.
            self._offline_since = self._inbound.offline_since
            self._inbound.backfill(None)
        elif event == "GUILD_CREATE":
            self._backfill(str(payload["id"]))

    def _backfill(self, guild: str) -> None:
        self._inbound.backfill(guild)
        if self._offline_since is not None:
            channels = self._client.active_channels(guild, self._offline_since)
            self._inbound.search(guild, channels, self._offline_since)

    def _receive_interaction(self, payload: Payload) -> None:
        interaction, accept = convert.to_interaction(payload), self._accept
        if interaction is None or accept is None:  # before `run`; Discord tells the person that it failed
            return
        message = convert.command_to_inbound(payload, self._context(convert.guild_id_of(payload)))
        self._in_background(self._handle_interaction(interaction, message, accept, payload))

    async def _handle_interaction(
        self, interaction: Interaction, message: InboundMessage, accept: Accept, payload: Payload
    ) -> None:
        if await self._interactions.handle(interaction, message, accept):
            remaining = convert.remaining_components(payload)
            if remaining is not None:
                with contextlib.suppress(SendError):  # the buttons may stay
                    await self._client.edit_components(*remaining)

    def _read(self, payload: Payload, guild: str | None) -> InboundMessage | None:
        message = convert.to_inbound(payload, self._context(guild))
        return message if message is not None and convert.is_for_bot(message) else None

    def _context(self, guild: str | None) -> ReadContext:
        roles = self._client.own_roles(guild)
        return ReadContext(channel=self.name, user=self._client.user_id, guild=guild, roles=roles)

    async def _store_alive(self) -> None:
        """Store every minute that the bot is connected; the first time after the servers were announced."""
        while True:
            await asyncio.sleep(_ALIVE_INTERVAL_S)
            await self._inbound.store_alive()

    # ---- the menu --------------------------------------------------------------------------------------------------

    async def _register_commands(self) -> None:
        """Set Discord's menu of commands, if it has changed: Discord takes 200 changes a day."""
        try:
            commands = convert.to_commands(self._services.commands)
            wanted = convert.commands_hash(commands, self._client.application_id)
            if await self._services.notes.get(_COMMANDS_NOTE) != wanted:
                await self._client.register(commands)
                await self._services.notes.put(_COMMANDS_NOTE, wanted)
        except (SendError, StoreError) as error:
            _log.warning("%s: the menu of commands was not brought up to date: %s", self.name, error)

    def _in_background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
