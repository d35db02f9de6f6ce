"""Jobs that one worker at a time does, such as what happens each night, under leases `job:NAME`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol

from gateway.cluster.leases import Leases, while_held

Job = Literal["retention", "erasure", "night", "memory", "usage", "blobs"]
"""Forgetting by age; erasures; consolidation; late updates of the memory; dead reservations; files that expired."""


class Jobs(Protocol):
    """Keeps jobs to one worker."""

    async def keep(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait until the job is this worker's, then do it; until it ends, or this is cancelled.

        Where it becomes another worker's meanwhile, `work` is cancelled, and begun again when it is this one's again.
        """


class OwnJobs:
    """The only worker does all."""

    async def keep(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> None:  # noqa: ARG002 (all are its own)
        """Do it."""
        await work()


class LeasedJobs:
    """Those of one worker among others."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    async def keep(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do it while the lease is held."""
        while True:
            held = await self._leases.wait_for(f"job:{job}")
            try:
                if await while_held(held, work()):
                    return
            finally:
                await self._leases.give_back(held.name, held.epoch)
