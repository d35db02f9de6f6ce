"""One connection to Discord.

What the SDK does not do, and is done here (measured with 2.7.1): a first connect that fails ends in an AttributeError
(Rapptz/discord.py issue 10520); after an outage it waits up to 1024 s; it runs handlers as tasks without an order; and
one payload that it cannot read ends the connection. So the payloads of messages and interactions are taken as they
come, before the SDK reads them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import discord
import yarl
from discord.webhook.async_ import AsyncWebhookAdapter

from adapters.discord import errors as faults
from adapters.discord.convert import Interaction, Payload
from gateway.errors import AdapterError, AdapterNotReady

_log = logging.getLogger(__name__)

LONGEST_BACKOFF_S = 30.0
OUTAGE_S = 60.0  # a line that is away for longer is given up: a session is seldom resumed after that
_LONGEST_RATE_LIMIT_S = 30.0  # a longer wait is the outbox's, so that it is seen; the SDK takes no less
_TAKEN_RAW = ("MESSAGE_CREATE", "INTERACTION_CREATE")

# What it logs of its own: tracebacks for each try to reconnect, and, as debug, the addresses with interaction tokens.
logging.getLogger("discord").setLevel(logging.WARNING)
logging.getLogger("discord.client").setLevel(logging.CRITICAL)


class _CappedBackoff(discord.backoff.ExponentialBackoff[Any]):
    """The SDK's own waits between two tries, but never longer than `LONGEST_BACKOFF_S`."""

    def delay(self) -> Any:
        return min(float(super().delay()), random.uniform(LONGEST_BACKOFF_S / 2, LONGEST_BACKOFF_S))  # noqa: S311 (no secret)


# For the whole process; there is no option for it.
discord.client.ExponentialBackoff = _CappedBackoff  # type: ignore[attr-defined]


Received = Callable[[str, Payload], None]
"""Told of an event's name and payload, in the order of the line: READY, RESUMED, GUILD_CREATE, MESSAGE_CREATE, ..."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the requests of one client go. The SDK's constants, the same for the whole process, stay as they are."""

    api_url: str = "https://discord.com/api/v10"
    gateway_url: str = "wss://gateway.discord.gg/"

    def placed(self, route: discord.http.Route) -> discord.http.Route:
        """A route of the SDK's REST API, made one of ours."""
        if self.api_url != Servers().api_url:
            route.url = self.api_url.rstrip("/") + route.url.removeprefix(discord.http.Route.BASE)
        return route

    def gateway(self, url: str) -> str:
        """Ours in place of the SDK's; a server's own word on where to resume stays."""
        asked = yarl.URL(url)
        is_default = asked.with_query(None) == discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY
        if self.gateway_url == Servers().gateway_url or not is_default:
            return url
        return str(yarl.URL(self.gateway_url).with_query(asked.query))


class _Requests(discord.http.HTTPClient):
    def __init__(self, servers: Servers, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, max_ratelimit_timeout=_LONGEST_RATE_LIMIT_S)
        self._servers = servers

    async def request(self, route: discord.http.Route, **options: Any) -> Any:
        return await super().request(self._servers.placed(route), **options)

    async def ws_connect(self, url: str, **options: Any) -> Any:
        return await super().ws_connect(self._servers.gateway(url), **options)


class InteractionRequests(AsyncWebhookAdapter):
    """What the SDK sends for interactions; it takes this from a context variable."""

    def __init__(self, servers: Servers) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._servers = servers

    async def request(self, route: discord.http.Route, *arguments: Any, **options: Any) -> Any:
        """As the SDK's own, to our server."""
        return await super().request(self._servers.placed(route), *arguments, **options)


class Line(discord.Client):
    """The SDK's client, for one connection."""

    def __init__(self, servers: Servers, intents: discord.Intents, received: Received, identify_pause_s: float) -> None:
        super().__init__(
            intents=intents,
            allowed_mentions=discord.AllowedMentions.none(),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            guild_ready_timeout=0.0,  # we do not wait for the SDK's own idea of being ready
        )
        self.http = self._connection.http = _Requests(servers, self.loop)
        self._received = received
        self._identify_pause_s = identify_pause_s
        self._outage: asyncio.TimerHandle | None = None
        self.is_ready_once = asyncio.Event()
        self.ended: asyncio.Future[AdapterError] = asyncio.get_running_loop().create_future()
        parsers = self._connection.parsers
        for name, parse in parsers.items():
            parsers[name] = self._guarded(name, parse)

    @property
    def is_away(self) -> bool:
        """The connection broke, and is not back yet."""
        return self._outage is not None

    def interaction(self, interaction: Interaction) -> discord.Interaction[Any]:
        """The SDK's object, with as much in it as an answer needs."""
        data: Any = {
            "id": interaction.id,
            "application_id": interaction.application_id,
            "type": interaction.type,
            "token": interaction.token,
            "version": 1,
            "attachment_size_limit": 0,
        }
        return discord.Interaction(data=data, state=self._connection)

    def end(self, error: AdapterError) -> None:
        """Say why the connection is lost for good; the first reason counts."""
        if self._outage is not None:
            self._outage.cancel()
        if not self.ended.done():
            self.ended.set_result(error)

    def ended_by(self, task: asyncio.Task[None]) -> None:
        """The SDK gave up."""
        error = None if task.cancelled() else task.exception()
        self.end(faults.of_connection(error))

    def dispatch(self, event: str, /, *_args: Any, **_kwargs: Any) -> None:
        """None of the SDK's own events are used, since each runs as a task of its own; but one has no payload."""
        if event == "disconnect" and self._outage is None and not self.ended.done():
            away = AdapterNotReady(f"the connection to Discord has been away for {OUTAGE_S:g} s")
            self._outage = asyncio.get_running_loop().call_later(OUTAGE_S, self.end, away)

    async def before_identify_hook(self, _shard_id: int | None, *, initial: bool = False) -> None:
        """Keep within one IDENTIFY in 5 s."""
        if not initial:
            await asyncio.sleep(self._identify_pause_s)

    def _guarded(self, name: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
        """One payload that cannot be read must not end the connection, and with it all the others."""

        def take(data: Any) -> None:
            try:
                if name not in _TAKEN_RAW:
                    parse(data)
                if name in ("READY", "RESUMED"):
                    self._is_back()
                self._received(name, data)
            except Exception:
                if name == "READY":  # without it there is no connection
                    raise
                _log.exception("an event %s of Discord's was passed over: it cannot be read", name)

        return take

    def _is_back(self) -> None:
        self.is_ready_once.set()
        if self._outage is not None:
            self._outage.cancel()
            self._outage = None
