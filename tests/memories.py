"""A memory of any kind of ours as a gateway makes it, for processes that tests and benchmarks start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gateway.config import MemoryConfig
from gateway.config.memory_kinds import load_memory_kind
from gateway.memory.kinds import OwnServices
from gateway.protocols import OpensMemory
from gateway.store.documents import SqlDocuments
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.schema import migrate
from gateway.store.sqlite.search import register_functions
from gateway.testing.opening import opened
from gateway.traces.provider import TraceMemoryProvider
from gateway.traces.trace_store import TRACES_NAME, open_trace_store

MAX_DOCUMENT_BYTES = 1 << 22


@asynccontextmanager
async def memory(
    kind: str, home: str | Path, *, max_document_bytes: int = MAX_DOCUMENT_BYTES, **settings: Any
) -> AsyncIterator[Any]:
    """The memory of a data directory, open; `settings` are the kind's own."""
    home = Path(home)
    home.mkdir(mode=0o700, exist_ok=True)
    migrate(home / "ethos.db", prepare=register_functions)
    stack = AsyncExitStack()
    database = SqliteEngine(home / "ethos.db", prepare=register_functions)
    stack.push_async_callback(database.close)
    traces = await stack.enter_async_context(open_trace_store(home / TRACES_NAME)) if kind == "traces" else None
    limits = MemoryConfig(max_file_bytes=max_document_bytes)
    services = OwnServices(
        state_dir=home / "memory" / kind,
        max_document_bytes=max_document_bytes,
        home=home,
        journal=SqlMemoryJournal(database),
        documents=SqlDocuments(database, place="ethos.db"),
        lock_timeout_s=60,
        traces=None if traces is None else partial(TraceMemoryProvider, traces, lambda: limits),
    )
    found = load_memory_kind(kind)
    async with stack:
        made = found.provider(found.config.model_validate(settings), services)
        async with opened(made) as provider:
            yield provider
        if not isinstance(made, OpensMemory) and hasattr(made, "close"):
            await made.close()
