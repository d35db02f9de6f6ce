"""The gateway itself: how it is, what was spent, what it was told."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from gateway.sdk.models.schema import Wire


class Channel(Wire):
    """A configured connection to a platform, and what waits for it.

    Attributes:
        error: why it is not up, or what does not work although it is, for people.
        inbox_lag_s: age of the oldest message without an answer.
        outbox_lag_s: age of the oldest answer that the platform does not have yet.
    """

    name: str
    kind: str
    state: Literal["starting", "up", "down", "auth_failed", "stopped"]
    since: datetime
    last_exchange_at: datetime | None
    connections: int
    error: str | None
    inbox_lag_s: float
    outbox_lag_s: float


class Queue(Wire):
    """The rows of one queue, one channel and one state."""

    queue: Literal["inbox", "outbox"]
    channel: str
    state: str
    messages: int
    oldest_s: float


class Model(Wire):
    """A model that was asked since the start."""

    name: str
    state: Literal["up", "down"]
    since: datetime
    last_answer_at: datetime | None
    error: str | None


class Health(Wire):
    """A picture of the running gateway.

    Attributes:
        problems: for people, one line each, with what to do.
    """

    status: Literal["ok", "starting", "degraded", "failing"]
    is_ready: bool
    version: str
    started_at: datetime
    channels: tuple[Channel, ...]
    queues: tuple[Queue, ...]
    models: tuple[Model, ...]
    store_problem: str | None
    disk_free_bytes: int | None
    turns_running: int
    conversations_waiting: int
    conversations_parked: int
    memory_late: int
    memory_journal: int
    problems: tuple[str, ...]


class UsageRow(Wire):
    """What one person used of one personality and one model in one day; `costUsd` counts the calls with a price."""

    day: date
    user: str
    personality: str
    model: str
    turns: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class Usage(Wire):
    """What was spent since a day, the newest day first; days as the budgets' time zone has them."""

    since: date
    time_zone: str
    rows: tuple[UsageRow, ...]


class Settings(Wire):
    """The configuration in force, by the keys of the file. In the place of a secret stands `**********`."""

    values: dict[str, Any]
