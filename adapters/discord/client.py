"""What we ask of Discord. With `line` and `faults`, the only file that touches the SDK, discord.py.

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

from adapters.discord import errors as faults
from adapters.discord.connection import InteractionRequests, Line, Received, Servers
from adapters.discord.convert import Interaction, Payload
from gateway.errors import AdapterAuthFailed, AdapterNotReady, PermanentSendError, TransientSendError

_log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_SEND_S = 120.0  # waits for rate limits and the SDK's own tries included
_FETCH_S = 60.0
_HISTORY_PAGE = 100  # the most that Discord gives at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message to be sent.

    Attributes:
        nonce: sending it again within minutes returns the first message.
        answers: the message that it is shown as a reply to.
        files: names and contents.
        buttons: ids and labels.
    """

    content: str
    nonce: str = ""
    answers: int | None = None
    files: Sequence[tuple[str, bytes]] = ()
    buttons: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Posted:
    """A message that Discord has, with the text as it has it."""

    id: str
    content: str


class DiscordClient:
    """One connection at a time; opened anew after each end."""

    def __init__(self, token: str, *, message_content: bool, servers: Servers | None = None) -> None:
        self._token = token.strip()
        self._servers = servers or Servers()
        self._for_interactions = InteractionRequests(self._servers)
        self._intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
        self._intents.message_content = message_content
        self._line: Line | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_away(self) -> bool:
        """The connection broke, and is being made again."""
        return self._line is not None and self._line.is_away

    @property
    def user_id(self) -> str:
        """The bot's own id."""
        user = self._open_line.user
        return "" if user is None else str(user.id)

    @property
    def application_id(self) -> str:
        """The id of the application that the bot belongs to."""
        return str(self._open_line.application_id)

    async def open(self, received: Received, *, identify_pause_s: float = 5.0) -> None:
        """Log in, and return when Discord has said READY.

        Args:
            identify_pause_s: before a lost session is replaced; Discord takes one IDENTIFY in 5 s.

        Raises:
            AdapterNotReady: Discord cannot be reached now.
            AdapterAuthFailed: it refused the token or the intents.
        """
        await self.close()
        if not self._token.isascii() or not self._token.isprintable() or " " in self._token or not self._token:
            raise AdapterAuthFailed(faults.WRONG_TOKEN)
        line = self._line = Line(self._servers, self._intents, received, identify_pause_s)
        task = self._task = asyncio.create_task(line.start(self._token), name="discord")
        task.add_done_callback(line.ended_by)
        ready = asyncio.create_task(line.is_ready_once.wait())
        try:
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            if not line.is_ready_once.is_set():
                await self.close()
        if not line.is_ready_once.is_set():
            raise await line.ended

    async def watch(self) -> NoReturn:
        """Wait until the connection is lost for good.

        Raises:
            AdapterNotReady, AdapterAuthFailed: why.
        """
        if self._line is None:
            raise AdapterNotReady("the connection to Discord is not open")
        raise await asyncio.shield(self._line.ended)

    async def close(self) -> None:
        """Hang up. What the other side does is not waited for longer than a few seconds."""
        line, self._line = self._line, None
        task, self._task = self._task, None
        if line is None or task is None:
            return
        if task.done():  # its reason counts more than ours
            line.ended_by(task)
        line.end(AdapterNotReady("the connection to Discord was closed"))
        try:
            async with asyncio.timeout(_CLOSE_S):
                await line.close()
        except (TimeoutError, OSError, aiohttp.ClientError, discord.DiscordException) as error:
            _log.debug("the connection was not closed in good order: %r", error)
        finally:
            task.cancel()
            await asyncio.wait({task})
            await line.http.close()

    def roles_in(self, guild: str | None) -> frozenset[str]:
        """The ids of the bot's own roles in a server, without `@everyone`, which is no way to speak to it."""
        found = None if guild is None or self._line is None else self._line.get_guild(int(guild))
        if found is None or found.me is None:
            return frozenset()
        return frozenset(str(role.id) for role in found.me.roles if not role.is_default())

    def channels_in(self, guild: str, after: int) -> list[int]:
        """The channels and threads of a server with a message behind an id, as far as the bot may read them."""
        found = None if self._line is None else self._line.get_guild(int(guild))
        if found is None or found.me is None:
            return []
        places: list[discord.TextChannel | discord.VoiceChannel | discord.StageChannel | discord.Thread] = [
            *found.text_channels, *found.voice_channels, *found.stage_channels, *found.threads,
        ]  # fmt: skip
        return [
            place.id
            for place in places
            if (place.last_message_id or 0) > after and _is_readable(place.permissions_for(found.me))
        ]

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def history(self, channel: int, after: int) -> list[Payload]:
        """The next messages behind an id, oldest first, 100 at most; raises as `post` does."""
        async with self._asking() as line:
            page = await line.http.logs_from(channel, _HISTORY_PAGE, after=after)
            return sorted(page, key=lambda message: int(message["id"]))

    async def message(self, channel: int, message: int) -> Payload:
        """One message; raises as `post` does."""
        async with self._asking() as line:
            return await line.http.get_message(channel, message)

    async def download(self, url: str, max_bytes: int) -> bytes:
        """A file of a message, from Discord's own servers only.

        Raises:
            faults.Gone: the address has ended, or the file is gone.
            PermanentSendError: it is too large, or elsewhere.
            TransientSendError: it cannot be had now.
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
        """Send a message.

        Raises:
            TransientSendError, UncertainSendError, PermanentSendError: see `faults.of_send`.
        """
        async with self._asking() as line:
            sent = await line.get_partial_messageable(channel).send(
                post.content,
                nonce=post.nonce,
                suppress_embeds=True,  # a preview would make Discord fetch whatever address the model wrote
                **_extras(post),
                **_reference(channel, post.answers),
            )
        return Posted(str(sent.id), sent.content)

    async def edit(self, channel: int, message: int, post: Post) -> Posted:
        """Put another text in place of a message's; doing so twice does no harm. Raises as `post` does."""
        async with self._asking() as line:
            partial = line.get_partial_messageable(channel).get_partial_message(message)
            sent = await partial.edit(content=post.content, **_extras(post, files="attachments"))
        return Posted(str(sent.id), sent.content)

    async def change_components(self, channel: int, message: int, components: Sequence[Payload]) -> None:
        """Put these buttons below a message; doing so twice does no harm. Raises as `post` does."""
        route = discord.http.Route(
            "PATCH", "/channels/{channel_id}/messages/{message_id}", channel_id=channel, message_id=message
        )
        async with self._asking() as line:
            await line.http.request(route, json={"components": list(components)})

    async def delete(self, channel: int, message: int) -> None:
        """Take a message away; one that is gone is as good. Raises as `post` does."""
        with contextlib.suppress(faults.Gone):
            async with self._asking() as line:
                await line.get_partial_messageable(channel).get_partial_message(message).delete()

    async def show_typing(self, channel: int) -> None:
        """Show it for ten seconds; raises as `post` does."""
        async with self._asking() as line:
            await line.get_partial_messageable(channel).typing()

    async def register(self, commands: Sequence[Mapping[str, Any]]) -> None:
        """Put these commands in place of all that the application has; raises as `post` does."""
        async with self._asking() as line:
            await line.http.bulk_upsert_global_commands(int(self.application_id), list(commands))  # type: ignore[arg-type]

    # ---- interactions ----------------------------------------------------------------------------------------------

    async def defer(self, interaction: Interaction) -> None:
        """Say that an answer will come; must be within 3 s of the interaction. Raises as `post` does."""
        async with self._asking() as line:
            await line.interaction(interaction).response.defer(thinking=True, ephemeral=interaction.is_private)

    async def refuse(self, interaction: Interaction, text: str) -> None:
        """Tell the person at once, and nobody else, that there will be no answer; raises as `post` does."""
        async with self._asking() as line:
            await line.interaction(interaction).response.send_message(text, ephemeral=True)

    async def answer(self, interaction: Interaction, post: Post) -> Posted:
        """Put the answer in place of "is thinking"; doing so twice does no harm. Raises as `post` does."""
        async with self._asking() as line:
            sent = await line.interaction(interaction).edit_original_response(
                content=post.content, **_extras(post, files="attachments")
            )
        return Posted(str(sent.id), sent.content)

    async def follow_up(self, interaction: Interaction, post: Post) -> Posted:
        """Send a further answer, where the bot may not write by itself; has no nonce. Raises as `post` does."""
        async with self._asking() as line:
            sent = await line.interaction(interaction).followup.send(
                post.content, wait=True, suppress_embeds=True, ephemeral=interaction.is_private, **_extras(post)
            )
        return Posted(str(sent.id), sent.content)

    # ---- inside ----------------------------------------------------------------------------------------------------

    @property
    def _open_line(self) -> Line:
        if self._line is None:
            raise TransientSendError("the connection to Discord is not open")
        return self._line

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[Line]:
        """Translate whatever a request to the REST API raises."""
        line = self._open_line
        before = async_context.set(self._for_interactions)
        try:
            async with asyncio.timeout(_SEND_S):
                yield line
        except Exception as error:
            if faults.is_token_refused(error):
                line.end(AdapterAuthFailed(faults.WRONG_TOKEN))
            raise faults.of_send(error) from error
        finally:
            async_context.reset(before)


