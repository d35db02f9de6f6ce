"""The memory as erasures and exports see it: what it can do for a person, and one line of what it cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gateway.protocols import ErasableMemory, ExportableMemory, MemoryProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalMemory:
    """The memory of a gateway; `kind` is what the configuration calls it."""

    provider: MemoryProvider
    kind: str

    @property
    def left_by_erasure(self) -> str | None:
        """What stays when a person is erased, and where; None where nothing does."""
        if isinstance(self.provider, ErasableMemory):
            return None
        return f"What the memory `{self.kind}` holds of the person stays there; the operator erases it by hand."

    @property
    def left_out_of_export(self) -> str | None:
        """What an export lacks; None where it lacks nothing."""
        if isinstance(self.provider, ExportableMemory):
            return None
        return f"What the memory `{self.kind}` holds of you is not in here, because that memory hands nothing over."

    async def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        """See `ErasableMemory.erase`; nothing where it is done by hand."""
        if isinstance(self.provider, ErasableMemory):
            await self.provider.erase(user_ids, lines)

    async def export(self, user_ids: Collection[str]) -> Mapping[str, bytes]:
        """See `ExportableMemory.export`; nothing where it hands nothing over."""
        return await self.provider.export(user_ids) if isinstance(self.provider, ExportableMemory) else {}
