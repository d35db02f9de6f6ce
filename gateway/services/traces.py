"""The trace memory: search, look, correct, merge, forget, consolidate."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import cast

from gateway.errors import TraceError
from gateway.runtime.observe import happened
from gateway.sdk.models import traces as wire
from gateway.sdk.models.memory import FactOrigin
from gateway.services.caller import Caller, Malformed, NotAllowed, NotFound, Refused, TracesOff
from gateway.services.naming import Naming
from gateway.services.trace_scopes import TraceScopes
from gateway.services.trace_stores import TraceStores
from gateway.traces import strength
from gateway.traces.browsing import Listing, Surroundings, TraceBrowser, curve, matched_words, origins
from gateway.traces.consolidation import Consolidation
from gateway.traces.filters import TraceFilter
from gateway.traces.rows import BETWEEN, NOT_SHARED
from gateway.traces.search import MOST, ScoredTrace, TraceQuery
from gateway.traces.trace import DAY_MS, Owner, ScopeKind, Trace, TraceType, Viewer, source_of
from gateway.traces.trace_store import TraceStore

CHANGED = "traces.changed"
"""Happens when a trace was changed from a service, for pages that show it."""
MOST_RANKED = MOST
"""So many results has a search; a list has all there are."""
MOST_NEIGHBOURS = 100
MOST_POINTS = 500
_USES_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What is wanted of a list; `user` and `personality` are names that people use."""

    query: str = ""
    type: TraceType | None = None
    scope: ScopeKind | None = None
    tags: tuple[str, ...] = ()
    user: str | None = None
    personality: str | None = None
    is_deleted: bool = False


