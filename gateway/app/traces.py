"""Puts the trace memory together, as the configuration says; a part of the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.agent.embedding_meter import MeteredEmbedder
from gateway.agent.embeddings import PaidEmbedder
from gateway.agent.tools import Tool
from gateway.config import OFFLINE, Config, TracesConfig
from gateway.domain.personalities import Personalities
from gateway.errors import EthosError
from gateway.memory.ingest import IngestWorker
from gateway.memory.prompt_excerpt import Filler
from gateway.memory.render import render_memory
from gateway.protocols import MemoryContext
from gateway.traces.approved import ApprovedFacts
from gateway.traces.archive import shorten_old
from gateway.traces.consolidation import Consolidation
from gateway.traces.llm_prompts import gist_by, insight_by
from gateway.traces.memory import TraceMemory
from gateway.traces.personality_traits import IngestRules, modulated
from gateway.traces.schedule import ConsolidationSchedule
from gateway.traces.tools import trace_tools
from gateway.traces.trace import DAY_MS
from gateway.traces.trace_store import BRAIN_NAME, Brain, PersonIds, open_brain
from gateway.traces.turn_facts import Offers, RulesOf, TurnFactsTaker

if TYPE_CHECKING:
    from gateway.app.wiring import Composition
    from gateway.traces.vectorizing import Vectorizing

_HEADINGS_CHARS = 64
"""More than the headings of a memory section take."""


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


async def open_configured_brain(
    stack: AsyncExitStack, home: Path, config: Config, person_ids: PersonIds
) -> Brain | None:
    """The brain in the data directory, closed with the stack; None where traces are off.

    Args:
        stack: closes it.
        home: the data directory.
        config: says whether, and how long a trace lasts.
        person_ids: who is one person with whom, since accounts are linked.

    Raises:
        StoreError, UnsafePath: it cannot be used.
    """
    traces = config.memory.traces
    if not traces.enabled:
        return None
    stability_ms = traces.stability_days * DAY_MS
    brain = await asyncio.to_thread(open_brain, home / BRAIN_NAME, stability_ms=stability_ms, person_ids=person_ids)
    return await stack.enter_async_context(brain)


def compose_traces(gateway: Composition) -> Traces:
    """The parts around the gateway's brain."""
    config, brain = gateway.config, gateway.brain
    if brain is None:
        return Traces()
    model, store = gateway.meter.model, gateway.store
    traces = config.memory.traces
    rules = rules_by_traits(traces, gateway.personalities)
    consolidating = partial(model, traces.consolidate.model)
    # The offline model has no insight to give; asking it would only cost time.
    has_insight = (traces.consolidate.model or config.model) != OFFLINE
    consolidation = Consolidation(brain, insight=insight_by(consolidating) if has_insight else None)
    schedule = ConsolidationSchedule(
        brain,
        consolidation,
        at=time.fromisoformat(traces.consolidate.at),
        gists=partial(shorten_old, brain, gist_by(consolidating)) if traces.gist else None,
    )
    embedder, vectorizing = _compose_vectors(gateway, brain)
    offers = Offers()
    taker = TurnFactsTaker(brain, partial(model, traces.ingest.model), rules, store.proposals, embedder, offers=offers)
    memory = TraceMemory(
        brain,
        rules=rules,
        counts=store.ingest,
        ingest=IngestWorker(store.ingest, taker) if traces.ingest.enabled else None,
        schedule=schedule if traces.consolidate.enabled else None,
        vectorizing=vectorizing,
        offers=offers,
    )
    return Traces(
        memory, tuple(trace_tools(brain, consolidation)), ApprovedFacts(brain, store.proposals), consolidation
    )


def _compose_vectors(gateway: Composition, brain: Brain) -> tuple[PaidEmbedder | None, Vectorizing | None]:
    """What makes vectors, and makes them in the background; neither where no embeddings are configured.

    Raises:
        ConfigError: the libraries are missing.
    """
    embeddings = gateway.config.memory.traces.embeddings
    name = embeddings.model
    if name is None:
        return None, None
    gateway.models.embedder(name, embeddings.dimensions)  # what cannot work is an error of the start
    from gateway.traces.query_vectors import QueryVectors  # noqa: PLC0415 (numpy, an extra)
    from gateway.traces.vectorizing import Vectorizing  # noqa: PLC0415 (as above)

    embedder = MeteredEmbedder(
        gateway.meter, gateway.model_states, lambda: gateway.models.embedder(name, embeddings.dimensions)
    )
    brain.meaning = QueryVectors(embedder, timeout_s=embeddings.query_timeout_s, least=embeddings.least_similarity)
    return embedder, Vectorizing(brain, embedder, batch=embeddings.batch)


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
            traits = dict(personalities.get(personality_id).traits)
        except EthosError:  # it is gone, or broken: what it heard is kept by the rules of the configuration
            return base
        honesty = traits.pop("honesty_humility", None)
        return modulated(base, traits if honesty is None else {**traits, "honesty": honesty})

    return rules


def memory_section(config: Callable[[], Config]) -> Callable[[MemoryContext, str], Awaitable[str | None]]:
    """Makes the memory section of a prompt, of what is remembered and what is asked, as the configuration is then."""
    filler = Filler()

    async def section(context: MemoryContext, question: str) -> str | None:
        memory = config().memory
        chars = len(context.user_memory or "") + len(context.project_memory or "") + _HEADINGS_CHARS
        if memory.traces.recall == "tail" or chars <= memory.max_chars:
            return render_memory(context, memory.max_chars)

        def fill(text: str, room_chars: int) -> str | None:
            return filler.fill(text, question, room_chars, datetime.now(UTC).date())

        return await asyncio.to_thread(render_memory, context, memory.max_chars, fill=fill)

    return section
