"""Requests to Discord. Only this file, `connection` and `errors` use the SDK, discord.py.

The SDK never retries a login, and a Client is used for one connection only.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import aiohttp
import discord
import yarl
from discord.webhook.async_ import async_context

from adapters.discord import errors
from adapters.discord.connection import Connection, Endpoints, InteractionRequests, OnEvent, Requests
from adapters.discord.convert import Interaction, Payload
from gateway.errors import AdapterAuthFailed, AdapterNotReady, PermanentSendError, TransientSendError

_log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_SEND_S = 120.0  # with the waits for rate limits and the SDK's own retries
_FETCH_S = 60.0
_HISTORY_PAGE = 100  # Discord's maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """A voice message: Opus in Ogg, and what Discord draws of it; `waveform` is base 64 of 256 bytes at most."""

    filename: str
    content: bytes
    duration_s: float
    waveform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message to be sent.

    Attributes:
        nonce: a repeated request with it returns the first message, for some minutes.
        reply_to: the message that it is shown as a reply to.
        files: names and contents.
        buttons: ids and labels.
        voice: a voice message, which has neither text nor buttons.
    """

    content: str
    nonce: str = ""
    reply_to: int | None = None
    files: Sequence[tuple[str, bytes]] = ()
    buttons: Sequence[tuple[str, str]] = ()
    voice: Voice | None = None


@dataclass(frozen=True, slots=True)
class Posted:
    """A message on Discord, with its text there."""

    id: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BotFacts:
    """A bot and its application as Discord describes them.

    https://docs.discord.com/developers/resources/application#application-object

    Attributes:
        reads_content: its Message Content Intent is switched on.
        guilds: how many servers it is in, about; None where Discord does not say.
        interactions_url: where Discord sends presses and commands, instead of over the connection.
    """

    application_id: str
    name: str
    reads_content: bool
    guilds: int | None
    interactions_url: str | None


