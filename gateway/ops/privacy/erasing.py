"""Takes a person out of a data directory: database, memory files, traces, identity map, and every copy of these.

The tombstone is durable before anything is touched, and each step may be done twice. So an erasure that was broken off
is done again as a whole at the next start, until the database itself says that it has gone through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from gateway.errors import EthosError
from gateway.files.home import DATABASE_NAME
from gateway.ops.backup.contents import REPLACED_PREFIX
from gateway.ops.backup.databases import functions_of
from gateway.ops.privacy.files import remove_traces_of_chats, remove_user, take_lines_out
from gateway.ops.privacy.people import directories_of_users, ids_of, named
from gateway.ops.privacy.tombstones import Tombstone, Tombstones
from gateway.people.identity import IdentityMap
from gateway.store import erasure
from gateway.store.database import connect
from gateway.store.erasure import Person
from gateway.store.sqlite import SqliteStore
from gateway.traces.erasure import erase_person, erase_traces, owner_ids
from gateway.traces.trace_store import BRAIN_NAME, Brain, open_brain

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Run = Callable[[Work[Any]], Awaitable[Any]]

_log = structlog.get_logger(__name__)


def _no_step(_step: str) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """Erases people from one data directory.

    Attributes:
        store: the directory's database, open. Nobody may be writing for those who are erased.
        kinds: of the channels, by name.
        brain: the directory's traces, where they are open; else they are opened for the time being.
        on_step: told the name of every step, before it begins.
    """

    home: Path
    store: SqliteStore
    identities: IdentityMap
    kinds: Mapping[str, str]
    brain: Brain | None = None
    on_step: Callable[[str], None] = field(default=_no_step)

    async def bury(self, user_id: str) -> Tombstone:
        """Decide that a user is to be erased, durably, with all users that were linked to them.

        Args:
            user_id: or an account, `kind:id`, that is no user's.

        Raises:
            FileError: it could not be written; nothing will be erased.
        """
        ids = await self.store.database.read(lambda connection: ids_of(connection, user_id))
        keys = [account.key for each in ids for account in await self.identities.accounts_of(each)]
        tombstone = Tombstone.of({*ids, *keys})
        await Tombstones(self.home).add([tombstone])
        await self.store.database.write(partial(erasure.end_requests, keys=keys))
        await self.store.database.write(partial(erasure.end_keys, user_ids=ids))
        return tombstone

    async def due(self) -> Sequence[Tombstone]:
        """The erasures that this directory's database has not gone through."""
        tombstones = await asyncio.to_thread(Tombstones(self.home).read)
        applied = await self.store.database.read(erasure.applied_erasures) if tombstones else frozenset()
        return [each for each in tombstones if each.id not in applied]

    async def whom(self, tombstone: Tombstone) -> Person:
        """Who is meant, as far as the directory still tells of them."""
        find = partial(
            named,
            tombstone=tombstone,
            accounts=[account for user in await self.identities.users() for account in user.accounts],
            user_ids=[*await asyncio.to_thread(directories_of_users, self.home), *await self._owners_of_traces()],
            kinds=self.kinds,
        )
        return await self.store.database.read(find)

    async def erase(self, tombstone: Tombstone) -> None:
        """Do all of it.

        Raises:
            EthosError, OSError: something could not be done now; what is left is done when this is called again.
        """
        person = await self.whom(tombstone)
        database = self.store.database
        run: Run = database.alone
        sessions = await database.read(partial(erasure.sessions_of, user_ids=person.user_ids))
        # While the database still says what is whose.
        await self._erase_files(self.home, person, run)
        self.on_step("traces")
        await self._erase_traces(person)
        self.on_step("chats")
        places = await run(_in_transaction(partial(erasure.places_of, person=person)))
        await asyncio.to_thread(remove_traces_of_chats, self.home, person.accounts, places)
        self.on_step("copies")
        await self._erase_copies(person, tombstone)
        self.on_step("database")
        await run(_in_transaction(partial(erasure.erase, person=person, sessions=sessions)))
        self.on_step("compact")
        await run(erasure.compact)
        self.on_step("identities")
        await self._erase_identities(self.home, self.identities, person)
        self.on_step("noted")
        await self.store.database.write(partial(erasure.note_applied, erasure_id=tombstone.id))
        _log.info("person_erased", erasure=tombstone.id)

    # ---- one data directory -----------------------------------------------------------------------------------------

    async def _erase_files(self, home: Path, person: Person, run: Run) -> None:
        """The shared memory files, while the journal still says what came from whom; then the person's own."""
        self.on_step("shared")
        lines = await run(_in_transaction(partial(erasure.brought_by, person=person)))
        for document, brought in lines.items():
            if brought:
                await take_lines_out(home, document, brought, await run(partial(_pending, document=document)))
        self.on_step("users")
        for user_id in person.user_ids:
            await asyncio.to_thread(remove_user, home, user_id)

    async def _erase_traces(self, person: Person) -> None:
        threads = await self.store.database.read(partial(erasure.own_sessions, user_ids=person.user_ids))
        async with self._opened_brain() as brain:
            if brain is not None:
                await erase_person(brain, user_ids=person.user_ids, session_ids=threads)

    async def _owners_of_traces(self) -> Collection[str]:
        async with self._opened_brain() as brain:
            return () if brain is None else await brain.database.read(owner_ids)

    @asynccontextmanager
    async def _opened_brain(self) -> AsyncGenerator[Brain | None]:
        path = self.home / BRAIN_NAME
        if self.brain is not None or not await asyncio.to_thread(path.exists):
            yield self.brain
            return
        async with await asyncio.to_thread(open_brain, path) as brain:
            yield brain

    async def _erase_identities(self, home: Path, identities: IdentityMap, person: Person) -> None:
        keys = {account.key for each in person.user_ids for account in await identities.accounts_of(each)}
        keys |= {f"{self.kinds[channel]}:{account}" for channel, account in person.accounts if channel in self.kinds}
        accounts = {key.partition(":")[2] for key in keys}
        if await asyncio.to_thread((home / "users").is_dir):
            await identities.erase(person.user_ids, {*person.user_ids, *keys, *accounts})

    # ---- copies -----------------------------------------------------------------------------------------------------

    async def _erase_copies(self, person: Person, tombstone: Tombstone) -> None:
        """The copies of databases from before an upgrade, and the directories that a restore put aside."""
        for name in (DATABASE_NAME, BRAIN_NAME):
            for copy in self.home.glob(f"{name}.before-*"):
                await self._erase_copy(copy, name, person)
        for old in self.home.glob(f"{REPLACED_PREFIX}*"):
            if old.is_dir() and not old.is_symlink():
                await self._erase_old_home(old, person, tombstone)

    async def _erase_copy(self, copy: Path, name: str, person: Person) -> None:
        """Where the person cannot be taken out of a copy, the copy goes."""
        try:
            await asyncio.to_thread(_clean_copy, copy, name, person)
        except (sqlite3.Error, EthosError) as error:
            _log.warning("copy_removed", file=copy.name, error=str(error))
            for path in (copy, *(copy.with_name(copy.name + end) for end in ("-wal", "-shm", "-journal"))):
                path.unlink(missing_ok=True)

    async def _erase_old_home(self, old: Path, person: Person, tombstone: Tombstone) -> None:
        identities = IdentityMap(old / "users" / "identity-map.json")
        accounts: list[Any] = []
        with contextlib.suppress(EthosError):
            accounts = [account for user in await identities.users() for account in user.accounts]
        database = old / DATABASE_NAME
        user_ids = await asyncio.to_thread(directories_of_users, old)
        theirs = person
        if await asyncio.to_thread(database.exists):
            find = partial(named, tombstone=tombstone, accounts=accounts, user_ids=user_ids, kinds=self.kinds)
            theirs = await asyncio.to_thread(_on_copy, database, DATABASE_NAME, find)

            async def run(work: Work[T]) -> T:
                return await asyncio.to_thread(_on_copy, database, DATABASE_NAME, work)

            await self._erase_files(old, theirs, run)
        for name in (DATABASE_NAME, BRAIN_NAME):
            for copy in await asyncio.to_thread(_beginning, old, name):
                if not copy.name.endswith(("-wal", "-shm", "-journal")):
                    await self._erase_copy(copy, name, theirs)
        for user_id in theirs.user_ids:
            await asyncio.to_thread(remove_user, old, user_id)
        await asyncio.to_thread(remove_traces_of_chats, old, theirs.accounts, ())
        await self._erase_identities(old, identities, theirs)


