"""Takes away what other workers still wrote about erased people: they hear late that a turn is not theirs any more.

A turn, a summary or a fact that another worker was at may leave rows behind the erasure, for as long as that one was
paused, and nothing bounds that. So the person's ids are looked for once more soon, and each night for ever.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection
from functools import partial

import structlog

from gateway.errors import EthosError
from gateway.ops.privacy.erasing import Eraser
from gateway.store.gathering import sessions_of

LATE_S = 60.0
"""A claim is missed by its worker, and a statement is over, long before that."""
FAULTS = (EthosError, OSError, sqlite3.Error)
"""What an erasure meets, and what another time may not be there."""

_log = structlog.get_logger(__name__)


class Sweeping:
    """One for each worker."""

    def __init__(self, eraser: Callable[[], Eraser]) -> None:
        """`eraser` gives what erases now."""
        self._eraser = eraser
        self._erased: asyncio.Queue[tuple[float, Collection[str], Collection[str]]] = asyncio.Queue()

    def later(self, user_ids: Collection[str], sessions: Collection[str]) -> None:
        """Look again in `LATE_S` for users that were erased, who had touched these sessions."""
        self._erased.put_nowait((asyncio.get_running_loop().time() + LATE_S, user_ids, sessions))

    async def run(self) -> None:
        """Do so until cancelled."""
        while True:
            at_s, user_ids, sessions = await self._erased.get()
            await asyncio.sleep(at_s - asyncio.get_running_loop().time())
            try:
                await self._eraser().sweep(user_ids, sessions)
            except FAULTS as error:  # a night does it
                _log.warning("not_swept", error=str(error))

    async def returned(self) -> None:
        """Look for all whom somebody has ever erased; raises as `Eraser.erase`."""
        eraser = self._eraser()
        user_ids = await eraser.returned()
        if user_ids:
            find = partial(sessions_of, user_ids=user_ids)
            await eraser.sweep(user_ids, await eraser.store.engine.read(find))