class DiscordClient:
    """One connection at a time; `open` makes a new one."""

    def __init__(self, token: str, *, message_content: bool, endpoints: Endpoints | None = None) -> None:
        self._token = token.strip()
        self._endpoints = endpoints or Endpoints()
        self._for_interactions = InteractionRequests(self._endpoints)
        self._intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
        self._intents.message_content = message_content
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_reconnecting(self) -> bool:
        """The connection broke, and is being made again."""
        return self._connection is not None and self._connection.is_reconnecting

    @property
    def user_id(self) -> str:
        """The bot's own id."""
        user = self._open_connection.user
        return "" if user is None else str(user.id)

    @property
    def application_id(self) -> str:
        """The id of the application that the bot belongs to."""
        return str(self._open_connection.application_id)

    async def open(self, on_event: OnEvent) -> None:
        """Log in, and return after READY. Raises as `ChannelAdapter.connect`."""
        await self.close()
        self._check_token()
        connection = self._connection = Connection(self._endpoints, self._intents, on_event)
        task = self._task = asyncio.create_task(connection.start(self._token), name="discord")
        task.add_done_callback(connection.ended_by)
        ready = asyncio.create_task(connection.was_ready.wait())
        try:
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            if not connection.was_ready.is_set():
                await self.close()
        if not connection.was_ready.is_set():
            raise await connection.ended

    async def describe(self) -> BotFacts:
        """Ask who the bot is, over no connection. Raises as `open`."""
        self._check_token()
        requests = Requests(self._endpoints, asyncio.get_running_loop())
        try:
            bot = await requests.static_login(self._token)
            application: Mapping[str, Any] = await requests.application_info()
            flags = discord.ApplicationFlags._from_value(int(application.get("flags") or 0))  # noqa: SLF001 (no other)
            return BotFacts(
                application_id=str(application["id"]),
                name=str(bot.get("global_name") or bot["username"]),
                reads_content=flags.gateway_message_content or flags.gateway_message_content_limited,
                guilds=application.get("approximate_guild_count"),
                interactions_url=application.get("interactions_endpoint_url"),
            )
        except (discord.DiscordException, aiohttp.ClientError, OSError, KeyError, TypeError, ValueError) as error:
            raise errors.connect_error(error) from error
        finally:
            await requests.close()

    def _check_token(self) -> None:
        if not self._token.isascii() or not self._token.isprintable() or " " in self._token or not self._token:
            raise AdapterAuthFailed(errors.WRONG_TOKEN)

    async def watch(self) -> NoReturn:
        """Wait until the connection ends; raises the reason."""
        if self._connection is None:
            raise AdapterNotReady("the connection to Discord is not open")
        raise await asyncio.shield(self._connection.ended)

    async def close(self) -> None:
        """Disconnect; wait for the other side for a few seconds at most."""
        connection, self._connection = self._connection, None
        task, self._task = self._task, None
        if connection is None or task is None:
            return
        if task.done():  # its reason comes first
            connection.ended_by(task)
        connection.end(AdapterNotReady("the connection to Discord was closed"))
        try:
            async with asyncio.timeout(_CLOSE_S):
                await connection.close()
        except (TimeoutError, OSError, aiohttp.ClientError, discord.DiscordException) as error:
            _log.debug("the connection was not closed in good order: %r", error)
        finally:
            task.cancel()
            await asyncio.wait({task})
            await connection.http.close()

    def own_roles(self, guild: str | None) -> frozenset[str]:
        """The ids of the bot's roles in a server, without `@everyone`."""
        found = None if guild is None or self._connection is None else self._connection.get_guild(int(guild))
        if found is None or found.me is None:
            return frozenset()
        return frozenset(str(role.id) for role in found.me.roles if not role.is_default())

    def active_channels(self, guild: str, after: int) -> list[int]:
        """The readable channels and threads of a server with a message after an id."""
        found = None if self._connection is None else self._connection.get_guild(int(guild))
        if found is None or found.me is None:
            return []
        channels: list[discord.TextChannel | discord.VoiceChannel | discord.StageChannel | discord.Thread] = [
            *found.text_channels, *found.voice_channels, *found.stage_channels, *found.threads,
        ]  # fmt: skip
        return [
            channel.id
            for channel in channels
            if (channel.last_message_id or 0) > after and _is_readable(channel.permissions_for(found.me))
        ]

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def history(self, channel: int, after: int) -> list[Payload]:
        """The next messages after an id, oldest first, at most 100. Raises as `post` does."""
        async with self._request() as connection:
            page = await connection.http.logs_from(channel, _HISTORY_PAGE, after=after)
            return sorted(page, key=lambda message: int(message["id"]))

    async def message(self, channel: int, message: int) -> Payload:
        """One message. Raises as `post` does."""
        async with self._request() as connection:
            return await connection.http.get_message(channel, message)

    async def download(self, url: str, max_bytes: int) -> bytes:
        """A file of a message, from Discord's own endpoints only.

        Raises as `SupportsAttachments.fetch`; `errors.MessageGone` where the address has expired, or the file is gone.
        """
        address = yarl.URL(url)
        if address.host not in (yarl.URL(discord.asset.Asset.BASE).host, "media.discordapp.net"):
            raise PermanentSendError(f"{address.host} is not where Discord keeps files")
        timeout = aiohttp.ClientTimeout(total=_FETCH_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(address) as response:
                return await _body(response, max_bytes)
        except (aiohttp.ClientError, OSError) as error:
            raise TransientSendError(f"the file cannot be fetched now: {error!r}") from error

    # ---- writing ---------------------------------------------------------------------------------------------------

    async def post(self, channel: int, post: Post) -> Posted:
        """Send a message. Raises as `ChannelAdapter.send`; see `errors.send_error`."""
        if post.voice is not None:
            return await self._say(channel, post, post.voice)
        async with self._request() as connection:
            sent = await connection.get_partial_messageable(channel).send(
                post.content,
                nonce=post.nonce,
                suppress_embeds=True,  # for a link preview, Discord would fetch the model's links
                **_extras(post),
                **_reference(channel, post.reply_to),
            )
        return Posted(str(sent.id), sent.content)

    async def _say(self, channel: int, post: Post, voice: Voice) -> Posted:
        """Send a voice message, which the SDK does not know: a flag, and two fields beside its file."""
        params = discord.http.handle_message_parameters(
            file=_VoiceFile(voice), nonce=post.nonce, flags=discord.MessageFlags(voice=True)
        )
        async with self._request() as connection:
            sent = await connection.http.send_message(channel, params=params)
        return Posted(str(sent["id"]), str(sent["content"]))

    async def edit(self, channel: int, message: int, post: Post) -> Posted:
        """Replace a message's text. Idempotent. Raises as `post` does."""
        async with self._request() as connection:
            partial = connection.get_partial_messageable(channel).get_partial_message(message)
            sent = await partial.edit(content=post.content, **_extras(post, files="attachments"))
        return Posted(str(sent.id), sent.content)

    async def edit_components(self, channel: int, message: int, components: Sequence[Payload]) -> None:
        """Replace a message's buttons. Idempotent. Raises as `post` does."""
        route = discord.http.Route(
            "PATCH", "/channels/{channel_id}/messages/{message_id}", channel_id=channel, message_id=message
        )
        async with self._request() as connection:
            await connection.http.request(route, json={"components": list(components)})

    async def delete(self, channel: int, message: int) -> None:
        """Delete a message, if it exists. Raises as `post` does."""
        with contextlib.suppress(errors.MessageGone):
            async with self._request() as connection:
                await connection.get_partial_messageable(channel).get_partial_message(message).delete()

    async def show_typing(self, channel: int) -> None:
        """Show for ten seconds that the bot is typing. Raises as `post` does."""
        async with self._request() as connection:
            await connection.get_partial_messageable(channel).typing()

    async def register(self, commands: Sequence[Mapping[str, Any]]) -> None:
        """Replace all commands of the application. Raises as `post` does."""
        async with self._request() as connection:
            await connection.http.bulk_upsert_global_commands(int(self.application_id), list(commands))  # type: ignore[arg-type]

    # ---- interactions ----------------------------------------------------------------------------------------------

    async def defer(self, interaction: Interaction) -> None:
        """Show "is thinking"; must be within 3 s of the interaction. Raises as `post` does."""
        async with self._request() as connection:
            await connection.interaction(interaction).response.defer(thinking=True, ephemeral=interaction.is_private)

    async def respond_privately(self, interaction: Interaction, text: str) -> None:
        """Show a text to the person only, in place of an answer. Raises as `post` does."""
        async with self._request() as connection:
            await connection.interaction(interaction).response.send_message(text, ephemeral=True)

    async def edit_response(self, interaction: Interaction, post: Post) -> Posted:
        """Replace "is thinking" by the answer. Idempotent. Raises as `post` does."""
        async with self._request() as connection:
            sent = await connection.interaction(interaction).edit_original_response(
                content=post.content, **_extras(post, files="attachments")
            )
        return Posted(str(sent.id), sent.content)

    async def follow_up(self, interaction: Interaction, post: Post) -> Posted:
        """Send a further answer where the bot may not write messages. It has no nonce. Raises as `post` does."""
        async with self._request() as connection:
            sent = await connection.interaction(interaction).followup.send(
                post.content, wait=True, suppress_embeds=True, ephemeral=interaction.is_private, **_extras(post)
            )
        return Posted(str(sent.id), sent.content)

    # ---- inside ----------------------------------------------------------------------------------------------------

    @property
    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise TransientSendError("the connection to Discord is not open")
        return self._connection

    @contextlib.asynccontextmanager
    async def _request(self) -> AsyncIterator[Connection]:
        """Translate the errors of a request to the REST API."""
        connection = self._open_connection
        before = async_context.set(self._for_interactions)
        try:
            async with asyncio.timeout(_SEND_S):
                yield connection
        except Exception as error:
            if errors.is_token_refused(error):
                connection.end(AdapterAuthFailed(errors.WRONG_TOKEN))
            raise errors.send_error(error) from error
        finally:
            async_context.reset(before)


class _VoiceFile(discord.File):
    def __init__(self, voice: Voice) -> None:
        super().__init__(io.BytesIO(voice.content), filename=voice.filename)
        self._drawn = {"duration_secs": voice.duration_s, "waveform": voice.waveform}

    def to_dict(self, index: int) -> dict[str, Any]:
        """https://docs.discord.com/developers/resources/message#attachment-object (read 2026-11)."""
        return {**super().to_dict(index), **self._drawn}


def _is_readable(permissions: discord.Permissions) -> bool:
    """Asked before, because Discord blocks a bot after 10,000 refused requests in ten minutes."""
    return permissions.view_channel and permissions.read_message_history


def _extras(post: Post, *, files: str = "files") -> dict[str, Any]:
    """Files and buttons for the SDK. Empty ones are left out, so that an edit does not change them."""
    extras: dict[str, Any] = {}
    if post.files:
        extras[files] = [discord.File(io.BytesIO(content), filename=name) for name, content in post.files]
    if post.buttons:
        view = discord.ui.View(timeout=None)
        for identifier, label in post.buttons[:25]:
            view.add_item(discord.ui.Button(label=label[:80], custom_id=identifier[:100]))
        view.stop()  # the SDK need not wait for presses: we take the raw interactions
        extras["view"] = view
    return extras


def _reference(channel: int, reply_to: int | None) -> dict[str, Any]:
    if reply_to is None:
        return {}
    return {"reference": discord.MessageReference(message_id=reply_to, channel_id=channel, fail_if_not_exists=False)}


async def _body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    if response.status in (403, 404):
        raise errors.MessageGone("the file is gone")
    if response.status != 200:
        raise TransientSendError(f"the file cannot be fetched now: HTTP {response.status}")
    content = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        content += chunk
        if len(content) > max_bytes:
            raise PermanentSendError(f"the file is larger than {max_bytes} bytes")
    return bytes(content)
