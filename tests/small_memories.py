"""Memories that can do little: one that a gateway only notes in, and one whose text people edit, too."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel

from gateway.errors import MemoryConflict
from gateway.protocols import (
    MemoryContext,
    MemoryDocument,
    MemoryScope,
    MemoryServices,
    MemoryStoreName,
    MemoryUpdate,
    SyncReport,
    UpdateOutcome,
)

Key = tuple[str | None, ...]


class NotedMemory:
    """Texts in a dictionary: no more than every memory must do."""

    def __init__(self) -> None:
        self.texts: dict[Key, str] = {}
        self._done: set[tuple[str, int]] = set()

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        user, project = (self.texts.get(_key(scope, store), "").strip() or None for store in ("user", "memory"))
        return MemoryContext(user_memory=user, project_memory=project) if user or project else None

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        return SyncReport(outcomes=tuple(self._apply(scope, index, update) for index, update in enumerate(updates)))

    def _apply(self, scope: MemoryScope, index: int, update: MemoryUpdate) -> UpdateOutcome:
        if (scope.turn_id, index) in self._done:
            return "replayed"
        self._done.add((scope.turn_id, index))
        key = _key(scope, update.store)
        before = self.texts.get(key, "")
        if update.action == "remove":
            kept = [line for line in before.splitlines(keepends=True) if update.content not in line]
            self.texts[key] = "".join(kept)
            return "applied" if self.texts[key] != before else "no_match"
        kept_text = "" if update.action == "replace" else before
        self.texts[key] = f"{kept_text}{update.content}\n"
        return "applied"


class EditedMemory(NotedMemory):
    """One whose text people edit, without a history."""

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        text = self.texts.get(_key(scope, store))
        return MemoryDocument(
            content=text or "",
            location=f"a dictionary, {store}",
            modified_at=None if text is None else datetime(2026, 1, 1, tzinfo=UTC),
            version=hashlib.sha256((text or "").encode()).hexdigest(),
        )

    async def write(
        self, scope: MemoryScope, store: MemoryStoreName, content: str, expected_version: str
    ) -> MemoryDocument:
        now = await self.read(scope, store)
        if now.version != expected_version:
            raise MemoryConflict(proposed=content, current=now.content, current_version=now.version)
        self.texts[_key(scope, store)] = content
        return await self.read(scope, store)


def _key(scope: MemoryScope, store: MemoryStoreName) -> Key:
    if store == "user":
        return "user", scope.user_id
    return {
        "global": ("memory",),
        "per-personality": ("memory", scope.personality_id),
        "per-user": ("memory", scope.personality_id, scope.user_id),
    }[scope.place]


class Config(BaseModel):
    """Which of both."""

    edited: bool = False


def provider(config: Config, services: MemoryServices) -> NotedMemory:
    """One that is empty."""
    return EditedMemory() if config.edited else NotedMemory()