def _is_readable(permissions: discord.Permissions) -> bool:
    """What is refused counts against the bot: 10,000 refusals in ten minutes, and Discord hears it no more."""
    return permissions.view_channel and permissions.read_message_history


def _extras(post: Post, *, files: str = "files") -> dict[str, Any]:
    """Files and buttons as the SDK wants them; what is not there is not named, so that an edit leaves it alone."""
    extras: dict[str, Any] = {}
    if post.files:
        extras[files] = [discord.File(io.BytesIO(content), filename=name) for name, content in post.files]
    if post.buttons:
        view = discord.ui.View(timeout=None)
        for identifier, label in post.buttons[:25]:
            view.add_item(discord.ui.Button(label=label[:80], custom_id=identifier[:100]))
        view.stop()  # the SDK need not listen for it: interactions are taken raw
        extras["view"] = view
    return extras


def _reference(channel: int, answers: int | None) -> dict[str, Any]:
    if answers is None:
        return {}
    return {"reference": discord.MessageReference(message_id=answers, channel_id=channel, fail_if_not_exists=False)}


async def _body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    if response.status in (403, 404):
        raise faults.Gone("the file is gone")
    if response.status != 200:
        raise TransientSendError(f"the file cannot be fetched now: HTTP {response.status}")
    content = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        content += chunk
        if len(content) > max_bytes:
            raise PermanentSendError(f"the file is larger than {max_bytes} bytes")
    return bytes(content)
