"""The gateway: health, usage, configuration."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from pydantic import Field, StrictBool

from gateway.sdk.models.schema import ApiModel, RequestBody

Verdict = Literal["ok", "starting", "degraded", "failing"]


class ChannelHealth(ApiModel):
    """A channel, and what waits for it."""

    name: str = Field(description="Name of the channel.", examples=["web"])
    kind: str = Field(description="Kind of its adapter.")
    state: Literal["starting", "up", "down", "auth_failed", "stopped", "elsewhere"] = Field(
        description="Its state; `elsewhere`: another worker has it."
    )
    since: datetime = Field(description="When the state began.")
    last_exchange_at: datetime | None = Field(description="When the last message was accepted or sent.")
    connections: int = Field(description="How often it connected since the start.")
    error: str | None = Field(description="Why it is not up, or what does not work although it is, for people.")
    inbox_lag_s: float = Field(default=0.0, description="Age of the oldest message without an answer.")
    outbox_lag_s: float = Field(default=0.0, description="Age of the oldest answer that was not delivered yet.")


class QueueHealth(ApiModel):
    """The rows of one queue, one channel and one state."""

    queue: Literal["inbox", "outbox"] = Field(description="The queue.")
    channel: str = Field(description="The channel.")
    state: str = Field(description="The state.")
    messages: int = Field(description="Number of rows.")
    oldest_s: float = Field(description="Age of the oldest row.")


class ModelHealth(ApiModel):
    """A model that was asked since the start."""

    name: str = Field(description="Its name in the configuration.")
    state: Literal["up", "down"] = Field(description="Whether its last call succeeded.")
    since: datetime = Field(description="When the state began.")
    last_answer_at: datetime | None = Field(description="When it answered last.")
    error: str | None = Field(default=None, description="Why the last call failed.")
    unthought: str | None = Field(default=None, description="Why it did not think as it was to when it answered last.")


class MemoryHealth(ApiModel):
    """The memory that turns read and write."""

    kind: str = Field(description="Kind of its provider.", examples=["markdown"])
    state: Literal["up", "down"] = Field(description="Whether it can be read; while it is down, turns run without it.")
    since: datetime = Field(description="When the state began.")
    error: str | None = Field(default=None, description="Why it is down, or what does not work although it is up.")
    late_turns: int = Field(default=0, description="Turns whose memory updates wait.")


class WorkerHealth(ApiModel):
    """A process that serves from the database."""

    id: str = Field(description="Random, another one for each start.")
    name: str = Field(description="Its name.", examples=["ethos-5d9c"])
    version: str = Field(description="Version of the gateway.", examples=["0.1.0"])
    config_hash: str = Field(description="The same for workers with the same configuration.")
    roles: tuple[str, ...] = Field(description="Some of `channels`, `turns` and `web`.")
    state: Literal["serving", "draining", "gone"] = Field(
        description="`draining`: it takes nothing more; `gone`: it has been silent for too long."
    )
    started_at: datetime = Field(description="When it started.")
    silent_s: float = Field(description="Seconds since its last sign of life.")
    turns: int = Field(description="Turns that ran there at that time.")
    channels: tuple[str, ...] = Field(description="Channels that it has.")


Level = Literal["problem", "warning", "note"]


class Repair(ApiModel):
    """How a finding can be repaired."""

    label: str = Field(description="Word for a button.", examples=["Try again"])
    does: str = Field(description="What it will do.")
    asks: bool = Field(description="It cannot be undone, so a person should confirm it first.")


class Finding(ApiModel):
    """One thing that an operator should know."""

    id: str = Field(description="Name of it, the same in each look.", examples=["dead-outbox-web"])
    level: Level = Field(
        description="A `problem` keeps something from working or exposes something, a `warning` does not yet, a `note` "
        "is how things are."
    )
    what: str = Field(description="What is the case.")
    advice: str = Field(description="What to do; empty for a note.")
    page: str = Field(description="Page of the dashboard where it is seen or done; empty where none is.")
    repair: Repair | None = Field(description="How it can be repaired; null where only a person can.")
    is_put_aside: bool = Field(description='An operator said "not now"; it counts again when it changes.')


class Findings(ApiModel):
    """What a look found."""

    items: tuple[Finding, ...] = Field(description="Problems first, then warnings and notes.")
    looked_at: datetime = Field(description="When the quick checks were made.")
    looked_at_all_at: datetime | None = Field(
        description="When the slow checks were made, too: the whole database, sandboxes, servers; null: not yet."
    )


class Repaired(ApiModel):
    """What a repair did."""

    did: str = Field(description="What was done.")
    is_gone: bool = Field(description="Whether a look right after it finds the thing no more.")


class PutAside(RequestBody):
    """Whether a finding counts."""

    is_put_aside: StrictBool = Field(default=True, description="Whether it counts no more until it changes.")


class ServerHealth(ApiModel):
    """A server of tools."""

    name: str = Field(description="Its name in the configuration.")
    state: Literal["idle", "connecting", "up", "resting"] = Field(
        description="`idle`: nobody has needed it yet, `resting`: it failed, and is tried again later."
    )


class Health(ApiModel):
    """The state of the running gateway."""

    status: Verdict = Field(
        description="`failing`: nothing gets in or out, or an operator must act; `degraded`: a part does not work."
    )
    is_ready: bool = Field(description="Whether it takes messages.")
    version: str = Field(description="Version of the gateway.", examples=["0.1.0"])
    pid: int = Field(description="Id of its process.")
    started_at: datetime = Field(description="When it started.")
    channels: tuple[ChannelHealth, ...] = Field(description="The channels.")
    queues: tuple[QueueHealth, ...] = Field(description="Unfinished rows and dead letters.")
    models: tuple[ModelHealth, ...] = Field(description="Models that were asked since the start.")
    memory: MemoryHealth = Field(description="The memory.")
    store_problem: str | None = Field(description="Why nothing can be committed; null where it can.")
    disk_free_bytes: int | None = Field(description="Free space of the data directory.")
    turns_running: int = Field(description="Turns that run now.")
    conversations_waiting: int = Field(description="Conversations whose turn has not begun.")
    oldest_waiting_s: float = Field(default=0.0, description="For how long the first of them has been waiting.")
    conversations_parked: int = Field(description="Conversations that wait for a model or a budget.")
    schedules_late: int = Field(default=0, description="Schedules that are due since minutes, and not taken up.")
    approvals_waiting: int = Field(default=0, description="Calls of tools that wait for a person's yes.")
    servers: tuple[ServerHealth, ...] = Field(default=(), description="The servers of tools.")
    sandbox_tier: str | None = Field(
        default=None, description="How programs are shut in; null where none was needed so far, or none works."
    )
    memory_late: int = Field(description="Turns whose memory updates failed and are retried.")
    memory_journal: int = Field(description="Turns whose memory updates are not in the files yet.")
    problems: tuple[str, ...] = Field(default=(), description="What is wrong and what to do, for people.")


class UsageRow(ApiModel):
    """Usage of one person, personality and model on one day."""

    day: date = Field(description="The day, in the time zone of the budgets.")
    user: str = Field(description="User id.")
    personality: str = Field(description="The personality.")
    model: str = Field(description="The model.")
    turns: int = Field(description="Number of turns.")
    calls: int = Field(description="Number of calls of the model.")
    input_tokens: int = Field(description="Tokens sent.")
    output_tokens: int = Field(description="Tokens received.")
    cached_tokens: int = Field(
        default=0, description="Of the tokens sent, those that providers read from their caches."
    )
    written_tokens: int = Field(default=0, description="Of the tokens sent, those that they wrote to their caches.")
    cached_share: float | None = Field(
        default=None, description="Part of the tokens sent that came from caches, 0 to 1; null where none did."
    )
    cost_usd: float = Field(description="Cost of the calls whose price is known, in US dollars.")


class Usage(ApiModel):
    """Usage since a day, the newest day first."""

    since: date = Field(description="The first day.")
    time_zone: str = Field(description="Time zone of the budgets, whose midnight begins a day.", examples=["UTC"])
    rows: tuple[UsageRow, ...] = Field(description="One row for each day, person, personality and model.")


class Settings(ApiModel):
    """The configuration in force."""

    values: dict[str, Any] = Field(description="By the keys of the file; a secret is shown as `**********`.")


class Reloaded(ApiModel):
    """What became of a reload of the configuration."""

    problems: tuple[str, ...] = Field(default=(), description="Why nothing was taken over; empty where all went well.")
    at_once: tuple[str, ...] = Field(default=(), description="Settings that were taken over.")
    at_restart: tuple[str, ...] = Field(default=(), description="Settings that changed and wait for a restart.")
    warnings: tuple[str, ...] = Field(default=(), description="What works and is not wise.")


class ForgetOld(RequestBody):
    """Delete what is older than `retention` in the configuration allows."""

    is_dry_run: StrictBool = Field(default=False, description="Only count what would be deleted.")


class Forgotten(ApiModel):
    """One kind of old data that was deleted, or would be."""

    kind: str = Field(description="Name of the setting, without `_days`.", examples=["messages"])
    what: str = Field(description="The same, for people.")
    days: float | None = Field(description="How long it is kept; null: for ever.")
    amount: int = Field(description="Number of rows, files or lines.")