def _beginning(directory: Path, name: str) -> Sequence[Path]:
    return list(directory.glob(f"{name}*"))


def _in_transaction(work: Work[T]) -> Work[T]:
    def run(connection: sqlite3.Connection) -> T:
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    return run


def _pending(connection: sqlite3.Connection, *, document: str) -> set[tuple[str, int]]:
    sql = "SELECT turn_id, update_index FROM memory_journal WHERE document = ? AND outcome IS NULL"
    return {(row[0], row[1]) for row in connection.execute(sql, (document,))}


def _on_copy(path: Path, name: str, work: Work[T]) -> T:
    """Do work on a database that no gateway has open, which is one file again afterwards."""
    with contextlib.closing(connect(path, prepare=functions_of(name))) as connection:
        result = work(connection)
        connection.execute("PRAGMA journal_mode = DELETE")
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return result


def _clean_copy(path: Path, name: str, person: Person) -> None:
    def clean(connection: sqlite3.Connection) -> None:
        if name == BRAIN_NAME:
            _in_transaction(partial(erase_traces, user_ids=person.user_ids, session_ids=()))(connection)
        else:
            sessions = erasure.sessions_of(connection, person.user_ids)
            _in_transaction(partial(erasure.erase, person=person, sessions=sessions))(connection)
        erasure.compact(connection)

    _on_copy(path, name, clean)
