"""Notes in memory, for adapters under test; they outlive the adapter, as those of a store do."""

from __future__ import annotations

from collections.abc import Sequence


class FakeNotes:
    """Follows `gateway.protocols.AdapterNotes`."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def get(self, key: str) -> str | None:
        return self.texts.get(key)

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        del is_durable
        self.texts[key] = text

    async def remove(self, key: str) -> None:
        self.texts.pop(key, None)

    async def keys(self, prefix: str = "") -> Sequence[str]:
        return sorted(key for key in self.texts if key.startswith(prefix))
