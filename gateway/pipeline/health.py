"""What the gateway says of itself, for `/health`, `/metrics`, `ethos status` and `ethos doctor`."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gateway import __version__
from gateway.agent.model_states import ModelStates
from gateway.domain.channels import Channels, ChannelState, ChannelStatus
from gateway.errors import StoreError
from gateway.memory.sync import MemorySync
from gateway.people.identity.identities import Identities
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.queues import InboxStore, LanesDue, Parked
from gateway.pipeline.supervisor import Supervisor
from gateway.sdk.models.system import (
    ChannelHealth,
    Health,
    MemoryHealth,
    ModelHealth,
    QueueHealth,
    ServerHealth,
    Verdict,
)

# Less than this, and writing will soon fail.
LITTLE_DISK_BYTES = 64 * 1024 * 1024

T = TypeVar("T")
Seen = TypeVar("Seen", ChannelHealth, ModelHealth, MemoryHealth)
# A caller has an answer by then, also while the disk hangs.
PATIENCE_S = 5.0
_DOWN: tuple[ChannelState, ...] = ("down", "auth_failed")


class StoreFacts(Protocol):
    """What the store knows of itself."""

    async def problem(self) -> str | None:
        """Why nothing can be committed now; None where it can."""

    async def backlog(self) -> Sequence[QueueHealth]:
        """Unfinished rows and dead letters of both queues."""

    async def lanes(self) -> LanesDue:
        """Conversations that could be answered now, and that nobody answers."""

    async def late_schedules(self) -> int:
        """Schedules that have been due for longer than `ON_TIME`, and were not taken up."""

    async def waiting_approvals(self) -> int:
        """Calls of tools that wait for a yes."""

    async def unsettled_turns(self) -> int:
        """Turns whose memory updates stand in the journal only."""


class Reloads(Protocol):
    """What became of the last change of the configuration, and the secrets in it."""

    @property
    def problems(self) -> Sequence[str]:
        """One line each, for people."""

    def hide(self, text: str) -> str:
        """A text for people without the secrets of the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What calls of tools need besides; see `Health`."""

    servers: Sequence[ServerHealth] = ()
    sandbox_tier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What has to be asked for, and may not come."""

    store_problem: str | None = None
    queues: Sequence[QueueHealth] = ()
    free_bytes: int | None = None
    identity_problems: Sequence[str] = ()
    lanes: LanesDue = field(default_factory=LanesDue)
    parked: int = 0
    workers: Sequence[str] = ()
    memory_journal: int = 0
    skills: Sequence[str] = ()
    schedules_late: int = 0
    approvals_waiting: int = 0