class TraceService:
    """Every method raises `Refused` where the trace memory is off.

    The operator sees everything. The holder of a person's key sees what that person may: their own, and what everybody
    shares, which a guest does not change.
    """

    def __init__(
        self,
        stores: TraceStores,
        consolidation: Consolidation | None,
        *,
        scopes: TraceScopes,
        naming: Naming,
    ) -> None:
        """Without consolidation where traces are off."""
        self._stores = stores
        self._consolidation = consolidation
        self._scopes = scopes
        self._naming = naming

    @property
    def is_on(self) -> bool:
        """Whether there is a trace memory."""
        return self._stores.own is not None

    # ---- looking ---------------------------------------------------------------------------------------------------

    async def origins(self, caller: Caller, user_id: str | None, words: str) -> Sequence[FactOrigin]:
        """Where the facts come from that hold all of these words; none where traces are off or not for the caller.

        Args:
            user_id: whose facts the operator wants; None: everybody's. Other callers see their own only.
        """
        if not caller.may("traces:read"):
            return ()
        with contextlib.suppress(TracesOff):
            async with self._stores.opened(caller) as trace_store:
                if caller.user_id is None and user_id is not None:
                    viewer = await self._scopes.person(user_id)
                else:
                    viewer = await self._scopes.viewer(caller)
                return await origins(trace_store, viewer, words)
        return ()

    async def recall(
        self, caller: Caller, query: str, *, user: str | None, personality: str | None, limit: int
    ) -> wire.Recalled:
        """What a personality finds for a question of a person, the best first; being looked for is no use.

        Raises:
            NotNamed: it is not clear who is meant.
            NotAllowed: it is not for the caller.
        """
        async with self._stores.opened(caller) as trace_store:
            viewer = await self._scopes.asker(caller, user, personality)
            found = await trace_store.search(viewer, TraceQuery(query=query, limit=limit))
            words = await trace_store.database.read(
                lambda connection: [matched_words(connection, each.trace, query) for each in found]
            )
            now = trace_store.now()
            items = tuple(_recalled_of(each, held, now) for each, held in zip(found, words, strict=True))
            meaning = trace_store.meaning
            return wire.Recalled(items=items, problem=None if meaning is None else meaning.problem)

    async def search(self, caller: Caller, wanted: Filters, *, limit: int, explain: bool) -> list[wire.FoundTrace]:
        """The best matches, best first, a hundred at most; being listed is no use.

        Raises:
            NotNamed: no user has that name.
            NotAllowed: they are not for the caller.
        """
        trace_store, viewer = self._trace_store(), await self._scopes.viewer(caller)
        found = await trace_store.search(
            viewer,
            TraceQuery(
                query=wanted.query,
                type=wanted.type,
                scope=wanted.scope,
                limit=limit,
                among=await self._among(caller, wanted),
            ),
        )
        return [_found_of(each, trace_store.now(), explain=explain) for each in found]

    async def browse(
        self, caller: Caller, wanted: Filters, *, limit: int, before: int | None = None
    ) -> tuple[list[wire.FoundTrace], int | None]:
        """Traces without a question, the last that came in first; and what `before` is for the rest, None at the end.

        Raises as `search`.
        """
        trace_store, viewer = self._trace_store(), await self._scopes.viewer(caller)
        listing = Listing(
            type=wanted.type,
            scope=wanted.scope,
            among=await self._among(caller, wanted),
            is_deleted=wanted.is_deleted,
            before=before,
            limit=limit + 1,
        )
        found = await TraceBrowser(trace_store).traces(viewer, listing)
        rest = found[limit - 1].number if len(found) > limit else None
        now = trace_store.now()
        return [wire.FoundTrace(**_trace_of(each.trace, now).model_dump()) for each in found[:limit]], rest

    async def get(self, caller: Caller, trace_id: str) -> wire.Trace:
        """One trace, also one that was deleted.

        Raises:
            NotFound: there is none with that id, or not for the caller.
        """
        return _trace_of(await self._one(caller, trace_id), self._trace_store().now())

    async def strength(self, caller: Caller, trace_id: str, *, points: int) -> wire.StrengthCurve:
        """How the trace fades: since it was last touched, and from now on; raises as `get`."""
        trace, trace_store = await self._one(caller, trace_id), self._trace_store()
        uses = await TraceBrowser(trace_store).uses(trace, _USES_SHOWN)
        return curve(trace, trace_store.now(), points, used_at=uses)

    async def around(self, caller: Caller, trace_id: str, *, limit: int) -> wire.TraceGraph:
        """What the trace is linked to, the weightiest first; raises as `get`."""
        trace, trace_store = await self._one(caller, trace_id), self._trace_store()
        found = await TraceBrowser(trace_store).around(await self._scopes.viewer(caller), trace_id, limit)
        if found is None:  # erased since
            raise _no_trace(trace_id)
        return _graph_of(trace, found, trace_store.now())

    async def count(self, caller: Caller) -> int:
        """How many traces there are for the caller."""
        return await self._trace_store().count(await self._scopes.viewer(caller))

    # ---- changing --------------------------------------------------------------------------------------------------

    async def add(self, caller: Caller, wanted: wire.AddTrace) -> wire.Trace:
        """Remember a fact; the same content of the same owner again only adds its tags.

        Raises:
            Malformed: it says nothing, or a session is missing.
            NotNamed: it is not clear whose it is to be.
            NotFound: there is no such session.
            NotAllowed: the caller may not write there.
        """
        trace_store = self._trace_store()
        viewer = await self._scopes.writer(caller, wanted)
        with _as_refused():
            trace = Trace(
                content=wanted.content,
                owner=viewer.owner(wanted.scope),
                type=wanted.type,
                tags=wanted.tags,
                stability_ms=trace_store.stability_ms,
                created_at=trace_store.now(),
                last_accessed_at=trace_store.now(),
                author=viewer.user_id or caller.name,
                metadata={"channel": caller.name},
            )
            added = await trace_store.add(viewer, trace)
        happened(CHANGED)
        return await self.get(caller, added.id)

    async def update(
        self, caller: Caller, trace_id: str, *, content: str | None = None, tags: Sequence[str] | None = None
    ) -> wire.Trace:
        """Change what is given.

        Raises:
            Malformed: the new content says nothing.
            NotFound: there is no such trace, or it was deleted.
            NotAllowed: everybody shares it, and they may not change that.
        """
        viewer = await self._scopes.viewer(caller)
        change = self._trace_store().update(viewer, trace_id, content=content, tags=tags)
        return await self._changed(caller, trace_id, change)

    async def delete(self, caller: Caller, trace_id: str) -> wire.Trace:
        """Hide it; `restore` brings it back; raises `NotFound` and `NotAllowed` as `update`."""
        viewer = await self._scopes.viewer(caller)
        return await self._changed(caller, trace_id, self._trace_store().delete(viewer, trace_id))

    async def restore(self, caller: Caller, trace_id: str) -> wire.Trace:
        """Bring back what was deleted.

        Raises:
            NotFound: there is no such trace that was deleted.
            NotAllowed: as `update`.
        """
        viewer = await self._scopes.viewer(caller)
        return await self._changed(caller, trace_id, self._trace_store().restore(viewer, trace_id), state="deleted ")

    async def merge(self, caller: Caller, trace_ids: Sequence[str], content: str | None = None) -> wire.Trace:
        """Put one trace in the place of several of the same owner.

        Raises:
            Refused: fewer than two of them are there, or they belong to different owners.
            NotAllowed: as `update`.
        """
        viewer = await self._scopes.viewer(caller)
        with _as_refused():
            merged = await self._trace_store().merge(viewer, trace_ids, content)
        happened(CHANGED)
        return await self.get(caller, merged.id)

    # ---- consolidation ---------------------------------------------------------------------------------------------

    async def consolidate(self, caller: Caller, *, derives: bool = True) -> wire.ConsolidationResult:
        """Consolidate what the caller may change, now; `derives`: a model is asked for insights, if there is one."""
        async with self._stores.opened(caller) as trace_store:
            consolidation = self._consolidation or Consolidation(trace_store)
            viewer = None if caller.user_id is None else await self._scopes.viewer(caller)
            report = await consolidation.run(viewer, reason=caller.name, derives=derives)
        happened(CHANGED)
        return wire.ConsolidationResult(**asdict(report))

    async def log(self, caller: Caller, *, limit: int, before: int | None = None) -> list[wire.Consolidation]:
        """What consolidations did, newest first; it is about everybody's traces.

        Raises:
            NotAllowed: the caller sees one person only.
        """
        caller.refuse_others(None)
        if self._consolidation is None:
            raise TracesOff
        return [
            wire.Consolidation(**asdict(each)) for each in await self._consolidation.log(limit=limit, before=before)
        ]

    # ---- within ----------------------------------------------------------------------------------------------------

    def _trace_store(self) -> TraceStore:
        if self._stores.own is None:
            raise TracesOff
        return self._stores.own

    async def _one(self, caller: Caller, trace_id: str) -> Trace:
        trace_store, viewer = self._trace_store(), await self._scopes.viewer(caller)
        trace = await TraceBrowser(trace_store).trace(viewer, trace_id)
        if trace is None:
            raise _no_trace(trace_id)
        return trace

    async def _changed(self, caller: Caller, trace_id: str, change: Awaitable[bool], *, state: str = "") -> wire.Trace:
        with _as_refused():
            is_done = await change
        if not is_done:
            raise _no_trace(trace_id, state)
        happened(CHANGED)
        return await self.get(caller, trace_id)

    async def _among(self, caller: Caller, wanted: Filters) -> TraceFilter:
        user_id = None if wanted.user is None else await self._naming.user_for(caller, wanted.user)
        if user_id is None:
            return TraceFilter(personality_id=wanted.personality, tags=wanted.tags)
        person: Viewer = await self._scopes.person(user_id)
        return TraceFilter(
            user_ids=person.ids,
            sessions=frozenset(person.sessions),
            personality_id=wanted.personality,
            tags=wanted.tags,
        )


