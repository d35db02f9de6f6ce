"""The memory as erasures and exports see it: what it can do for a person, and one line of what it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gateway.errors import MemoryUnavailable
from gateway.protocols import ErasableMemory, ExportableMemory, ListsDocuments, MemoryProvider

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

    async def owners(self) -> Collection[str]:
        """The ids of users who have documents there; none where the memory does not say."""
        keys = await _within_time(self.provider.keys()) if isinstance(self.provider, ListsDocuments) else ()
        return owners_of(keys)

    async def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        """See `ErasableMemory.erase`; nothing where it is done by hand."""
        if isinstance(self.provider, ErasableMemory):
            await _within_time(self.provider.erase(user_ids, lines))

    async def export(self, user_ids: Collection[str]) -> Mapping[str, bytes]:
        """See `ExportableMemory.export`; nothing where it hands nothing over."""
        if not isinstance(self.provider, ExportableMemory):
            return {}
        return await _within_time(self.provider.export(user_ids))


def owners_of(paths: Iterable[str]) -> Collection[str]:
    """Whose documents these are, without those that others read, too."""
    return {path.split("/")[1] for path in paths if path.startswith("users/")}


async def _within_time(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await work
    except TimeoutError as error:
        raise MemoryUnavailable(f"the memory has not answered within {TIMEOUT_S:g} s") from error
