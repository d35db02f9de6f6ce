"""Puts the trace memory together, as the configuration says; a part of the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.agent.providers.embeddings import MeteredEmbedder
from gateway.cluster.jobs import Jobs
from gateway.config import OFFLINE, Config, LiveConfig, TracesConfig
from gateway.domain.personalities import Personalities
from gateway.errors import EthosError
from gateway.memory.ingest import IngestWorker
from gateway.protocols import MemoryProvider
from gateway.tools.contract import Tool
from gateway.traces.approved import ApprovedFacts
from gateway.traces.archive import shorten_old
from gateway.traces.consolidation import Consolidation
from gateway.traces.llm_prompts import gist_by, insight_by
from gateway.traces.memory import TraceMemory
from gateway.traces.personality_traits import IngestRules, apply_traits
from gateway.traces.provider import TraceMemoryProvider
from gateway.traces.schedule import ConsolidationSchedule
from gateway.traces.tools import trace_tools
from gateway.traces.trace import DAY_MS
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store, shared_trace_store
from gateway.traces.turn_facts import OfferedTraces, RulesOf, TurnFactExtractor

if TYPE_CHECKING:
    from gateway.agent.meter import Meter
    from gateway.agent.providers.registry import LiveModels
    from gateway.config import EmbeddingsConfig
    from gateway.store.stores import Stores
    from gateway.traces.vectorizing import Vectorizing


@dataclass(frozen=True, slots=True)
class Traces:
    """What the gateway has of the trace memory; nothing where it is off."""

    memory: TraceMemory | None = None
    tools: tuple[Tool, ...] = ()
    facts: ApprovedFacts | None = None
    consolidation: Consolidation | None = None

    async def run(self) -> None:
        """Do what turns left to do, until cancelled."""
        if self.memory is None or self.facts is None:
            await asyncio.Event().wait()
            return
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.memory.run(), name="trace memory")
            parts.create_task(self.facts.run(), name="approved facts")


async def open_configured_traces(stack: AsyncExitStack, home: Path, config: Config, store: Stores) -> TraceStore | None:
    """The trace store, in a file of the data directory or in the shared database; None where traces are off.

    Args:
        stack: closes it.
        home: the data directory.
        config: says whether, and how long a trace lasts.
        store: the gateway's; knows who is one person with whom, since accounts are linked.

    Raises:
        StoreError, UnsafePath: it cannot be used.
    """
    traces = config.memory.traces
    if not config.memory.has_traces:
        return None
    stability_ms = traces.stability_days * DAY_MS
    person_ids = store.links.person_ids
    if store.is_shared:
        return shared_trace_store(store.engine, stability_ms=stability_ms, person_ids=person_ids)
    trace_store = await asyncio.to_thread(
        open_trace_store, home / TRACES_NAME, stability_ms=stability_ms, person_ids=person_ids
    )
    return await stack.enter_async_context(trace_store)


def memory_in(trace_store: TraceStore | None, live: LiveConfig) -> Callable[[], MemoryProvider] | None:
    """What makes the memory of the kind `traces`; None where the trace store is not open."""
    if trace_store is None:
        return None
    return partial(TraceMemoryProvider, trace_store, lambda: live.current.memory)


def compose_traces(
    trace_store: TraceStore | None,
    config: Config,
    *,
    store: Stores,
    meter: Meter,
    models: LiveModels,
    personalities: Personalities,
    jobs: Jobs,
) -> Traces:
    """The parts around the trace store; none where it is off."""
    if trace_store is None:
        return Traces()
    traces = config.memory.traces
    rules = rules_by_traits(traces, personalities)
    consolidating = partial(meter.model, traces.consolidate.model)
    # The offline model has no insight to give; asking it would only cost time.
    has_insight = (traces.consolidate.model or config.model) != OFFLINE
    consolidation = Consolidation(trace_store, insight=insight_by(consolidating) if has_insight else None)
    schedule = ConsolidationSchedule(
        trace_store,
        consolidation,
        at=time.fromisoformat(traces.consolidate.at),
        gists=partial(shorten_old, trace_store, gist_by(consolidating)) if traces.gist else None,
        jobs=jobs,
    )
    embedder, vectorizing = _compose_vectors(trace_store, traces.embeddings, meter, models)
    offers = OfferedTraces()
    taker = TurnFactExtractor(
        trace_store, partial(meter.model, traces.ingest.model), rules, store.proposals, offers=offers, embedder=embedder
    )
    memory = TraceMemory(
        trace_store,
        rules=rules,
        counts=store.ingest,
        ingest=IngestWorker(store.ingest, taker) if traces.ingest.enabled else None,
        schedule=schedule if traces.consolidate.enabled else None,
        vectorizing=vectorizing,
        offers=offers,
    )
    return Traces(
        memory,
        tuple(trace_tools(trace_store, consolidation)),
        ApprovedFacts(trace_store, store.proposals),
        consolidation,
    )


def _compose_vectors(
    trace_store: TraceStore, embeddings: EmbeddingsConfig, meter: Meter, models: LiveModels
) -> tuple[MeteredEmbedder | None, Vectorizing | None]:
    """What makes vectors, and makes them in the background; neither where no embeddings are configured.

    Raises:
        ConfigError: the libraries are missing.
    """
    name = embeddings.model
    if name is None:
        return None, None
    models.current.embedder(name, embeddings.dimensions)  # what cannot work is an error of the start
    from gateway.traces.vectorizing import Vectorizing  # noqa: PLC0415 (numpy, an extra)
    from gateway.traces.vectors import QueryVectors  # noqa: PLC0415 (as above)

    embedder = MeteredEmbedder(meter, lambda: models.current.embedder(name, embeddings.dimensions))
    trace_store.meaning = QueryVectors(
        embedder, timeout_s=embeddings.query_timeout_s, least=embeddings.least_similarity
    )
    return embedder, Vectorizing(trace_store, embedder, batch=embeddings.batch)


def rules_by_traits(traces: TracesConfig, personalities: Personalities) -> RulesOf:
    """What the configuration says, as each personality's traits change it; edits count at once."""
    base = IngestRules(
        threshold=traces.ingest.threshold,
        most=traces.ingest.most,
        duplicate_from=traces.ingest.duplicate_from,
        consolidate_every_turns=traces.consolidate.every_turns,
        recall_chars=traces.recall_chars,
    )

    def rules(personality_id: str) -> IngestRules:
        try:
            return apply_traits(base, personalities.get(personality_id).traits)
        except EthosError:  # it is gone, or broken: what it heard is kept by the rules of the configuration
            return base

    return rules
