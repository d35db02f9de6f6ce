"""The trace store: where traces are kept. Every call is made on behalf of a viewer, and reaches no trace of others.

Reading and writing are limited to the viewer's owners in the SQL itself, by number; the id of a
trace of others is treated as unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gateway.errors import TraceError
from gateway.store.engine import Connection, Engine, snapshot
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.schema import migrate, migrations
from gateway.traces import changes
from gateway.traces.changes import Added, Merged
from gateway.traces.rows import NOT_SHARED, StoredTrace, find, find_to_change, places, visible
from gateway.traces.search import ScoredTrace, TraceQuery, recall, search
from gateway.traces.search_words import register_functions
from gateway.traces.trace import STABILITY_MS, OwnerKind, Trace, Viewer

if TYPE_CHECKING:
    from gateway.traces.vectors import QueryVectors  # which loads numpy

PersonIds = Callable[[str], Awaitable[Sequence[str]]]
"""All ids of the person that a user id stands for, that id among them; see `gateway.people.linking.links.LinkStore`."""

TRACES_NAME = "traces.sqlite"
FEWEST_TO_MERGE = 2
_TOO_FEW = "traceIds must contain at least 2 trace IDs."


def open_trace_store(
    path: Path,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    stability_ms: float = STABILITY_MS,
    person_ids: PersonIds | None = None,
) -> TraceStore:
    """Open the file, make it, or bring it up to date.

    Args:
        now: the wall clock.
        stability_ms: of traces that are made by a turn or a tool.
        person_ids: all ids of a person; None: each user id is one person.

    Raises:
        SchemaTooNew, StoreUnavailable, UnsafePath: see `gateway.store.sqlite.schema.migrate`.
    """
    migrate(path, prepare=register_functions, steps=migrations("gateway.traces"))
    return TraceStore(
        SqliteEngine(path, prepare=register_functions),
        place=path,
        now=now,
        stability_ms=stability_ms,
        person_ids=person_ids,
    )


def shared_trace_store(
    engine: Engine,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    stability_ms: float = STABILITY_MS,
    person_ids: PersonIds | None = None,
) -> TraceStore:
    """The traces in the database that many workers share; its owner closes the engine.

    Args:
        engine: of the gateway's own database, which has the tables.
        now, stability_ms, person_ids: as for `open_trace_store`.
    """
    return TraceStore(
        engine.of("traces"),
        place="the gateway's database,",
        now=now,
        stability_ms=stability_ms,
        person_ids=person_ids,
        is_lent=True,
    )


@asynccontextmanager
async def existing_traces(home: Path, engine: Engine) -> AsyncGenerator[TraceStore | None]:
    """The traces that are there, whether they are on or off; None where there never were any.

    Args:
        home: the data directory.
        engine: of the gateway's own database.

    Raises:
        StoreError, UnsafePath: they cannot be used.
    """
    path = home / TRACES_NAME
    if engine.dialect.is_shared:
        yield shared_trace_store(engine)
    elif not await asyncio.to_thread(path.exists):
        yield None
    else:
        async with await asyncio.to_thread(open_trace_store, path) as trace_store:
            yield trace_store


class TraceStore:
    """All traces of a gateway.

    Attributes:
        place: the file; or, in a database that many workers share, what people call that.
        meaning: finds traces by what they mean, besides their words; None where no embeddings are configured.
    """

    def __init__(
        self,
        database: Engine,
        *,
        place: Path | str,
        now: Callable[[], datetime],
        stability_ms: float = STABILITY_MS,
        person_ids: PersonIds | None = None,
        is_lent: bool = False,
    ) -> None:
        """Made by `open_trace_store` and `shared_trace_store`; the engine of a lent one is not closed."""
        self.database = database
        self.place = place
        self._is_lent = is_lent
        self.now = now
        self.stability_ms = stability_ms
        self.meaning: QueryVectors | None = None
        self._person_ids = person_ids

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what was asked, then close. Idempotent."""
        if not self._is_lent:
            await self.database.close()

    async def whole(self, viewer: Viewer) -> Viewer:
        """The viewer with all ids that the person has now. Links are stored elsewhere: a link rewrites nothing.

        Every method does this; call it only for work on the database itself.
        """
        if viewer.user_id is None or self._person_ids is None:
            return viewer
        ids = await self._person_ids(viewer.user_id)
        return replace(viewer, other_ids=tuple(each for each in ids if each != viewer.user_id))

    # ---- one trace --------------------------------------------------------------------------------------------------

    async def add(self, viewer: Viewer, trace: Trace) -> Added:
        """Keep a trace; the same content, type and owner again unites the tags with those of the one that is there.

        Similar traces of the owner and the new one weaken each other; see `strength.interference`.

        Raises:
            TraceError: the content is blank, or the owner is not the viewer's.
        """
        check_content(trace.content)
        if not viewer.may_change(trace.owner):
            raise TraceError(NOT_SHARED)
        if trace.owner not in viewer.owners:
            raise TraceError(f"A trace of {trace.owner.kind} {trace.owner.id} is not yours to write.")
        return await self.database.write(lambda connection: changes.add(connection, trace, self.now()))

    async def get(self, viewer: Viewer, trace_id: str) -> Trace | None:
        """The trace; None where the viewer has none with that id."""
        viewer = await self.whole(viewer)
        found = await self.database.read(lambda connection: find(connection, viewer, trace_id))
        return None if found is None else found.trace

    async def update(
        self, viewer: Viewer, trace_id: str, *, content: str | None = None, tags: Sequence[str] | None = None
    ) -> bool:
        """Change what is given; False where the viewer has no such trace.

        Raises:
            TraceError: the new content is blank, or everybody shares the trace and the viewer may not change that.
        """
        if content is not None:
            check_content(content)
        return await self._change(viewer, trace_id, partial(changes.update, content=content, tags=tags))

    async def delete(self, viewer: Viewer, trace_id: str) -> bool:
        """Hide a trace; False where the viewer has no such trace, or it is hidden already. `restore` brings it back.

        Raises:
            TraceError: everybody shares it, and the viewer may not change that.
        """
        return await self._change(viewer, trace_id, partial(changes.hide, now=self.now()))

    async def restore(self, viewer: Viewer, trace_id: str) -> bool:
        """Bring a hidden trace back; False where the viewer has none with that id.

        Raises:
            TraceError: everybody shares it, and the viewer may not change that.
        """
        return await self._change(viewer, trace_id, changes.restore, is_deleted=True)

    async def _change(
        self,
        viewer: Viewer,
        trace_id: str,
        change: Callable[[Connection, int], None],
        *,
        is_deleted: bool = False,
    ) -> bool:
        """Make a change to one trace, by its number; False where the viewer has no such trace."""
        viewer = await self.whole(viewer)

        def work(connection: Connection) -> bool:
            stored = find_to_change(connection, viewer, trace_id, is_deleted=is_deleted)
            if stored is not None:
                change(connection, stored.number)
            return stored is not None

        return await self.database.write(work)

    # ---- several ----------------------------------------------------------------------------------------------------

    async def search(self, viewer: Viewer, wanted: TraceQuery) -> Sequence[ScoredTrace]:
        """The best matches, best first; being listed is no use."""
        vector = None if self.meaning is None else await self.meaning.embed(viewer, wanted.query)
        return await self._find(viewer, partial(search, wanted=wanted, now=self.now(), vector=vector))

    async def recall(self, viewer: Viewer, question: str) -> Sequence[ScoredTrace]:
        """What has to do with a question, best first; nothing where nothing has. See `search.recall`."""
        vector = None if self.meaning is None else await self.meaning.embed(viewer, question)
        return await self._find(viewer, partial(recall, question=question, now=self.now(), vector=vector))

    async def _find(
        self, viewer: Viewer, find_for: Callable[[Connection, Viewer], Sequence[ScoredTrace]]
    ) -> Sequence[ScoredTrace]:
        whole = await self.whole(viewer)

        def work(connection: Connection) -> Sequence[ScoredTrace]:
            with snapshot(connection):
                return find_for(connection, whole)

        return await self.database.read(work)

    async def merge(self, viewer: Viewer, trace_ids: Sequence[str], content: str | None = None) -> Merged:
        """Make one trace of several of the same owner; their contents are joined where none is given.

        Raises:
            TraceError: fewer than two traces are named, or are there; or they belong to different owners.
        """
        wanted = list(dict.fromkeys(trace_ids))
        if len(wanted) < FEWEST_TO_MERGE:
            raise TraceError(_TOO_FEW)
        if content is not None:
            check_content(content)
        viewer = await self.whole(viewer)

        def work(connection: Connection) -> Merged:
            sources = [stored for each in wanted if (stored := find_to_change(connection, viewer, each)) is not None]
            _check_sources(sources)
            return changes.merge(connection, sources, self.now(), content=content)

        return await self.database.write(work)

    async def check_change(
        self, viewer: Viewer, trace_ids: Sequence[str], *, is_merge: bool = False
    ) -> OwnerKind | None:
        """Whose the traces are that are to be changed later; None where the viewer has none of them now.

        Raises:
            TraceError: they may not be changed, or merged, in the words in which `update` and `merge` say so.
        """
        wanted = list(dict.fromkeys(trace_ids))
        if is_merge and len(wanted) < FEWEST_TO_MERGE:
            raise TraceError(_TOO_FEW)
        viewer = await self.whole(viewer)

        def work(connection: Connection) -> OwnerKind | None:
            found = [stored for each in wanted if (stored := find_to_change(connection, viewer, each)) is not None]
            if is_merge:
                _check_sources(found)
                changes.check_same_owner([stored.trace for stored in found])
            return found[0].trace.owner.kind if found else None

        return await self.database.read(work)

    async def offered(self, viewer: Viewer, query_id: str, *, used: Sequence[str]) -> int:
        """Say which of the traces that a query brought up were used; how many uses were counted.

        They grow stronger, once for each query; the others stay as they are. So does what the viewer may not change.
        """
        viewer = await self.whole(viewer)

        def work(connection: Connection) -> int:
            now, counted = self.now(), 0
            for trace_id in dict.fromkeys(used):
                stored = find(connection, viewer, trace_id)
                if stored is not None and viewer.may_change(stored.trace.owner):
                    counted += changes.use(connection, stored, query_id, now)
            return counted

        return await self.database.write(work)

    async def count(self, viewer: Viewer) -> int:
        """How many traces the viewer has."""
        viewer = await self.whole(viewer)

        def work(connection: Connection) -> int:
            owners = visible(connection, viewer)
            among = places(owners)  # question marks
            sql = f"SELECT count(*) FROM traces WHERE owner IN ({among}) AND deleted_at IS NULL"  # noqa: S608 (as said)
            return int(connection.execute(sql, owners).fetchone()[0])

        return await self.database.read(work)


def _check_sources(sources: Sequence[StoredTrace]) -> None:
    if len(sources) < FEWEST_TO_MERGE:
        raise TraceError(f"Found only {len(sources)} active trace(s) for the provided IDs. Need at least 2.")


def check_content(content: str) -> None:
    """Refuse a trace that says nothing.

    Raises:
        TraceError: the content is blank.
    """
    if not content.strip():
        raise TraceError("The content of a trace must not be blank.")
