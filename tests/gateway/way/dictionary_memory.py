"""A memory of somebody else, as small as one can be; it lives as long as the process."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, SecretStr

from gateway.protocols import MemoryContext, MemoryScope, MemoryServices, MemoryUpdate, SyncReport, UpdateOutcome


class Config(BaseModel):
    """Its own key."""

    model_config = ConfigDict(extra="forbid")
    heading: str = "Notes"
    is_broken: bool = False
    url: SecretStr = SecretStr("")


class Notes:
    """What was added, by whom."""

    def __init__(self, heading: str = "Notes") -> None:
        self.heading = heading
        self.lines: dict[str | None, list[str]] = {}
        self.done: set[tuple[str, int]] = set()
        self.life: list[str] = []

    async def open(self) -> None:
        self.life.append("opened")

    async def close(self) -> None:
        self.life.append("closed")

    async def check(self) -> Sequence[str]:
        self.life.append("checked")
        return []

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        lines = self.lines.get(scope.user_id)
        return MemoryContext(user_memory="\n".join([self.heading, *lines]), project_memory=None) if lines else None

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        outcomes: list[UpdateOutcome] = []
        for index, update in enumerate(updates):
            is_new = (scope.turn_id, index) not in self.done
            self.done.add((scope.turn_id, index))
            if is_new:
                self.lines.setdefault(scope.user_id, []).append(update.content)
            outcomes.append("applied" if is_new else "replayed")
        return SyncReport(outcomes=tuple(outcomes))


def provider(config: Config, services: MemoryServices) -> Notes:
    """The memory of the gateway that asks."""
    assert type(services) is MemoryServices  # nothing of the gateway's own
    if config.is_broken:
        raise RuntimeError(f"no such table{config.url.get_secret_value()}")
    return Notes(config.heading)
