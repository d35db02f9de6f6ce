"""What the gateway says of itself: the same facts for `/health`, `/metrics`, `ethos status` and `ethos doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from gateway.agent.model_states import ModelStatus
from gateway.pipeline.supervisor import ChannelState, ChannelStatus

Verdict = Literal["ok", "starting", "degraded", "failing"]
# Less than this, and writing will soon fail.
LITTLE_DISK_BYTES = 64 * 1024 * 1024
_DOWN: tuple[ChannelState, ...] = ("down", "auth_failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    """The rows of one queue, one channel and one state.

    Attributes:
        oldest_s: age of the oldest: for what is unfinished, how far the gateway is behind.
    """

    queue: Literal["inbox", "outbox"]
    channel: str
    state: str
    messages: int
    oldest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """A channel, and what waits for it.

    Attributes:
        since: of the state.
        last_exchange_at: of the last message accepted or sent.
        connections: how often it was connected since the start.
        error: why it is not up, or what does not work although it is, for people.
        inbox_lag_s: age of the oldest message without an answer; 0 where there is none.
        outbox_lag_s: age of the oldest answer that its platform does not have yet.
    """

    name: str
    kind: str
    state: ChannelState
    since: datetime
    last_exchange_at: datetime | None
    connections: int
    error: str | None
    inbox_lag_s: float = 0.0
    outbox_lag_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A picture of the running gateway.

    Attributes:
        status: `failing`: nothing gets in or out, or an operator must act; `degraded`: a part of it does not work;
            `starting` until every channel was tried once.
        is_ready: whether it takes messages.
        store_problem: why nothing can be committed; None where it can.
        disk_free_bytes: where the data directory is; None where it could not be asked.
        queues: unfinished rows and dead letters; empty where the store cannot be read.
        models: those that were asked since the start.
        memory_late: turns whose memory updates could not be applied yet, and are tried again.
        memory_journal: turns whose updates stand in the journal only, those under way included.
        problems: for people, one line each.
    """

    status: Verdict
    is_ready: bool
    version: str
    pid: int
    started_at: datetime
    channels: Sequence[ChannelHealth]
    queues: Sequence[QueueHealth]
    models: Sequence[ModelStatus]
    store_problem: str | None
    disk_free_bytes: int | None
    turns_running: int
    conversations_waiting: int
    conversations_parked: int
    memory_late: int
    memory_journal: int
    problems: Sequence[str] = field(default=())

    def as_json(self) -> Mapping[str, Any]:
        """As a JSON object; times in ISO 8601."""
        return {key: _plain(value) for key, value in asdict(self).items()}


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