def _no_trace(trace_id: str, state: str = "") -> NotFound:
    return NotFound(f"there is no {state}trace with the id {trace_id}")


@contextlib.contextmanager
def _as_refused() -> Iterator[None]:
    """What the trace store will not do, as a service says it."""
    try:
        yield
    except TraceError as error:
        if str(error) == NOT_SHARED:
            raise NotAllowed(NOT_SHARED) from error
        kind = Malformed if "blank" in str(error) else Refused
        raise kind(str(error)) from error


LABEL_CHARS = 80


def _trace_of(trace: Trace, now: datetime) -> wire.Trace:
    user, personality, session = _names(trace.owner)
    return wire.Trace(
        id=trace.id,
        type=trace.type,
        scope=cast("ScopeKind", trace.owner.kind),  # the lines of documents are not shown here
        user=user,
        personality=personality,
        session=session,
        content=trace.content,
        strength=strength.current(trace.strength, trace.stability_ms, trace.last_accessed_at, now),
        stability_days=trace.stability_ms / DAY_MS,
        tags=trace.tags,
        emotions=dict(trace.emotions),
        metadata=dict(trace.metadata),
        created_at=trace.created_at,
        last_accessed_at=trace.last_accessed_at,
        uses=trace.retrieval_count,
        source=trace.source,
        author=trace.author,
        speaker=trace.speaker,
        has_vector=trace.embedding is not None,
        deleted_at=trace.deleted_at,
        merged_into=trace.merged_into,
    )


def _found_of(found: ScoredTrace, now: datetime, *, explain: bool) -> wire.FoundTrace:
    """With its score, and if wanted what that is made of."""
    explanation = wire.Explanation(parts=dict(found.parts), factors=dict(found.factors), cosine=found.cosine)
    return wire.FoundTrace(
        **_trace_of(found.trace, now).model_dump(),
        score=found.score,
        explanation=explanation if explain else None,
    )


def _recalled_of(found: ScoredTrace, words: Sequence[str], now: datetime) -> wire.RecalledTrace:
    shown = _found_of(found, now, explain=True)
    return wire.RecalledTrace(**shown.model_dump(), words=tuple(words), origin=source_of(found.trace))


def _graph_of(trace: Trace, found: Surroundings, now: datetime) -> wire.TraceGraph:
    """The neighbours that are traces come first, in the order of their edges."""
    traces = (
        wire.Neighbour(id=each.id, label=_opening(each.content), trace=_trace_of(each, now))
        for each in found.traces.values()
    )
    nodes = (wire.Neighbour(id=end, label=label, trace=None) for end, label in found.nodes.items())
    return wire.TraceGraph(
        trace=_trace_of(trace, now),
        neighbours=(*traces, *nodes),
        edges=tuple(found.edges),
        is_cut=found.is_cut,
    )


def _names(owner: Owner) -> tuple[str | None, str | None, str | None]:
    """User, personality and session of an owner."""
    first, _, second = owner.id.partition(BETWEEN)
    match owner.kind:
        case "user":
            return owner.id, None, None
        case "persona":
            return first, second, None
        case "thread":
            return None, None, owner.id
        case "organization":
            return None, second or None, None
        case "document":
            return None, None, None


def _opening(content: str) -> str:
    text = " ".join(content.split())
    return text if len(text) <= LABEL_CHARS else text[: LABEL_CHARS - 1] + "…"
