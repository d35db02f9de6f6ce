"""One worker among others: who it is, and the sign of life that it gives."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

import structlog

from gateway import __version__
from gateway.config import Config
from gateway.errors import StoreError, StoreUnavailable
from gateway.runtime.rhythm import until_next_moment

BEAT_S = 4.0
# A worker that has said nothing for so long is gone: what it held alone may be taken from it.
SILENT_S = 15.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that serves, as it says of itself.

    Attributes:
        id: random, another one for each start.
        name: for people.
        config_hash: of its configuration without secrets, and without what is of this worker alone.
        roles: some of `channels`, `turns` and `web`.
        turns: that run there now.
    """

    id: str
    name: str
    version: str = __version__
    config_hash: str = ""
    roles: tuple[str, ...] = ("channels", "turns", "web")
    turns: int = 0
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    is_draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWorker:
    """A worker as the others see it.

    Attributes:
        silent_s: since its last sign of life.
        holds: the names of its leases.
    """

    worker: Worker
    silent_s: float
    holds: tuple[str, ...]

    @property
    def is_gone(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.silent_s > SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is due for a worker.

    Attributes:
        has_lane: a conversation can be claimed, as far as one sees without a try.
        channels: those of the asked that have a reply to send, or one that a dead worker was sending on a channel that
            is everybody's.
    """

    has_lane: bool
    channels: Collection[str]


class WorkerStore(Protocol):
    """The workers of one database. Each method may raise StoreUnavailable."""

    async def beat(self, worker: Worker) -> None:
        """Take down what a worker says of itself, and that it lives."""

    async def leave(self, worker_id: str) -> None:
        """Forget a worker that has ended, and those that have been silent for an hour."""

    async def workers(self) -> Sequence[SeenWorker]:
        """All that are not forgotten, the oldest first."""

    async def work(self, worker_id: str, channels: Collection[str]) -> Work:
        """What is due for a worker that sends on these channels, in one question."""


def this_worker(config: Config) -> Worker:
    """A worker with an id of its own, named as the configuration says or as its machine is."""
    return Worker(
        id=secrets.token_hex(8),
        name=config.worker.name or socket.gethostname(),
        config_hash=config_hash(config),
        roles=config.worker.roles,
    )


def config_hash(config: Config) -> str:
    """Twelve hex characters that are the same for workers with the same configuration; secrets do not count."""
    values = config.model_dump(mode="json", exclude={"worker", "web", "log"})
    for name, channel in config.channels.items():
        values["channels"][name]["settings"] = repr(channel.settings)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


async def _nothing_to_check() -> None:
    return


def differences(workers: Sequence[SeenWorker]) -> Sequence[str]:
    """In what those that are not gone differ though they should not, one line each, for people."""
    living = [seen.worker for seen in workers if not seen.is_gone]
    of_each = {
        "configurations": [(worker.name, worker.config_hash) for worker in living],
        "versions": [(worker.name, worker.version) for worker in living],
    }
    return [
        f"the workers have different {what}: {', '.join(f'{name} {value}' for name, value in values)}"
        for what, values in of_each.items()
        if len({value for _, value in values}) > 1
    ]


class Beats:
    """Says every `BEAT_S` that this worker lives."""

    def __init__(
        self,
        store: WorkerStore,
        worker: Worker,
        now: Callable[[Worker], Worker],
        check: Callable[[], Awaitable[None]] = _nothing_to_check,
    ) -> None:
        """Nothing is said yet.

        Args:
            now: brings what the worker says of itself up to date.
            check: raises when this worker may not use the database any more.
        """
        self._check = check
        self._store = store
        self._now = now
        self.worker = worker
        self._is_heard = True

    async def run(self) -> None:
        """Give signs of life until cancelled; raises what `check` does."""
        while True:
            await self.beat()
            await until_next_moment(BEAT_S)

    async def beat(self) -> None:
        """Give one now, and check; where the store cannot be reached, the next one does."""
        self.worker = self._now(self.worker)
        try:
            await asyncio.gather(self._store.beat(self.worker), self._check())  # in one round trip
        except StoreUnavailable as error:
            if self._is_heard:
                _log.warning("worker_not_heard", error=str(error))
            self._is_heard = False
        else:
            self._is_heard = True

    async def drain(self) -> None:
        """Say that this worker takes nothing more."""
        self.worker = replace(self.worker, is_draining=True)
        await self.beat()

    async def leave(self) -> None:
        """Say that it has ended."""
        try:
            await self._store.leave(self.worker.id)
        except StoreError as error:  # its silence will say it
            _log.warning("worker_not_heard", error=str(error))
