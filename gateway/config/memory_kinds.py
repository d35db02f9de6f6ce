"""From `memory.provider` to the module behind it. Only the one that is configured is loaded."""

from __future__ import annotations

from typing import Any

from gateway.config.packages import Kind, Packages
from gateway.protocols import MemoryProvider, MemoryServices

DEFAULT_KIND = "markdown"
DATABASE_KIND = "database"
"""Its documents are in the gateway's own database; the default where many workers share that."""
TRACES_KIND = "traces"
"""Its documents are in the trace store, which is open whenever this kind is chosen."""
PACKAGES = Packages("gateway.memory.kinds", maker="provider", what="memory")


class MemoryKind(Kind):
    """A module that gives a memory: `Config` (a pydantic model), and `provider(config, services)`."""

    def provider(self, settings: Any, services: MemoryServices) -> MemoryProvider:
        """Make the memory; `settings` is an instance of `config`, None for its defaults."""
        made: MemoryProvider = self.module.provider(self.config() if settings is None else settings, services)
        return made


_ON_ONE_MACHINE = {
    "markdown": "its files lie on one machine, and every worker must read what any of them wrote",
    "webdav": "the copies that it merges with lie on one machine, and every worker must have the same ones",
}


def kind_on_server(kind: str | None) -> str:
    """The kind of memory where the gateway's database is on a server, for many workers; None: none is configured.

    Raises:
        ValueError: says why this kind cannot be used there.
    """
    if kind in _ON_ONE_MACHINE:
        raise ValueError(
            f"`{kind}` cannot be used with `store.url`: {_ON_ONE_MACHINE[kind]}; expected `{DATABASE_KIND}`, or the "
            "line left out. `ethos files pull --watch` keeps the documents as files wherever you want them"
        )
    return DATABASE_KIND if kind is None else kind


def load_memory_kind(kind: str) -> MemoryKind:
    """Load the module of a kind: `name` is `gateway.memory.kinds.name`, a dotted one is a third party's.

    Raises:
        KindUnusable: says whether the kind is unknown, a library is missing, or the package is broken.
    """
    return MemoryKind(kind, PACKAGES.load(kind))
