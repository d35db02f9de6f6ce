"""One connection to Discord's WebSocket (the "Gateway").

What is added here, because the SDK lacks it (measured with 2.7.1): a first connect that fails ends in an AttributeError
(Rapptz/discord.py issue 10520); after an outage it waits up to 1024 s; it runs handlers as tasks without an order; and
one payload that it cannot read ends the connection. So the payloads of messages and interactions are passed on as they
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

from adapters.discord import errors
from adapters.discord.convert import Interaction, Payload
from gateway.errors import AdapterError, AdapterNotReady

_log = logging.getLogger(__name__)

MAX_BACKOFF_S = 30.0
MAX_OUTAGE_S = 60.0  # after that the connection ends: a session is seldom resumed later
_MAX_RATE_LIMIT_S = 30.0  # a longer wait is left to the outbox, where it is visible; the SDK takes no less
_RAW_EVENTS = ("MESSAGE_CREATE", "INTERACTION_CREATE")

# It logs a traceback for each try to reconnect, and, as debug, addresses with interaction tokens.
logging.getLogger("discord").setLevel(logging.WARNING)
logging.getLogger("discord.client").setLevel(logging.CRITICAL)


class _CappedBackoff(discord.backoff.ExponentialBackoff[Any]):
    """The SDK's waits between two tries, but at most `MAX_BACKOFF_S`."""

    def delay(self) -> Any:
        return min(float(super().delay()), random.uniform(MAX_BACKOFF_S / 2, MAX_BACKOFF_S))  # noqa: S311 (no secret)


# For the whole process: the SDK has no option for it.
discord.client.ExponentialBackoff = _CappedBackoff  # type: ignore[attr-defined]


OnEvent = Callable[[str, Payload], None]
"""Takes an event's name and payload, in Discord's order: READY, RESUMED, GUILD_CREATE, MESSAGE_CREATE, ..."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses for one client. The SDK's constants are for the whole process, so they are not changed."""

    api_url: str = "https://discord.com/api/v10"
    gateway_url: str = "wss://gateway.discord.gg/"

    def redirected(self, route: discord.http.Route) -> discord.http.Route:
        """A route of the SDK, with our address of the REST API."""
        if self.api_url != Endpoints().api_url:
            route.url = self.api_url.rstrip("/") + route.url.removeprefix(discord.http.Route.BASE)
        return route

    def websocket(self, url: str) -> str:
        """Our address in place of the SDK's default; the address to resume at, which Discord gives, stays."""
        asked = yarl.URL(url)
        is_default = asked.with_query(None) == discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY
        if self.gateway_url == Endpoints().gateway_url or not is_default:
            return url
        return str(yarl.URL(self.gateway_url).with_query(asked.query))


class Requests(discord.http.HTTPClient):
    """The SDK's requests, sent to our addresses."""

    def __init__(self, endpoints: Endpoints, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, max_ratelimit_timeout=_MAX_RATE_LIMIT_S)
        self._endpoints = endpoints

    async def request(self, route: discord.http.Route, **options: Any) -> Any:
        """Send the request to our address."""
        return await super().request(self._endpoints.redirected(route), **options)

    async def ws_connect(self, url: str, **options: Any) -> Any:
        """Connect to our address."""
        return await super().ws_connect(self._endpoints.websocket(url), **options)


class InteractionRequests(AsyncWebhookAdapter):
    """The SDK's requests for interactions; it takes this object from a context variable."""

    def __init__(self, endpoints: Endpoints) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._endpoints = endpoints

    async def request(self, route: discord.http.Route, *arguments: Any, **options: Any) -> Any:
        """Send the request to our address."""
        return await super().request(self._endpoints.redirected(route), *arguments, **options)


class Connection(discord.Client):
    """The SDK's client; used for one connection only."""

    def __init__(self, endpoints: Endpoints, intents: discord.Intents, on_event: OnEvent) -> None:
        super().__init__(
            intents=intents,
            allowed_mentions=discord.AllowedMentions.none(),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            guild_ready_timeout=0.0,  # the SDK's own ready event is not used
        )
        self.http = self._connection.http = Requests(endpoints, self.loop)
        self._on_event = on_event
        self._identify_pause_s = 5.0
        self._outage: asyncio.TimerHandle | None = None
        self.was_ready = asyncio.Event()
        self.ended: asyncio.Future[AdapterError] = asyncio.get_running_loop().create_future()
        parsers = self._connection.parsers
        for name, parse in parsers.items():
            parsers[name] = self._guarded(name, parse)

    @property
    def is_reconnecting(self) -> bool:
        """The connection broke, and the SDK is making it again."""
        return self._outage is not None

    def interaction(self, interaction: Interaction) -> discord.Interaction[Any]:
        """The SDK's object, with the fields that an answer needs."""
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
        """Set why the connection ended; the first reason counts."""
        if self._outage is not None:
            self._outage.cancel()
        if not self.ended.done():
            self.ended.set_result(error)

    def ended_by(self, task: asyncio.Task[None]) -> None:
        """Set the reason of the SDK's task."""
        error = None if task.cancelled() else task.exception()
        self.end(errors.connect_error(error))

    def dispatch(self, event: str, /, *_args: Any, **_kwargs: Any) -> None:
        """The SDK runs each event as a task, so only `disconnect` is used here, which has no payload."""
        if event == "disconnect" and self._outage is None and not self.ended.done():
            away = AdapterNotReady(f"the connection to Discord has been away for {MAX_OUTAGE_S:g} s")
            self._outage = asyncio.get_running_loop().call_later(MAX_OUTAGE_S, self.end, away)

    async def before_identify_hook(self, _shard_id: int | None, *, initial: bool = False) -> None:
        """Wait: Discord takes one IDENTIFY in 5 s."""
        if not initial:
            await asyncio.sleep(self._identify_pause_s)

    def _guarded(self, name: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
        """Skip a payload that cannot be read, so that it does not end the connection."""

        def handle(data: Any) -> None:
            try:
                if name not in _RAW_EVENTS:
                    parse(data)
                if name in ("READY", "RESUMED"):
                    self._reconnected()
                self._on_event(name, data)
            except Exception:
                if name == "READY":  # without it there is no connection
                    raise
                _log.exception("an event %s of Discord's was passed over: it cannot be read", name)

        return handle

    def _reconnected(self) -> None:
        self.was_ready.set()
        if self._outage is not None:
            self._outage.cancel()
            self._outage = None
