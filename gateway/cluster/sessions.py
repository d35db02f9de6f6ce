"""Sessions that are met in several conversations: one turn at a time is in each, over all workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol

from gateway.cluster.leases import Leases
from gateway.errors import SessionBusy, StoreUnavailable


class HeldSessions(Protocol):
    """Keeps the turns of other workers out of a session."""

    def held(self, key: str) -> AbstractAsyncContextManager[None]:
        """Around a turn in the session of a key; for one turn of this worker at a time.

        Raises:
            SessionBusy: another worker's turn is in it.
            StoreUnavailable: it is not known whose it is; or it was lost in the middle, and the turn was cancelled.
        """


class OwnSessions:
    """The only worker has all."""

    def held(self, key: str) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 (all are its own)
        """At once."""
        return nullcontext()


class LeasedSessions:
    """Those of one worker among others, by leases `session:KEY`."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    @asynccontextmanager
    async def held(self, key: str) -> AsyncGenerator[None]:
        """While its lease is good."""
        held = await self._leases.take(f"session:{key}")
        if held is None:
            raise SessionBusy("another worker answers in this session now")
        limit = asyncio.timeout(None)

        async def end() -> None:
            await held.lost()
            limit.reschedule(0)

        losing: asyncio.Task[None] | None = None
        try:
            async with limit:
                losing = asyncio.create_task(end())
                yield
        except TimeoutError as error:
            if limit.expired():
                raise StoreUnavailable("the lease of the session was lost; the turn runs again") from error
            raise
        finally:
            if losing is not None:
                losing.cancel()
            await self._leases.give_back(held.name, held.epoch)
