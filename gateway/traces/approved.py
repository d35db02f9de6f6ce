"""Changes of facts that waited for a person's yes: what they would change now, and the writing, once.

The yes is committed with the proposal. Only then the trace store is changed, and notes in the same transaction that
it was; so a process that is killed anywhere in between loses no yes and writes none twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import structlog

from gateway.errors import StoreError
from gateway.memory.fact_changes import FactChange
from gateway.memory.proposals import Proposal, ProposalStore
from gateway.memory.sync import RETRY_S
from gateway.store.engine import Connection
from gateway.traces import changes
from gateway.traces.rows import StoredTrace, find, known_number
from gateway.traces.trace import ScopeKind, Trace, TraceType, Viewer, merge_tags, trace_id_of, where_of
from gateway.traces.trace_store import FEWEST_TO_MERGE, TraceStore
from gateway.traces.turn_facts import viewer_of

_log = structlog.get_logger(__name__)
_NOTE = "INSERT INTO approved_changes (turn_id) VALUES (?) ON CONFLICT DO NOTHING"


class ApprovedFacts:
    """Writes what was approved into one trace store; a `gateway.memory.review.FactMemory`."""

    def __init__(self, trace_store: TraceStore, store: ProposalStore) -> None:
        self._trace_store = trace_store
        self._store = store
        self._late: set[int] = set()
        self._has_late = asyncio.Event()

    @property
    def late(self) -> int:
        """Approved changes that could not be written yet."""
        return len(self._late)

    async def difference(self, proposal: Proposal) -> str:
        """What it would change now: lines that go with a minus, lines that come with a plus; empty for nothing."""
        viewer = await self._trace_store.whole(viewer_of(proposal.scope))
        work = partial(_difference, viewer=viewer, proposal=proposal)
        return "\n".join(await self._trace_store.database.read(work))

    async def write(self, proposal: Proposal) -> bool:
        """Write it, once however often it is called; False where that is not possible now, and is done later."""
        try:
            viewer = await self._trace_store.whole(viewer_of(proposal.scope))
            work = partial(_write, viewer=viewer, proposal=proposal, trace_store=self._trace_store)
            is_changed = await self._trace_store.database.write(work)
            await self._store.fact_is_written(proposal.id)
        except StoreError as error:
            _log.error("approved_fact_late", proposal=proposal.id, error=str(error), retry_s=RETRY_S)
            self._late.add(proposal.id)
            self._has_late.set()
            return False
        self._late.discard(proposal.id)
        _log.info("approved_fact_written", proposal=proposal.id, is_changed=is_changed)
        return True

    async def replay(self) -> int:
        """Write what was approved before and may not be written; how many that were."""
        waiting = await self._store.facts_to_write()
        for proposal in waiting:
            await self.write(proposal)
        return len(waiting)

    async def run(self) -> None:
        """Write what an earlier process left, then what is late, until cancelled."""
        while True:
            self._has_late.clear()
            try:
                await self.replay()
            except StoreError as error:
                _log.error("approved_facts_late", error=str(error), retry_s=RETRY_S)
                self._has_late.set()
            await self._has_late.wait()
            await asyncio.sleep(RETRY_S)


def _found(connection: Connection, viewer: Viewer, fact: FactChange) -> list[StoredTrace]:
    return [stored for each in fact.trace_ids if (stored := find(connection, viewer, each)) is not None]


# ---- in a transaction -----------------------------------------------------------------------------------------------


def _write(connection: Connection, *, viewer: Viewer, proposal: Proposal, trace_store: TraceStore) -> bool:
    """Whether anything is changed: a fact that is gone, or written already, is left alone."""
    fact = proposal.fact
    if fact is None or connection.execute(_NOTE, (proposal.approved_scope.turn_id,)).rowcount == 0:
        return False
    if fact.action == "add":
        trace = _trace(viewer, proposal, fact, trace_store.stability_ms)
        return changes.add(connection, changes.placed(connection, trace), trace_store.now()).is_new
    found = _found(connection, viewer, fact)
    if fact.action == "merge":
        if len(found) < FEWEST_TO_MERGE:
            return False
        changes.merge(connection, found, trace_store.now(), content=fact.content)
    for stored in found:
        if fact.action == "update":
            changes.update(connection, stored.number, content=fact.content, tags=fact.tags)
        elif fact.action == "delete":
            changes.hide(connection, stored.number, trace_store.now())
    return bool(found)


def _trace(viewer: Viewer, proposal: Proposal, fact: FactChange, stability_ms: float) -> Trace:
    scope = proposal.scope
    return Trace(
        id=trace_id_of(proposal.approved_scope.turn_id),
        content=fact.content or "",
        owner=viewer.owner(cast("ScopeKind", fact.scope)),
        type=cast("TraceType", fact.type),
        stability_ms=stability_ms,
        tags=fact.tags or (),
        emotions={"intensity": fact.intensity} if fact.intensity else {},
        metadata={**where_of(scope), "proposal": proposal.id},
        created_at=proposal.proposed_at,
        last_accessed_at=proposal.proposed_at,
        source=fact.source,
        author=scope.author_id or scope.user_id,
        speaker=fact.speaker,
        conversation=scope.session_id,
    )


def _difference(connection: Connection, *, viewer: Viewer, proposal: Proposal) -> list[str]:
    fact = proposal.fact
    if fact is None:
        return []
    if fact.action == "add":
        trace = _trace(viewer, proposal, fact, 1.0)
        owner = known_number(connection, trace.owner)
        is_there = owner is not None and changes.same_as(connection, owner, trace) is not None
        return [] if is_there else [*_lines("+", trace.content), f"+({trace.type}, of the {fact.scope})"]
    traces = [stored.trace for stored in _found(connection, viewer, fact)]
    gone = [line for trace in traces for line in _lines("-", trace.content)]
    if not traces or fact.action == "delete":
        return gone
    if fact.action == "merge":
        text = fact.content or "\n".join(dict.fromkeys(trace.content for trace in traces))
        return [*gone, *_lines("+", text)] if len(traces) >= FEWEST_TO_MERGE else []
    return list(_changed(traces[0], fact))


def _changed(trace: Trace, fact: FactChange) -> Iterator[str]:
    if fact.content is not None and fact.content != trace.content:
        yield from _lines("-", trace.content)
        yield from _lines("+", fact.content)
    if fact.tags is not None and merge_tags(fact.tags) != trace.tags:
        yield f"-tags: {', '.join(trace.tags) or 'none'}"
        yield f"+tags: {', '.join(merge_tags(fact.tags)) or 'none'}"


def _lines(sign: str, text: str) -> Sequence[str]:
    return [sign + line for line in text.splitlines()]
