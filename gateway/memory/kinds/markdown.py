"""`markdown`: USER.md and MEMORY.md in the data directory."""

from __future__ import annotations

from gateway.config.values import Section
from gateway.memory.kinds import OwnServices
from gateway.memory.markdown import MarkdownFileMemoryProvider


class Config(Section):
    """Nothing to choose: `memory.max_file_bytes` and `memory.lock_timeout_s` are for all kinds."""


def provider(config: Config, services: OwnServices) -> MarkdownFileMemoryProvider:  # noqa: ARG001 (as every kind)
    """The files of the data directory."""
    return services.files(services.home)
