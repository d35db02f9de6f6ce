"""The two steps of a job of the ingest: a model names the facts of a turn, and what the rules admit is stored."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

import structlog

from gateway.agent.model import Model, Spender
from gateway.agent.providers.embeddings import MeteredEmbedder
from gateway.domain.roles import Role, may
from gateway.errors import ConfigError, ModelError
from gateway.memory.fact_changes import FactChange
from gateway.memory.ingest import IngestJob, Said
from gateway.memory.proposals import Proposal, ProposalStore
from gateway.memory.tokenizer import words_of
from gateway.protocols import MemoryScope
from gateway.traces.ingest import Fact, TurnFacts, Vectors, admit, extract, keep_facts, says_nearly_the_same
from gateway.traces.personality_traits import IngestRules
from gateway.traces.similar import shared_words
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TraceStore

RulesOf = Callable[[str], IngestRules]
"""The rules of a personality, by its id, as its character has changed them."""
_OFFERS_KEPT = 1_000
MOST_WAITING = 50
"""For one person; later facts are left out until some proposals are decided."""
_LOOKED_AT = 1_000
_PART = "said"

_log = structlog.get_logger(__name__)


def viewer_of(scope: MemoryScope, role: Role | None = None) -> Viewer:
    """On whose behalf the trace store is asked in a turn; without a role it is the gateway's own work."""
    return Viewer(
        user_id=scope.user_id,
        personality_id=scope.personality_id,
        session_id=scope.session_id,
        may_share=role is None or may(role, "write shared memory"),
        reads_shared=role is None or may(role, "read shared memory"),
    )


class OfferedTraces:
    """Which traces the last turns were offered. A restart forgets them, which costs a little feedback."""

    def __init__(self) -> None:
        self._by_turn: OrderedDict[str, Sequence[Trace]] = OrderedDict()

    def keep(self, turn_id: str, traces: Sequence[Trace]) -> None:
        """Say what a turn was offered; the oldest turn of a thousand is forgotten."""
        self._by_turn[turn_id] = traces
        while len(self._by_turn) > _OFFERS_KEPT:
            self._by_turn.popitem(last=False)

    def get(self, turn_id: str) -> Sequence[Trace]:
        """What the turn was offered; nothing where that is not known."""
        return self._by_turn.get(turn_id, ())


class TurnFactExtractor:
    """Takes the facts of turns; see `gateway.memory.ingest.FactExtractor`."""

    def __init__(
        self,
        trace_store: TraceStore,
        model: Callable[[], Model],
        rules: RulesOf,
        proposals: ProposalStore,
        *,
        offers: OfferedTraces,
        embedder: MeteredEmbedder | None = None,
    ) -> None:
        """Near-duplicates are known by their vectors; without an embedder by their words.

        Args:
            model: names the facts.
            proposals: takes the facts that need a yes.
            offers: what a turn was offered, which a correction may contradict.
        """
        self._trace_store = trace_store
        self._model = model
        self._rules = rules
        self._proposals = proposals
        self._offers = offers
        self._embedder = embedder

    async def extract(self, job: IngestJob, said: Said) -> str:
        """See `FactExtractor.extract`."""
        model, rules = self._model(), self._rules(job.scope.personality_id)
        spender = Spender(user_id=job.scope.user_id or "", personality_id=job.scope.personality_id)
        facts = await extract(model, said, rules, spender=spender)
        return json.dumps([asdict(fact) for fact in facts], ensure_ascii=False)

    async def keep(self, job: IngestJob, said: Said, facts: str) -> Mapping[str, int]:
        """See `FactExtractor.keep`: what needs a person's yes is proposed."""
        scope = job.scope
        turn = TurnFacts(job=job, at=said.at, facts=[Fact(**fact) for fact in json.loads(facts)])
        rules, viewer = self._rules(scope.personality_id), viewer_of(scope)
        if job.sources is None:
            vectors = await self._vectors(turn.facts, scope)
            offered = self._offers.get(scope.turn_id)
            return await keep_facts(self._trace_store, viewer, turn, rules, vectors=vectors, offered=offered)
        traces = admit(self._trace_store, viewer, turn, rules)
        report = await propose_facts(self._trace_store, self._proposals, job, traces, rules)
        extracted = len(turn.facts)
        return {"extracted": extracted, "stored": 0, "below_threshold": extracted - len(traces), **report}

    async def _vectors(self, facts: Sequence[Fact], scope: MemoryScope) -> Vectors | None:
        """The vectors of the facts; None while the model does not answer: the facts get vectors later."""
        if self._embedder is None or not facts:
            return None
        from gateway.traces.vectors import as_blob  # noqa: PLC0415 (numpy, an extra)

        texts = [fact.text for fact in facts]
        try:
            model = self._embedder.identity
            embedded = await self._embedder.embed(
                texts, Spender(user_id=scope.user_id or "", personality_id=scope.personality_id)
            )
        except (ModelError, ConfigError) as error:
            _log.info("facts_without_vectors", turn_id=scope.turn_id, error=str(error))
            return None
        return Vectors(model, dict(zip(texts, map(as_blob, embedded.vectors), strict=True)))


async def propose_facts(
    trace_store: TraceStore, store: ProposalStore, job: IngestJob, traces: Sequence[Trace], rules: IngestRules
) -> Mapping[str, int]:
    """Propose the facts of a turn, the most important first; the same turn again proposes nothing new.

    Returns:
        How many were `proposed`, and what became of the others, as `keep_facts` says it.

    Raises:
        StoreUnavailable: the disk is full or broken; nothing was proposed.
    """
    earlier = {one.part for one in await store.of_turn(job.scope.turn_id)}
    waiting = [one for one in await store.proposals(limit=_LOOKED_AT) if _is_fact_of(one, job)]
    said = [words_of(one.fact.content).split() for one in waiting if one.fact is not None and one.fact.content]
    known = await trace_store.database.read(
        lambda connection: {trace.id for trace in traces if says_nearly_the_same(connection, trace, rules)}
    )
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
    return {"duplicate": duplicate + before, "over_limit": over_limit, "proposed": len(new)}


def _is_fact_of(proposal: Proposal, job: IngestJob) -> bool:
    return proposal.fact is not None and proposal.scope.user_id == job.scope.user_id


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
