"""Facts of a turn that heard others too: they wait for the person's yes, each by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from gateway.memory.fact_changes import FactChange
from gateway.memory.ingest import IngestJob
from gateway.memory.proposals import Proposal, ProposalStore
from gateway.memory.tokenizer import words_of
from gateway.traces.ingest import IngestReport, says_nearly_the_same
from gateway.traces.personality_traits import IngestRules
from gateway.traces.similar import shared_words
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TraceStore

MOST_WAITING = 50
"""Of one person; what nobody looks at is not worth more. Facts that come later are left out."""
_LOOKED_AT = 1_000
_PART = "said"


async def propose_facts(
    trace_store: TraceStore, store: ProposalStore, job: IngestJob, traces: Sequence[Trace], rules: IngestRules
) -> Mapping[str, int]:
    """Propose the facts of a turn, the most important first; the same turn again proposes nothing new.

    Returns:
        How many were `proposed`, and what became of the others, as an `IngestReport` has it.

    Raises:
        StoreUnavailable: the disk is full or broken; nothing was proposed.
    """
    earlier = {one.part for one in await store.of_turn(job.scope.turn_id)}
    waiting = [one for one in await store.proposals(limit=_LOOKED_AT) if _is_fact_of(one, job)]
    said = [words_of(one.fact.content).split() for one in waiting if one.fact is not None and one.fact.content]
    known = await trace_store.database.read(lambda connection: _known(connection, traces, rules))
    new: list[Proposal] = []
    duplicate = over_limit = before = 0
    for trace in traces:
        part = f"{_PART} {trace.id}"
        words = words_of(trace.content).split()
        if part in earlier:
            before += 1
        elif trace.id in known or any(shared_words(words, each) == 1.0 for each in said):
            duplicate += 1
        elif len(new) + before >= rules.most or len(waiting) + len(new) >= MOST_WAITING:
            over_limit += 1
        else:
            new.append(_proposal(job, trace, part))
            said.append(words)
    if new:
        first = await store.reserve(len(new))
        await store.add([replace(one, id=number) for number, one in enumerate(new, start=first)])
    report = IngestReport(duplicate=duplicate + before, over_limit=over_limit)
    return {**asdict(report), "proposed": len(new)}


def _is_fact_of(proposal: Proposal, job: IngestJob) -> bool:
    return proposal.fact is not None and proposal.scope.user_id == job.scope.user_id


def _known(connection: sqlite3.Connection, traces: Sequence[Trace], rules: IngestRules) -> set[str]:
    """Those that say nearly the same as what is stored."""
    return {trace.id for trace in traces if says_nearly_the_same(connection, trace, rules)}


def _proposal(job: IngestJob, trace: Trace, part: str) -> Proposal:
    return Proposal(
        id=0,
        scope=replace(job.scope, author_id=job.scope.author_id or job.scope.user_id),
        store="traces",
        fact=FactChange(
            action="add",
            scope=trace.owner.kind,
            content=trace.content,
            tags=trace.tags,
            type=trace.type,
            source="turn",
            speaker=trace.speaker,
            intensity=trace.intensity,
        ),
        part=part,
        sources=job.sources or (),
        proposed_at=trace.created_at,
    )
