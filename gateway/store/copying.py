"""From any database to any other: all tables, in the order of their keys, checked at the end. May be cut anywhere.

Each batch is one commit with its place: how many rows of the table are there, and their digest. So the same call again
goes on where the last one ended. It first reads what was copied once more at the source: where that has changed since,
all is copied again. Both ends stand still, or the source is read in one snapshot, which is what a backup does.

How much is in memory does not depend on the size of a table: rows are read one by one, and a batch has so many bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from gateway.errors import StoreError, StoreMoved
from gateway.memory.rules import version
from gateway.memory.tokenizer import words_of
from gateway.runtime.failpoints import reach
from gateway.store.copy_state import CopyState, set_state, state_of
from gateway.store.engine import Connection, Work, snapshot
from gateway.store.search import RANKED, search_messages
from gateway.store.tables import Digest, End, Line, Table, count_of, digest_of, orphans_of

T = TypeVar("T")

BATCH_ROWS = 2_000
BATCH_CHARS = 2_000_000
PAGE = 500

_PLACES = "SELECT table_name, amount, digest FROM copy_progress"
_PLACE = "INSERT INTO copy_progress (table_name, amount, digest) VALUES (?, ?, ?) ON CONFLICT (table_name) DO NOTHING"
_PROGRESS = "UPDATE copy_progress SET amount = ?, digest = ? WHERE table_name = ? AND amount = ?"
_NEWEST = "SELECT id, text, user_id FROM messages WHERE role = 'user' ORDER BY id DESC LIMIT 50"
_PATHS = "SELECT path FROM documents WHERE modified_at IS NOT NULL ORDER BY path"
_DOCUMENT = "SELECT content, sha256 FROM documents WHERE path = ?"
_TURNS = "SELECT turn_id FROM inbox WHERE turn_id > ? ORDER BY turn_id LIMIT ?"

Told = Callable[[str, int], None]
"""Takes a table, and how many of its rows are at the target."""


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table that both ends have with the same rows; `digest` in hex."""

    name: str
    amount: int
    digest: str


class SourceChanged(StoreError):
    """What was copied before is not what the source has now."""


