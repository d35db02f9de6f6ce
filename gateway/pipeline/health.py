"""What the gateway says of itself: the same facts for `/health`, `/metrics`, `ethos status` and `ethos doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gateway.domain.channels import ChannelState, ChannelStatus
from gateway.sdk.models.system import ChannelHealth, Health, QueueHealth, Verdict

# Less than this, and writing will soon fail.
LITTLE_DISK_BYTES = 64 * 1024 * 1024
_DOWN: tuple[ChannelState, ...] = ("down", "auth_failed")


def as_json(health: Health) -> dict[str, Any]:
    """As a JSON object, as `/health` and `ethos status` show it; times in ISO 8601."""
    return {key: _plain(value) for key, value in health.model_dump(by_alias=False).items()}


def channel_health(status: ChannelStatus, queues: Sequence[QueueHealth], problems: Sequence[str] = ()) -> ChannelHealth:
    """What the supervisor and the queues know of one channel; `problems` as `Supervisor.problems` has them."""
    lags = {"inbox": 0.0, "outbox": 0.0}
    for queue in queues:
        if queue.channel == status.name and queue.state != "dead":
            lags[queue.queue] = max(lags[queue.queue], queue.oldest_s)
    return ChannelHealth(
        name=status.name,
        kind=status.kind,
        state=status.state,
        since=status.since,
        last_exchange_at=status.last_exchange_at,
        connections=status.connections,
        error="; ".join(problems) or None,
        inbox_lag_s=lags["inbox"],
        outbox_lag_s=lags["outbox"],
    )


def verdict(
    *,
    channels: Sequence[ChannelStatus],
    must_act: Sequence[str],
    troubles: Sequence[str],
    is_started: bool,
) -> Verdict:
    """The one word for a load balancer: a gateway with a channel that is down still serves the others.

    Args:
        must_act: what keeps it from working; nobody but an operator can mend it.
        troubles: what works badly.
    """
    if not is_started:
        return "starting"
    down = [channel for channel in channels if channel.state in _DOWN]
    if must_act or (down and len(down) == len(channels)):
        return "failing"
    return "degraded" if down or troubles else "ok"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
