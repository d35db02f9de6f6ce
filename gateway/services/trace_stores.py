"""The trace memory as services reach it: the gateway's own, or one that is off and that its owner fills or empties."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.files.atomic import make_private_directory
from gateway.services.caller import Caller, TracesOff
from gateway.store.engine import Engine
from gateway.traces.trace_store import TRACES_NAME, PersonIds, TraceStore, open_trace_store, shared_trace_store


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStores:
    """Opens the trace memory.

    Attributes:
        home: the data directory.
        own: the gateway's; None where traces are off.
        engine: of the gateway's own database, which has the traces where many workers share it.
        person_ids: who is one person with whom, since accounts are linked.
    """

    home: Path
    own: TraceStore | None
    engine: Engine
    person_ids: PersonIds

    @asynccontextmanager
    async def opened(self, caller: Caller, *, new_in: Path | None = None) -> AsyncIterator[TraceStore]:
        """The trace store; where it is off the one of before, for the operator at the machine only.

        Args:
            caller: who asks.
            new_in: where one is made if there is none yet; None: none is made.

        Raises:
            TracesOff: it is off, and not for the caller, or there is none.
            StoreError: it cannot be used.
        """
        if self.own is not None:
            yield self.own
            return
        if self.engine.dialect.is_shared:
            if not caller.is_at_machine:
                raise TracesOff
            yield shared_trace_store(self.engine, person_ids=self.person_ids)
            return
        directory = self.home if (self.home / TRACES_NAME).exists() else new_in
        if directory is None or not caller.is_at_machine:
            raise TracesOff
        await asyncio.to_thread(make_private_directory, directory)
        path = directory / TRACES_NAME
        async with await asyncio.to_thread(open_trace_store, path, person_ids=self.person_ids) as trace_store:
            yield trace_store
