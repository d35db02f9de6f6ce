"""What the gateway says of itself: the same facts for `/health`, `ethos status` and `ethos doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from gateway.supervisor import ChannelStatus

Verdict = Literal["ok", "starting", "failing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A picture of the running gateway.

    Attributes:
        status: `failing` when a channel or the store does not work; `starting` until every channel was tried once.
        problems: for people, each with what to do.
    """

    status: Verdict
    version: str
    pid: int
    started_at: datetime
    channels: Sequence[ChannelStatus]
    turns_running: int
    conversations_waiting: int
    conversations_parked: int
    memory_late: int
    problems: Sequence[str] = field(default=())

    def as_json(self) -> Mapping[str, Any]:
        """As a JSON object; times in ISO 8601."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def verdict(channels: Sequence[ChannelStatus], problems: Sequence[str], *, is_started: bool) -> Verdict:
    """The one word for a load balancer: a gateway with a channel that is down still serves the others."""
    if not is_started:
        return "starting"
    all_down = bool(channels) and all(channel.state in ("down", "auth_failed") for channel in channels)
    return "failing" if all_down or problems else "ok"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
