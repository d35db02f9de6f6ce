"""Takes a person out of a gateway: memory, database, traces, identity map. Copies of these are deleted.

The tombstone is durable before anything is touched, and each step may be done twice. So an erasure that was broken off
is done again as a whole at the next start, until the database itself says that it has gone through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from gateway.config.memory_kinds import DATABASE_KIND, TRACES_KIND
from gateway.domain.tombstones import Tombstone, Tombstones
from gateway.files.home import EXPORTS_NAME
from gateway.memory.stored.memory import StoredMemory
from gateway.ops.privacy.files import (
    erase_earlier_memories,
    remove_copies,
    remove_exports,
    remove_traces_of_chats,
    remove_workspaces,
)
from gateway.ops.privacy.memory import PersonalMemory, owners_of
from gateway.ops.privacy.people import directories_of_users, ids_of, known_user_ids, named
from gateway.people.identity.identities import Identities
from gateway.sandbox.workspace import Workspaces
from gateway.store import erasure, gathering
from gateway.store.accounts import settle
from gateway.store.blobs import SqlBlobs
from gateway.store.engine import Connection
from gateway.store.gathering import Person
from gateway.store.stores import Stores
from gateway.traces.documents import TraceDocuments
from gateway.traces.erasure import erase_person, owner_ids
from gateway.traces.trace_store import TraceStore, existing_traces

T = TypeVar("T")
Work = Callable[[Connection], T]
Run = Callable[[Work[Any]], Awaitable[Any]]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """Erases people from one data directory.

    Attributes:
        store: the directory's database, open. No turn of the erased people may run.
        memory: open, where it is one that must be opened.
        kinds: of the channels, by name.
        workspaces: where they are not below `home`; None: they are.
        trace_store: the directory's traces, where they are open; else they are opened for the time being.
        on_step: told the name of every step, before it begins.
    """

    home: Path
    store: Stores
    identities: Identities
    tombstones: Tombstones
    memory: PersonalMemory
    kinds: Mapping[str, str]
    workspaces: Workspaces | None = None
    trace_store: TraceStore | None = None
    on_step: Callable[[str], None] = field(default=lambda _step: None)

    async def schedule(self, user_id: str) -> Tombstone:
        """Decide that a user is to be erased, durably, with all users that were linked to them.

        Args:
            user_id: or an account, `kind:id`, that is no user's.

        Raises:
            FileError, StoreUnavailable: it could not be written; nothing will be erased.
        """
        ids = await self.store.engine.read(lambda connection: ids_of(connection, user_id))
        keys = [account.key for each in ids for account in await self.identities.accounts_of(each)]
        tombstone = Tombstone.of({*ids, *keys})
        await self.tombstones.add([tombstone])
        await self.store.engine.write(partial(erasure.end_requests, keys=keys), alone=("links",))
        await self.store.engine.write(partial(erasure.end_keys, user_ids=ids), alone=())
        return tombstone

    async def due(self) -> Sequence[Tombstone]:
        """The erasures that this directory's database has not gone through."""
        tombstones = await self.tombstones.all()
        applied = await self.store.engine.read(erasure.applied_erasures) if tombstones else frozenset()
        return [each for each in tombstones if each.id not in applied]

    async def whom(self, tombstone: Tombstone) -> Person:
        """The ids and accounts that the tombstone means, as far as they are still in the directory."""
        find = partial(
            named,
            tombstone=tombstone,
            accounts=[account for user in await self.identities.users() for account in user.accounts],
            user_ids=await self._owners(),
            kinds=self.kinds,
        )
        return await self.store.engine.read(find)

    async def erase(self, tombstone: Tombstone) -> None:
        """Do all of it.

        Raises:
            EthosError, OSError: something could not be done now; what is left is done when this is called again.
        """
        person = await self.whom(tombstone)
        await self.store.engine.write(partial(settle, user_ids=person.user_ids), alone=())
        database = self.store.engine
        sessions = await database.read(partial(gathering.sessions_of, user_ids=person.user_ids))
        # While the database still says what is whose.
        await self._erase_memory(person)
        self.on_step("traces")
        await self._erase_traces(person)
        self.on_step("chats")
        places = await database.write_long(partial(gathering.places_of, person=person), alone=())
        await asyncio.to_thread(remove_traces_of_chats, self.home, person.keys, places)
        self.on_step("copies")
        for copy in await asyncio.to_thread(remove_copies, self.home):
            _log.warning("copy_deleted", copy=copy, erasure=tombstone.id)
        self.on_step("database")
        await database.write_long(partial(erasure.erase, person=person, sessions=sessions), alone=erasure.ALONE)
        self.on_step("compact")
        await database.compact()
        self.on_step("identities")
        await self.identities.erase(person.user_ids)
        self.on_step("noted")
        await self.store.engine.write(partial(erasure.note_applied, erasure_id=tombstone.id), alone=())
        _log.info("person_erased", erasure=tombstone.id)

    async def returned(self) -> Collection[str]:
        """The ids of users that were erased and of whom something is there again; raises as `erase`."""
        tombstones = await self.tombstones.all()
        if not tombstones:
            return frozenset()
        applied = await self.store.engine.read(erasure.applied_erasures)
        known = await self.store.engine.read(known_user_ids)
        there = {*known, *await self._owners(), *await self.memory.owners()}

        def gone() -> Collection[str]:
            return frozenset(name for each in tombstones if each.id in applied for name in each.names(there))

        return await asyncio.to_thread(gone)  # a digest of each id for each tombstone

    async def sweep(self, user_ids: Collection[str], sessions: Collection[str]) -> None:
        """Take out what was written under the ids of erased users since; their accounts may be another user's by now.

        Args:
            sessions: that they touched; raises as `erase`.
        """
        person = gathering.only(user_ids)
        await self._erase_memory(person)
        await self._erase_traces(person)
        work = partial(erasure.erase, person=person, sessions=sessions)
        await self.store.engine.write_long(work, alone=erasure.ALONE)
        await self.identities.erase(user_ids)

    async def _erase_memory(self, person: Person) -> None:
        """The memory that is asked now comes last, because it may forget what is whose, too."""
        self.on_step("files")
        lines = await self.store.engine.write_long(partial(erasure.lines_added_by, person=person), alone=())
        await erase_earlier_memories(self.home, self.memory.kind, person.user_ids, lines, self.store.journal)
        if self.memory.kind != DATABASE_KIND:
            await StoredMemory(self.store.documents).erase(person.user_ids, lines)
        if self.memory.kind != TRACES_KIND:
            async with self._opened_traces() as trace_store:
                if trace_store is not None:
                    await StoredMemory(TraceDocuments(trace_store)).erase(person.user_ids, lines)
        if self.workspaces is not None:
            await asyncio.to_thread(remove_workspaces, self.workspaces, person.user_ids)
        for user_id in person.user_ids:
            await asyncio.to_thread(remove_exports, self.home, user_id)
            await SqlBlobs(self.store.engine).remove_all(f"{EXPORTS_NAME}/{user_id}/")
        self.on_step("memory")
        await self.memory.erase(person.user_ids, lines)

    async def _erase_traces(self, person: Person) -> None:
        threads = await self.store.engine.read(partial(gathering.own_sessions, user_ids=person.user_ids))
        async with self._opened_traces() as trace_store:
            if trace_store is not None:
                await erase_person(trace_store, user_ids=person.user_ids, session_ids=threads)

    async def _owners(self) -> Collection[str]:
        """Who has directories, documents or traces; mostly other tables name them, too."""
        async with self._opened_traces() as trace_store:
            of_traces = () if trace_store is None else await trace_store.database.read(owner_ids)
        of_documents = owners_of(await self.store.documents.keys())
        directories = await asyncio.to_thread(directories_of_users, self.home)
        if self.workspaces is not None:
            directories = [*directories, *await asyncio.to_thread(directories_of_users, self.workspaces.place)]
        return {*directories, *of_traces, *of_documents}

    @asynccontextmanager
    async def _opened_traces(self) -> AsyncGenerator[TraceStore | None]:
        if self.trace_store is not None:
            yield self.trace_store
            return
        async with existing_traces(self.home, self.store.engine) as trace_store:
            yield trace_store
