"""Discord as a channel."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence

from adapters.discord import convert
from adapters.discord import errors as faults
from adapters.discord.client import DiscordClient
from adapters.discord.convert import Interaction, Payload, Place
from adapters.discord.inbound import FIRST_RETRY_S, Receiver
from adapters.discord.interactions import Interactions
from adapters.discord.outbound import MAX_FILE_BYTES, Delivery
from adapters.discord.render import MAX_CHARS
from gateway.errors import AdapterNotReady, PermanentSendError, SendError, StoreError
from gateway.messages import Attachment, Capabilities, ConversationRef, InboundMessage, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

_log = logging.getLogger(__name__)

PREVIEW_INTERVAL_S = 1.5  # edits share the five requests in five seconds that a channel has
_ALIVE_S = 60.0
_COMMANDS = "commands"


class DiscordAdapter:
    """A bot: receives on the gateway's WebSocket, sends through the REST API."""

    kind = "discord"
    capabilities = Capabilities(
        max_text_chars=MAX_CHARS,
        max_attachment_bytes=MAX_FILE_BYTES,
        preview_interval_s=PREVIEW_INTERVAL_S,
        first_preview_chars=40,
        typing_s=10.0,  # https://docs.discord.com/developers/resources/channel#trigger-typing-indicator
    )

    def __init__(self, client: DiscordClient, services: AdapterServices, *, retry_s: float = FIRST_RETRY_S) -> None:
        """Nothing is opened yet.

        Args:
            retry_s: before a message that was not taken is offered again, the first time.
        """
        self.name = services.name
        self._client, self._services = client, services
        self._receiver = Receiver(services.notes, self._read, client.history, retry_s=retry_s)
        self._interactions = Interactions(client, services.notes)
        self._delivery = Delivery(
            client,
            services.notes,
            self._interactions,
            newest=self._receiver.newest,
            is_guild=self._receiver.is_guild,
        )
        self._accept: Accept | None = None
        self._away_since: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def problems(self) -> Sequence[str]:
        """The line may be away for a minute before the connection is given up."""
        return ("the connection to Discord broke; it is tried again",) if self._client.is_away else ()

    async def connect(self) -> None:
        """Log in and wait for READY.

        Raises:
            AdapterNotReady: Discord, or the notes, cannot be reached now.
            AdapterAuthFailed: it refused the token or the intents.
        """
        await self.close()
        try:
            await self._receiver.load()
            await self._interactions.load()
            await self._delivery.load()
        except StoreError as error:
            raise AdapterNotReady(f"the notes cannot be read: {error}") from error
        await self._client.open(self._received)

    async def run(self, accept: Accept) -> None:
        """Hand over what arrives until the connection is lost for good, or cancelled."""
        self._accept = accept
        self._receiver.start(accept)
        self._in_background(self._register_commands())
        noting = asyncio.create_task(self._stay_noted(), name="discord alive")
        try:
            await self._client.watch()
        finally:
            self._accept = None
            noting.cancel()
            await asyncio.wait({noting})
            await self._end_tasks()
            await self._receiver.stop()

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver a message, in as many pieces as it takes."""
        return await self._delivery.send(message)

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Whether a message is there that may have been sent."""
        return await self._delivery.find_sent(message)

    async def preview(self, message: OutboundMessage) -> None:
        """Show the answer so far in a message that the final one replaces."""
        await self._delivery.preview(message)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show for ten seconds that an answer is on its way."""
        channel = convert.snowflake(conversation.conversation)
        if channel is not None:
            with contextlib.suppress(SendError):  # a courtesy
                await self._client.show_typing(channel)

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """A file that came with a message; the address is asked for anew when it has ended.

        Raises:
            TransientSendError: it cannot be had now.
            PermanentSendError: it is gone, or larger than `max_bytes`.
        """
        try:
            channel, message, identifier, url = convert.file_ref(attachment.ref)
        except ValueError as error:
            raise PermanentSendError(f"there is no such file: {error}") from error
        if attachment.size_bytes > max_bytes:
            raise PermanentSendError(f"{attachment.filename} is larger than {max_bytes} bytes")
        try:
            return await self._client.download(url, max_bytes)
        except faults.Gone:
            fresh = convert.file_url(await self._client.message(channel, message), identifier)
            if fresh is None:
                raise
            return await self._client.download(fresh, max_bytes)

    async def close(self) -> None:
        """Hang up."""
        await self._delivery.close()
        await self._client.close()

    # ---- from the line ---------------------------------------------------------------------------------------------

    def _received(self, event: str, payload: Payload) -> None:
        """Called in the order of the line, and never waited for."""
        if event == "MESSAGE_CREATE":
            self._receiver.received(payload, convert.guild_of(payload))
        elif event == "INTERACTION_CREATE":
            self._receive_interaction(payload)
        elif event == "READY":
            # A new session: nothing of what was written since the last one will be delivered by itself. A server's
            # channels wait for their GUILD_CREATE, without which nobody knows the bot's roles there.
            self._away_since = self._receiver.away_since
            self._receiver.catch_up(None)
        elif event == "GUILD_CREATE":
            self._look_into(str(payload["id"]))

    def _look_into(self, guild: str) -> None:
        self._receiver.catch_up(guild)
        if self._away_since is not None:
            channels = self._client.channels_in(guild, self._away_since)
            self._receiver.look_into(guild, channels, self._away_since)

    def _receive_interaction(self, payload: Payload) -> None:
        interaction, accept = convert.to_interaction(payload), self._accept
        if interaction is None or accept is None:  # none is waited for before `run`; its sender is told so by Discord
            return
        message = convert.command_to_inbound(payload, self._place(convert.guild_of(payload)))
        self._in_background(self._take_interaction(interaction, message, accept, payload))

    async def _take_interaction(
        self, interaction: Interaction, message: InboundMessage, accept: Accept, payload: Payload
    ) -> None:
        if await self._interactions.received(interaction, message, accept):
            left = convert.components_left(payload)
            if left is not None:
                with contextlib.suppress(SendError):  # a courtesy
                    await self._client.change_components(*left)

    def _read(self, payload: Payload, guild: str | None) -> InboundMessage | None:
        message = convert.to_inbound(payload, self._place(guild))
        return message if message is not None and convert.is_for_us(message) else None

    def _place(self, guild: str | None) -> Place:
        roles = self._client.roles_in(guild)
        return Place(channel=self.name, user=self._client.user_id, guild=guild, roles=roles)

    async def _stay_noted(self) -> None:
        """Remember up to when we were there, for the channels that have no mark; not before the servers are told."""
        while True:
            await asyncio.sleep(_ALIVE_S)
            await self._receiver.note_alive()

    # ---- the menu --------------------------------------------------------------------------------------------------

    async def _register_commands(self) -> None:
        """Put the gateway's commands into Discord's menu, if they are not there: it takes 200 changes a day."""
        try:
            commands = convert.to_commands(self._services.commands)
            wanted = convert.commands_hash(commands, self._client.application_id)
            if await self._services.notes.get(_COMMANDS) != wanted:
                await self._client.register(commands)
                await self._services.notes.put(_COMMANDS, wanted)
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