class Copying:
    """One copy, or the part of it that is left."""

    def __init__(self, source: End, target: End, *, told: Told) -> None:
        """Nothing is read yet. `told` is called from any thread."""
        self._source = source
        self._target = target
        self._told = told
        self._tables: Sequence[Table] = ()
        self._at_target: Mapping[str, Table] = {}
        self._digests: dict[str, Digest] = {}

    async def move(
        self, along: Callable[[], Awaitable[None]] | None = None, at_end: Work[None] | None = None
    ) -> Sequence[CheckedTable]:
        """Copy, verify, and mark the source: from then on the target is served in its place.

        Args:
            along: copies what belongs with the rows; may be called more than once.
            at_end: changes the target in the commit that opens it.

        Raises:
            StoreMoved: the source has gone elsewhere before.
            StoreError: the target has rows of its own, or one of the two cannot be used now; call again.
        """
        source = await self._source.engine.read(state_of)
        if source is not None and source.state == "moved":
            await self._check_unfinished(source)
        elif self._source.is_shared:
            await self._source.engine.write(partial(_leave, end=self._source, other=self._target.place))
        checked = await self._copy()
        if along is not None:
            await along()
        reach("copy.verified")
        await self._source.engine.write(partial(set_state, state="moved", other=self._target.place))
        reach("copy.moved")

        def arrive(connection: Connection) -> None:
            if at_end is not None:
                at_end(connection)
            set_state(connection, "arrived", self._source.place)

        await self._target.engine.write(arrive)
        return checked

    async def back_up(self) -> Sequence[CheckedTable]:
        """Copy what the source is at one moment, and verify; others may go on writing there.

        Raises:
            StoreError: the target has rows of its own, differs in the end, or one of the two cannot be used now.
        """
        checked = await self._copy()
        await self._target.engine.write(partial(set_state, state=None, other=""))
        return checked

    async def _copy(self) -> Sequence[CheckedTable]:
        """Copy and verify; the target stays closed."""
        await self._find_tables()
        await self._target.engine.write(self._begin)
        reach("copy.begun")
        loop = asyncio.get_running_loop()
        try:
            await self._source.engine.read(partial(self._read, loop))
        except SourceChanged:
            await self._target.engine.write(self._refill)
            reach("copy.refilled")
            await self._source.engine.read(partial(self._read, loop))
        await self._target.index()
        return await self._verified()

    # ---- before ------------------------------------------------------------------------------------------------------

    async def _check_unfinished(self, source: CopyState) -> None:
        """The last step of a move may be left."""
        target = await self._target.engine.read(state_of)
        if target is None or target.state != "arriving" or source.other != self._target.place:
            raise StoreMoved(f"{self._source.place} was moved to {source.other} before; there is nothing left to copy")

    async def _find_tables(self) -> None:
        here, there = await asyncio.gather(
            self._source.engine.read(self._source.tables), self._target.engine.read(self._target.tables)
        )
        self._tables, self._at_target = here, {table.name: table for table in there}
        columns = [{table.name: table.columns for table in tables} for tables in (here, there)]
        if columns[0] != columns[1]:
            differing = sorted(
                {name for one in columns for name in one if columns[0].get(name) != columns[1].get(name)}
            )
            raise StoreError(
                f"{self._source.place} and {self._target.place} have not the same tables ({', '.join(differing)}). "
                f"Bring both up to date with this program: `ethos store upgrade`."
            )

    def _begin(self, connection: Connection) -> None:
        found = state_of(connection)
        if found is not None and found.state != "arriving":
            raise StoreError(
                f"{self._target.place} holds the database that was copied from {found.other}, or that was moved "
                f"there ({found.state}). Name an empty database or another directory."
            )
        if found is None:
            for table in self._tables:
                if not table.is_of_one_row and count_of(connection, table):
                    raise StoreError(
                        f"{self._target.place} is not empty (`{table.name}` has rows): nothing was copied. Name an "
                        f"empty database or another directory."
                    )
            self._refill(connection)
        set_state(connection, "arriving", self._source.place)

    def _refill(self, connection: Connection) -> None:
        """Nothing is there yet, or any more."""
        self._target.clear(connection, [*self._at_target.values()])
        connection.execute("DELETE FROM copy_progress")
        for table in self._tables:
            connection.execute(_PLACE, (table.name, 0, Digest().value))

    # ---- rows, in the thread that reads the source -------------------------------------------------------------------

    def _read(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        with snapshot(connection):
            places = _ask(loop, self._target.engine.rows(_PLACES)).result()
            done = {row["table_name"]: Digest(row["amount"], bytes(row["digest"])) for row in places}
            for table in self._tables:
                self._digests[table.name] = self._copy_table(loop, connection, table, done.get(table.name, Digest()))
                if count_of(connection, table) != self._digests[table.name].amount:
                    raise StoreError(f"not all rows of `{table.name}` were read; is {self._source.place} damaged?")
            self._set_numbers(loop, connection)

    def _copy_table(
        self, loop: asyncio.AbstractEventLoop, connection: Connection, table: Table, done: Digest
    ) -> Digest:
        """Copy what the target does not have; the digest of all rows."""
        lines = self._source.lines(connection, table)
        digest = read_again(table, lines, done)
        self._told(table.name, digest.amount)
        writing: Future[None] | None = None
        for batch, reached in _batches(lines, digest):
            self._wait_for(writing, table, digest)
            work = partial(self._write, table=self._at_target[table.name], lines=batch, before=digest, reached=reached)
            writing = _ask(loop, self._target.engine.write(work, is_durable=False))
            digest = reached
        self._wait_for(writing, table, digest)
        return digest

    def _wait_for(self, writing: Future[None] | None, table: Table, written: Digest) -> None:
        if writing is not None:
            writing.result()
            reach("copy.batch")
            self._told(table.name, written.amount)

    def _write(
        self, connection: Connection, *, table: Table, lines: Sequence[Line], before: Digest, reached: Digest
    ) -> None:
        """Insert a batch with its place; once, if it is run again after a commit of which nothing was heard."""
        values = (reached.amount, reached.value, table.name, before.amount)
        if connection.execute(_PROGRESS, values).rowcount:
            self._target.put(connection, table, lines)

    def _set_numbers(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        numbers = [
            (there, self._source.last_number(connection, here))
            for here in self._tables
            if here.numbered and (there := self._at_target[here.name]).numbered
        ]

        def work(target: Connection) -> None:
            for table, number in numbers:
                self._target.set_last_number(target, table, max(number, self._target.last_number(target, table)))

        _ask(loop, self._target.engine.write(work)).result()

    # ---- afterwards --------------------------------------------------------------------------------------------------

    async def _verified(self) -> Sequence[CheckedTable]:
        checked = await self._target.engine.read(self._read_back)
        await self._check_search()
        return checked

    def _read_back(self, connection: Connection) -> Sequence[CheckedTable]:
        """Every row of the target."""
        checked = []
        with snapshot(connection):
            for table in self._at_target.values():
                found, wanted = digest_of(self._target, connection, table), self._digests[table.name]
                if found != wanted:
                    raise StoreError(
                        f"`{table.name}` of {self._target.place} has {found.amount} rows that are not the "
                        f"{wanted.amount} of {self._source.place}. The source is as it was; copy to another place."
                    )
                for orphan in orphans_of(connection, table):
                    raise StoreError(f"{self._target.place}: {orphan}; the source is as it was")
                checked.append(CheckedTable(table.name, found.amount, found.value.hex()))
                self._told(table.name, found.amount)
        return checked

    async def _check_search(self) -> None:
        """A word of one of the newest messages must be found in it."""
        for row in await self._target.engine.rows(_NEWEST):
            for word in words_of(row["text"]).split()[:1]:
                work = partial(search_messages, query=word, user_id=row["user_id"], limit=RANKED)
                if row["id"] not in {hit.message_id for hit in await self._target.engine.read(work)}:
                    raise StoreError(f"a search in {self._target.place} does not find the message {row['id']}")
                return


async def check(end: End, told: Told) -> tuple[Sequence[CheckedTable], Sequence[str]]:
    """Every row of a database: the digest of each table, and what is wrong, in a line for people each."""

    def work(connection: Connection) -> tuple[list[CheckedTable], list[str]]:
        found: list[CheckedTable] = []
        orphans: list[str] = []
        with snapshot(connection):
            for table in end.tables(connection):
                digest = digest_of(end, connection, table)
                found.append(CheckedTable(table.name, digest.amount, digest.value.hex()))
                orphans += orphans_of(connection, table)
                told(table.name, digest.amount)
            return found, [*orphans, *_changed_documents(connection)]

    faults = await end.engine.faults()
    tables, orphans = await end.engine.read(work)
    return tables, [*faults, *orphans]


def _changed_documents(connection: Connection) -> Iterator[str]:
    """One line for people for each document that is not what its hash says."""
    for (path,) in connection.execute(_PATHS).fetchall():
        row = connection.execute(_DOCUMENT, (path,)).fetchone()
        if row["sha256"] and version(bytes(row["content"])) != row["sha256"]:
            yield f"the document {path} is not what its hash says: it was damaged, or changed past the gateway"


def _ask(loop: asyncio.AbstractEventLoop, asked: Coroutine[Any, Any, T]) -> Future[T]:
    """From a thread, have the event loop do it."""
    return asyncio.run_coroutine_threadsafe(asked, loop)


async def undo(source: End, target: End, at_end: Work[None] | None = None) -> None:
    """Take the mark of a move away: the source is served again, and the target is closed.

    Args:
        at_end: changes the source in the commit that opens it again.

    Raises:
        StoreError: the source was not moved to this target, or something was accepted there since; nothing changed.
    """
    here, there = await source.engine.read(state_of), await target.engine.read(state_of)
    if here is None or here.state not in ("moved", "leaving"):
        raise StoreError(f"{source.place} is not marked as moved; there is nothing to undo")
    if here.state == "moved":
        if there is None or there.state not in ("arriving", "arrived") or here.other != target.place:
            raise StoreError(f"{source.place} was moved to {here.other}, not to {target.place}; name that with --to")
        if await _has_accepted(source, target):
            raise StoreError(
                f"{target.place} has accepted messages since the move, which would be lost. To go back with them, "
                f"copy it into a new directory: `ethos store copy --to DIRECTORY`."
            )
        await target.engine.read(partial(_refuse_users, end=target))
        await target.engine.write(partial(set_state, state="arriving", other=source.place))
        reach("copy.undoing")

    def reopen(connection: Connection) -> None:
        if at_end is not None:
            at_end(connection)
        set_state(connection, None, "")

    await source.engine.write(reopen)


def _leave(connection: Connection, *, end: End, other: str) -> None:
    """Close a source before the first row is read: no worker begins to use it from now on."""
    _refuse_users(connection, end)
    set_state(connection, "leaving", other)


def _refuse_users(connection: Connection, end: End) -> None:
    names = end.users(connection)
    if names:
        raise StoreError(
            f"workers use {end.place}: {', '.join(names)}. Stop them first, and wait half a minute if one was killed."
        )


async def _has_accepted(source: End, target: End) -> bool:
    """Whether the target's inbox has a message that the source does not have."""
    last = ""
    while rows := await target.engine.rows(_TURNS, (last, PAGE)):
        turns = [row["turn_id"] for row in rows]
        sql = f"SELECT count(*) FROM inbox WHERE turn_id IN ({', '.join('?' * len(turns))})"  # noqa: S608 (marks)
        [(known,)] = await source.engine.rows(sql, turns)
        if known < len(turns):
            return True
        last = turns[-1]
    return False


def read_again(table: Table, lines: Iterator[Line], done: Digest) -> Digest:
    """Pass over the rows that were copied before, if they are as they were then; `done` is of those.

    Raises:
        SourceChanged: they are not.
    """
    digest = Digest()
    while digest.amount < done.amount and (line := next(lines, None)) is not None:
        digest.add(line)
    if digest != done:
        raise SourceChanged(f"`{table.name}` has changed since a part of it was copied")
    return digest


def _batches(lines: Iterator[Line], start: Digest) -> Iterator[tuple[Sequence[Line], Digest]]:
    """Rows to be written together, with the digest of all rows up to their last one."""
    digest, batch, chars = replace(start), [], 0
    for line in lines:
        kept, size = digest.add(line)
        batch.append(kept)
        chars += size
        if len(batch) >= BATCH_ROWS or chars >= BATCH_CHARS:
            yield batch, replace(digest)
            batch, chars = [], 0
    if batch:
        yield batch, digest
