"""The memories that a configuration can name. Each module has a `Config` and a `provider(config, services)`.

A package of somebody else has the same two, and is named with a dot in it; see docs/memory-providers.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.memory.journal import MemoryJournal
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.memory.stored.memory import DocumentStore
from gateway.protocols import MemoryProvider, MemoryServices
from gateway.runtime.failpoints import reach


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServices(MemoryServices):
    """What our own kinds are lent besides.

    Attributes:
        home: the data directory.
        journal: of the gateway's database; the history of files.
        lock_timeout_s: how long a write of a file waits for another process.
        documents: of the gateway's database.
        traces: makes the memory over the open trace store; None where none is open.
    """

    home: Path
    journal: MemoryJournal
    documents: DocumentStore
    lock_timeout_s: float
    traces: Callable[[], MemoryProvider] | None = None

    def files(self, root: Path) -> MarkdownFileMemoryProvider:
        """Markdown files below a directory."""
        return MarkdownFileMemoryProvider(
            root,
            self.journal,
            max_file_bytes=self.max_document_bytes,
            lock_timeout_s=self.lock_timeout_s,
            on_step=lambda step: reach(f"memory.{step}"),
        )
