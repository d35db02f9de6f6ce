"""Jobs that one worker at a time does, such as what happens each night, under leases `job:NAME`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol

from gateway.cluster.leases import Held, Leases, while_held
from gateway.cluster.news import News, NoOthers

Job = Literal["retention", "erasure", "night", "memory", "links", "usage", "blobs", "schedules"]
"""Forgetting by age; erasures; consolidation; late updates of the memory; links that were broken off; what dead workers
had reserved; files and answers that expired; the clock of what is done at a time."""


class Jobs(Protocol):
    """Keeps jobs to one worker."""

    async def keep(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait until the job is this worker's, then do it; until it ends, or this is cancelled.

        Where it becomes another worker's meanwhile, `work` is cancelled, and begun again when it is this one's again.
        """

    async def once(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Do the job now, and then True; False: another worker does it, or it became another's before its end.

        Raises:
            StoreUnavailable: it is not known whether another does it.
        """


class OwnJobs:
    """The only worker does all."""

    async def keep(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> None:  # noqa: ARG002 (all are its own)
        """Do it."""
        await work()

    async def once(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:  # noqa: ARG002 (as above)
        """Do it."""
        await work()
        return True


class LeasedJobs:
    """Those of one worker among others."""

    def __init__(self, leases: Leases, news: News | None = None) -> None:
        self._leases = leases
        self._news = news or NoOthers()

    async def keep(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do it while the lease is held."""
        while True:
            held = await self._leases.wait_for(f"job:{job}")
            try:
                if await while_held(held, work()):
                    return
            finally:
                await self._give_back(held)

    async def once(self, job: Job, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Do it while the lease is held, if it can be had now."""
        held = await self._leases.take(f"job:{job}")
        if held is None:
            return False
        try:
            return await while_held(held, work())
        finally:
            await self._give_back(held)

    async def _give_back(self, held: Held) -> None:
        await self._leases.give_back(held.name, held.epoch)
        self._news.tell("released", lease=held.name)
