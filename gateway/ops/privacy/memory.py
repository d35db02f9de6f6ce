"""The memory as erasures and exports see it: what it can do for a person, and one line of what it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gateway.errors import MemoryUnavailable
from gateway.protocols import ErasableMemory, ExportableMemory, MemoryProvider

T = TypeVar("T")
TIMEOUT_S = 120.0
"""For an erasure, which is tried again, or an export: both go through all documents of a person."""


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
            await _within_time(self.provider.erase(user_ids, lines))

    async def export(self, user_ids: Collection[str]) -> Mapping[str, bytes]:
        """See `ExportableMemory.export`; nothing where it hands nothing over."""
        if not isinstance(self.provider, ExportableMemory):
            return {}
        return await _within_time(self.provider.export(user_ids))


async def _within_time(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await work
    except TimeoutError as error:
        raise MemoryUnavailable(f"the memory has not answered within {TIMEOUT_S:g} s") from error
