"""Channels: their true state, when they were last of use, how far behind they are, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.system import ChannelHealth, Health
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext

PAGE = Page(name="channels", title="Channels", icon="channels", position=70)

# Younger than this, a waiting message is on its way, and not late.
LATE_S = 60.0

_WORDS: Mapping[str, tuple[str, str]] = {
    "up": ("Connected", "ok"),
    "starting": ("Connecting", ""),
    "down": ("Not connected", "warn"),
    "auth_failed": ("Refused", "bad"),
    "stopped": ("Stopped", ""),
    "elsewhere": ("On another worker", "ok"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    """A channel as it is shown.

    Attributes:
        colour: of the word: `ok`, `warn`, `bad`, or none.
        advice: what to do, where there is something to do.
        dead: messages and answers that were given up.
    """

    channel: ChannelHealth
    word: str
    colour: str
    advice: str | None
    dead: int

    @property
    def lag_s(self) -> float:
        """Age of the oldest message or answer that waits."""
        return max(self.channel.inbox_lag_s, self.channel.outbox_lag_s)


def channel_rows(health: Health) -> Sequence[ChannelRow]:
    """In the order of the configuration."""
    dead: dict[str, int] = {}
    for queue in health.queues:
        if queue.state == "dead":
            dead[queue.channel] = dead.get(queue.channel, 0) + queue.messages
    return [_row(channel, dead.get(channel.name, 0)) for channel in health.channels]


def _row(channel: ChannelHealth, dead: int) -> ChannelRow:
    word, colour = _WORDS[channel.state]
    if channel.state == "up" and max(channel.inbox_lag_s, channel.outbox_lag_s) >= LATE_S:
        word, colour = "Connected, but behind", "warn"
    return ChannelRow(channel=channel, word=word, colour=colour, advice=_advice(channel, dead), dead=dead)


def _advice(channel: ChannelHealth, dead: int) -> str | None:
    if channel.state == "auth_failed":
        return (
            "The platform does not take the channel's key, and it is not tried again. Put a valid one where the "
            "configuration looks for it, then run `ethos reload`."
        )
    if channel.state == "down":
        return (
            "It is tried again automatically, at least every minute. What is written meanwhile waits and is not lost."
        )
    if channel.inbox_lag_s >= LATE_S:
        return "Messages wait for an answer. A slow model or a used-up budget does that; `ethos status` says which."
    if channel.outbox_lag_s >= LATE_S:
        return "Answers wait for their platform, and are sent when it is back."
    if dead:
        return "Some messages or answers were given up. Look at them under Deliveries, and try them again or drop them."
    return None


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All channels, and how the gateway is."""
    health = await context.services.system.health(context.caller)
    return context.render(
        request, "channels/index.html", title=PAGE.title, health=health, channels=channel_rows(health)
    )
