"""The vectors of questions on the command line, as the gateway has them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.agent.embeddings import MeteredEmbedder
from gateway.agent.meter import Meter
from gateway.agent.model_states import ModelStates
from gateway.agent.providers.registry import ModelRegistry
from gateway.app.settings import budgets_of
from gateway.cli.data import opened_or_empty_store, operator_config
from gateway.config.file import load_config
from gateway.errors import ConfigError
from gateway.traces.trace_store import TraceStore

_PATIENCE_S = 15.0


@asynccontextmanager
async def meaning_of(home: Path, trace_store: TraceStore) -> AsyncIterator[Callable[[], str | None]]:
    """Let the trace store find by meaning, where embeddings are configured; what is given says why it could not.

    The calls are counted, and held by the budgets, as those of the gateway.
    """
    name = operator_config(home).memory.traces.embeddings.model
    if name is None:
        yield lambda: None
        return
    try:
        config = load_config(home=home).config
        registry = ModelRegistry(config)
        registry.embedder(name, config.memory.traces.embeddings.dimensions)
    except ConfigError as error:
        problem = str(error)
        yield lambda: problem
        return
    async with opened_or_empty_store(home) as store:
        meter = Meter(registry.get, store.usage, budgets_of(config), registry, owner=f"command-{os.getpid()}")
        from gateway.traces.query_vectors import QueryVectors

        embeddings = config.memory.traces.embeddings
        embedder = MeteredEmbedder(meter, ModelStates(), lambda: registry.embedder(name, embeddings.dimensions))
        # Whoever waits at a terminal has time; the import of the libraries alone takes a second.
        meaning = QueryVectors(embedder, timeout_s=_PATIENCE_S, least=embeddings.least_similarity)
        trace_store.meaning = meaning
        try:
            yield lambda: meaning.problem
        finally:
            await registry.close()
