"""Puts the trace memory together, as the configuration says; a part of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import time
from functools import partial
from pathlib import Path

from gateway.agent.model import Model
from gateway.agent.tools import Tool
from gateway.config import OFFLINE, Config, TracesConfig
from gateway.errors import EthosError
from gateway.ingest import IngestWorker
from gateway.memory.fill import Filler
from gateway.memory.render import render_memory
from gateway.memory.traces.archive import shorten_old
from gateway.memory.traces.asking import gist_by, insight_by
from gateway.memory.traces.brain import BRAIN_NAME, Brain, open_brain
from gateway.memory.traces.consolidation import Consolidation
from gateway.memory.traces.hexaco import IngestRules, modulated
from gateway.memory.traces.memory import TraceMemory
from gateway.memory.traces.schedule import ConsolidationSchedule
from gateway.memory.traces.tools import trace_tools
from gateway.memory.traces.trace import DAY_MS
from gateway.memory.traces.turn_facts import RulesOf, TurnFactsTaker
from gateway.personalities import Personalities
from gateway.protocols import MemoryContext
from gateway.store.sqlite import SqliteStore


@dataclass(frozen=True, slots=True)
class Traces:
    """What the gateway has of the trace memory."""

    memory: TraceMemory
    tools: tuple[Tool, ...]


def open_configured_brain(home: Path, config: Config) -> Brain | None:
    """The brain in the data directory; None where traces are off. Blocks.

    Raises:
        StoreError, UnsafePath: it cannot be used.
    """
    traces = config.memory.traces
    return open_brain(home / BRAIN_NAME, stability_ms=traces.stability_days * DAY_MS) if traces.enabled else None


def compose_traces(
    config: Config,
    brain: Brain,
    store: SqliteStore,
    *,
    model: Callable[[str | None], Model],
    personalities: Personalities,
) -> Traces:
    """The parts around the brain.

    Args:
        config: the whole.
        brain: open; closed by who opened it.
        store: has the jobs.
        model: by its name; None for the default one.
        personalities: whose traits change the rules.
    """
    traces = config.memory.traces
    rules = rules_by_traits(traces, personalities)
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
    taker = TurnFactsTaker(brain, partial(model, traces.ingest.model), rules)
    memory = TraceMemory(
        brain,
        rules=rules,
        counts=store.ingest,
        ingest=IngestWorker(store.ingest, taker) if traces.ingest.enabled else None,
        schedule=schedule if traces.consolidate.enabled else None,
    )
    return Traces(memory, tuple(trace_tools(brain, consolidation)))


def rules_by_traits(traces: TracesConfig, personalities: Personalities) -> RulesOf:
    """What the configuration says, as each personality's traits change it; edits count at once."""
    base = IngestRules(
        threshold=traces.ingest.threshold,
        most=traces.ingest.most,
        duplicate_from=traces.ingest.duplicate_from,
        consolidate_every_turns=traces.consolidate.every_turns,
    )

    def rules(personality_id: str) -> IngestRules:
        try:
            traits = dict(personalities.get(personality_id).traits)
        except EthosError:  # it is gone, or broken: what it heard is kept by the rules of the configuration
            return base
        honesty = traits.pop("honesty_humility", None)
        return modulated(base, traits if honesty is None else {**traits, "honesty": honesty})

    return rules


def memory_section(config: Config) -> Callable[[MemoryContext, str], str | None]:
    """Makes the memory section of a prompt, of what is remembered and what is asked."""
    max_chars, traces = config.memory.max_chars, config.memory.traces
    if not traces.enabled or traces.recall == "tail":
        return lambda context, _question: render_memory(context, max_chars)
    filler = Filler()

    def section(context: MemoryContext, question: str) -> str | None:
        return render_memory(context, max_chars, fill=lambda text, room_chars: filler.fill(text, question, room_chars))

    return section