class Checkup:
    """Asks all parts when it is called, and only then. Calls at the same time share one answer."""

    def __init__(
        self,
        *,
        home: Path,
        store: StoreFacts,
        channels: Channels,
        supervisor: Supervisor,
        dispatcher: Dispatcher,
        outbox: Outbox,
        inbox: InboxStore,
        memory: MemorySync,
        models: ModelStates,
        identities: Identities,
        reloading: Reloads,
        left_out: Sequence[str],
        started_at: datetime,
        others: Callable[[], Sequence[str]] = lambda: (),
        skills: Callable[[], Awaitable[Sequence[str]]] | None = None,
        has_clock: bool = True,
        abilities: Callable[[], Abilities] = Abilities,
    ) -> None:
        """Lines for people are told with the rest.

        Args:
            left_out: what the configuration names and cannot be used here.
            others: gives a line for each server of tools that is down, and for what tells nobody by itself.
            skills: gives a line for each skill that the agent does not have.
            has_clock: schedules are switched on, so that one that is late is a trouble.
        """
        self._home = home
        self._store = store
        self._channels = channels
        self._supervisor = supervisor
        self._dispatcher = dispatcher
        self._outbox = outbox
        self._inbox = inbox
        self._memory = memory
        self._models = models
        self._identities = identities
        self._reloading = reloading
        self._left_out = left_out
        self._started_at = started_at
        self._others = others
        self._skills = skills or _none
        self._has_clock = has_clock
        self._abilities = abilities
        self._running: asyncio.Task[_Facts] | None = None
        self.is_draining = False  # the gateway ends: it takes nothing more
        self.differences: Callable[[], Awaitable[Sequence[str]]] = _none
        """In what the workers differ that share the database, one line each, for people."""

    async def health(self) -> Health:
        """How the gateway is, now. Takes no longer than `PATIENCE_S`, and says so where the disk does not answer."""
        if self._running is None:  # anybody may ask; so many at once cost no more than one
            self._running = asyncio.create_task(self._ask(), name="checkup")
            self._running.add_done_callback(self._is_done)
        asking = self._running
        await asyncio.wait([asking], timeout=PATIENCE_S)
        if asking.done():
            return self._seen(asking.result())
        hanging = f"the database and the disk under {self._home} have not answered for {PATIENCE_S:g} s"
        return self._seen(_Facts(store_problem=hanging))

    def _is_done(self, task: asyncio.Task[_Facts]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # the caller that waited has it

    async def _ask(self) -> _Facts:
        nothing: Sequence[Parked] = ()
        return _Facts(
            store_problem=await self._store.problem(),
            queues=await _or(self._store.backlog, ()),
            free_bytes=await asyncio.to_thread(_free_bytes, self._home),
            identity_problems=await self._identities.problems(),
            lanes=await _or(self._store.lanes, LanesDue()),
            parked=len({row.conversation for row in await _or(self._inbox.parked, nothing)}),
            workers=await _or(self.differences, ()),
            memory_journal=await _or(self._store.unsettled_turns, 0),
            skills=await self._skills(),
            schedules_late=await _or(self._store.late_schedules, 0) if self._has_clock else 0,
            approvals_waiting=await _or(self._store.waiting_approvals, 0),
        )

    def _seen(self, facts: _Facts) -> Health:
        """Make the picture. An error may quote what a library said, and with it a secret; so each is looked through."""
        hide = self._reloading.hide
        channels = self._channels.statuses
        seen = [channel_health(one, facts.queues, self._channels.problems(one.name)) for one in channels]
        impaired = [f"{channel.name}: {channel.error}" for channel in seen if channel.error]
        must_act = [*([facts.store_problem] if facts.store_problem else []), *facts.identity_problems]
        memory = memory_health(self._memory, facts.memory_journal)
        troubles = self._troubles(facts, memory)
        is_started, abilities = self._supervisor.all_tried.is_set(), self._abilities()
        told = (*must_act, *impaired, *troubles, *self._left_out, *facts.skills, *facts.workers)
        return Health(
            status=verdict(
                channels=channels, must_act=must_act, troubles=[*troubles, *impaired], is_started=is_started
            ),
            is_ready=is_started and facts.store_problem is None and not self.is_draining,
            version=__version__,
            pid=os.getpid(),
            started_at=self._started_at,
            channels=tuple(_without_secrets(channel, hide) for channel in seen),
            queues=tuple(facts.queues),
            models=tuple(_shown(model, hide) for model in self._models.statuses),
            memory=_without_secrets(memory, hide),
            store_problem=facts.store_problem and hide(facts.store_problem),
            disk_free_bytes=facts.free_bytes,
            turns_running=self._dispatcher.running,
            conversations_waiting=facts.lanes.due,
            oldest_waiting_s=facts.lanes.oldest_s,
            conversations_parked=facts.parked,
            schedules_late=facts.schedules_late,
            approvals_waiting=facts.approvals_waiting,
            servers=tuple(abilities.servers),
            sandbox_tier=abilities.sandbox_tier,
            memory_late=memory.late_turns,
            memory_journal=facts.memory_journal,
            problems=tuple(map(hide, (*told, *self._reloading.problems))),
        )

    def _troubles(self, facts: _Facts, memory: MemoryHealth) -> list[str]:
        """What works badly, for people."""
        found = [
            f"the model {model.name} has not answered since {model.since:%Y-%m-%d %H:%M} UTC: {model.error}"
            for model in self._models.statuses
            if model.state == "down"
        ]
        free_bytes = facts.free_bytes
        if free_bytes is not None and free_bytes < LITTLE_DISK_BYTES:
            found.append(f"only {free_bytes / 1024 / 1024:.0f} MiB are free where {self._home} is; make room")
        found += [*self._outbox.troubles, *self._others()]
        if memory.state == "down":
            since = f"{memory.since:%Y-%m-%d %H:%M} UTC"
            found.append(f"the memory ({memory.kind}) cannot be used since {since}: {memory.error}")
        elif memory.error is not None:
            found.append(f"the memory ({memory.kind}): {memory.error}")
        if facts.schedules_late:
            schedules = "1 schedule is" if facts.schedules_late == 1 else f"{facts.schedules_late} schedules are"
            found.append(f"{schedules} due and not taken up for minutes; the log says why: `schedules_late`")
        if memory.late_turns:
            turns = "1 turn" if memory.late_turns == 1 else f"{memory.late_turns} turns"
            found.append(f"the memory updates of {turns} could not be written yet")
        return found


async def _none() -> Sequence[str]:
    return ()


def _without_secrets(part: Seen, hide: Callable[[str], str]) -> Seen:
    """The same, with an error that can be shown."""
    return part if part.error is None else part.model_copy(update={"error": hide(part.error)})


def _shown(model: ModelHealth, hide: Callable[[str], str]) -> ModelHealth:
    """The same, with reasons that can be shown."""
    model = _without_secrets(model, hide)
    return model if model.unthought is None else model.model_copy(update={"unthought": hide(model.unthought)})


async def _or(ask: Callable[[], Awaitable[T]], otherwise: T) -> T:
    try:
        return await ask()
    except StoreError:  # `store_problem` says why
        return otherwise


def _free_bytes(home: Path) -> int | None:
    try:
        return shutil.disk_usage(home).free
    except OSError:
        return None


def as_json(health: Health) -> dict[str, Any]:
    """As a JSON object, as `/health` and `ethos status` show it; times in ISO 8601."""
    return {key: _plain(value) for key, value in health.model_dump(by_alias=False).items()}


def channel_health(status: ChannelStatus, queues: Sequence[QueueHealth], problems: Sequence[str] = ()) -> ChannelHealth:
    """What the supervisor and the queues know of one channel; `problems` as `Channels.problems` has them."""
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


def memory_health(memory: MemorySync, in_journal: int) -> MemoryHealth:
    """How the memory is; while it is away, all that is in the journal is late."""
    availability = memory.availability
    return MemoryHealth(
        kind=memory.kind,
        state=availability.state,
        since=availability.since,
        error="; ".join(memory.problems) or None,
        late_turns=max(memory.late, 0 if availability.is_up else in_journal),
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
        must_act: what keeps it from working; only an operator can correct it.
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
