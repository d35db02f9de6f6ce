"""What one of many workers does for all of them, besides what the parts of the gateway do on their own.

The only worker does it at its start, when whatever it finds is certainly a dead process's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from gateway.cluster.jobs import Job
from gateway.errors import EthosError
from gateway.runtime.rhythm import until_next_moment
from gateway.store.blobs import BATCH_PIECES, SqlBlobs
from gateway.store.leases import SqlLeases

if TYPE_CHECKING:
    from gateway.app.wiring import Composition

EVERY_S = 60.0
_EXPIRED_EVERY_S = 600.0  # nothing that has expired is used, so removing it can wait

_log = structlog.get_logger(__name__)


class Upkeep:
    """Of the database that many workers share."""

    def __init__(self, gateway: Composition) -> None:
        self._gateway = gateway
        self._blobs = SqlBlobs(gateway.store.engine)
        self._leases = SqlLeases(gateway.store.engine)

    async def run(self) -> None:
        """Take up what died with other workers, and remove what has expired, until cancelled."""
        gateway = self._gateway
        works: dict[Job, tuple[Callable[[], Awaitable[object]], float]] = {
            "memory": (self._look_for_late, EVERY_S),
            "links": (gateway.linking.job.recover, EVERY_S),
            "usage": (self.forgive, EVERY_S),
            "blobs": (self.expire, _EXPIRED_EVERY_S),
        }
        async with asyncio.TaskGroup() as tasks:
            for job, (work, every_s) in works.items():
                repeated = partial(_repeat, job, work, every_s)
                tasks.create_task(gateway.cluster.jobs.keep(job, repeated), name=f"job {job}")

    async def _look_for_late(self) -> None:
        self._gateway.memory.look_for_late()

    async def forgive(self) -> int:
        """End what dead workers had reserved for calls of models; how many calls."""
        return await self._gateway.meter.recover()

    async def expire(self) -> None:
        """Remove files and answers whose time is over, and leases of sessions that killed workers held."""
        while await self._blobs.remove_expired() == BATCH_PIECES:
            pass
        await self._gateway.idempotency.forget_old()
        await self._leases.forget_sessions()


async def _repeat(job: Job, work: Callable[[], Awaitable[object]], every_s: float) -> None:
    while True:
        again_s = every_s
        try:
            await work()
        except EthosError as error:
            again_s = EVERY_S
            _log.error("job_late", job=job, error=str(error), again_s=again_s)
        await until_next_moment(again_s)
