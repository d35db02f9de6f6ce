"""`traces`: USER.md and MEMORY.md in the trace memory's database, each line of them found like a fact."""

from __future__ import annotations

from gateway.config.values import Section
from gateway.errors import MemoryUnavailable
from gateway.memory.kinds import OwnServices
from gateway.protocols import MemoryProvider


class Config(Section):
    """Nothing to choose: `memory.traces` says how facts are found and kept, and is on with this kind."""


def provider(config: Config, services: OwnServices) -> MemoryProvider:  # noqa: ARG001 (as every kind)
    """The memory over the trace store that is open.

    Raises:
        MemoryUnavailable: there is none.
    """
    if services.traces is None:
        raise MemoryUnavailable("the trace store is not open; set `memory.provider: traces` in config.yaml first")
    return services.traces()
