"""The choice of a memory: a personality, a user, and perhaps one of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlencode

from gateway.protocols import MemoryStoreName
from gateway.services.naming import Wanted
from gateway.web.dashboard.page import BASE

FILE_NAMES: Mapping[MemoryStoreName, str] = {"user": "USER.md", "memory": "MEMORY.md"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What an address or a form says. Ids are looked at by the service."""

    personality: str | None = None
    user: str | None = None
    store: MemoryStoreName | None = None

    @property
    def wanted(self) -> Wanted:
        """The same, as the service takes it."""
        return Wanted(personality=self.personality, user=self.user, store=self.store)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """As fields of a form, or the query of an address."""
        named = (("personality", self.personality), ("user", self.user), ("store", self.store))
        return [(name, value) for name, value in named if value]

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return FILE_NAMES[self.store or "memory"]

    def path(self, part: Literal["", "edit", "history"] = "", *, with_store: bool = True) -> str:
        """The address of a page about it."""
        pairs = self.pairs if with_store else [pair for pair in self.pairs if pair[0] != "store"]
        address = f"{BASE}/memory/{part}".rstrip("/")
        return f"{address}?{urlencode(pairs)}" if pairs else address


def choice_of(values: Mapping[str, str]) -> Choice:
    """What the fields or the query say; an unknown store is none."""
    store = values.get("store")
    return Choice(
        personality=values.get("personality") or None,
        user=values.get("user") or None,
        store=cast("MemoryStoreName", store) if store in FILE_NAMES else None,
    )
