"""A memory that lives as long as the process: for tests, and for whoever wants nothing kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gateway.errors import InvalidId, MemoryConflict
from gateway.memory import rules
from gateway.memory.journal import HASH_OF_NOTHING, Key
from gateway.memory.paths import check_ids, document_key
from gateway.protocols import (
    MemoryContext,
    MemoryDocument,
    MemoryScope,
    MemoryStoreName,
    MemoryUpdate,
    SyncReport,
    UpdateOutcome,
)

MAX_BYTES = 512 * 1024


class InMemoryProvider:
    """A `MemoryProvider` and an `EditableMemory` without files. The rules are those of the Markdown files."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._texts: dict[str, tuple[bytes, datetime]] = {}
        self._done: set[Key] = set()

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        """Both texts as they are now; None when both are blank or absent."""
        check_ids(scope)
        user, project = (self._text(document_key(scope, store)) for store in ("user", "memory"))
        if user is None and project is None:
            return None
        return MemoryContext(user_memory=user, project_memory=project)

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        """Apply the updates in order, each turn id and index once. There is no await in it, so nobody comes between."""
        check_ids(scope)
        return SyncReport(
            outcomes=tuple(self._apply(scope, (scope.turn_id, i), each) for i, each in enumerate(updates))
        )

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        """The text of one store, empty where there is none yet.

        Raises:
            InvalidId: an id is malformed, or the store needs a user and there is none.
        """
        return self._document(self._key(scope, store))

    async def write(
        self, scope: MemoryScope, store: MemoryStoreName, content: str, expected_version: str
    ) -> MemoryDocument:
        r"""Replace the text as given (line ends become `\n`), if it is still the version that was read.

        Raises:
            MemoryConflict: it is not; carries both texts.
            InvalidId: an id is malformed, or the store needs a user and there is none.
        """
        key = self._key(scope, store)
        current = self._document(key)
        if current.version != expected_version:
            raise MemoryConflict(proposed=content, current=current.content, current_version=current.version)
        self._put(key, rules.encode(rules.clean(content)))
        return self._document(key)

    def _apply(self, scope: MemoryScope, key: Key, update: MemoryUpdate) -> UpdateOutcome:
        if key in self._done:
            return "replayed"
        self._done.add(key)
        document = document_key(scope, update.store)
        if document is None:
            return "no_match"
        data = self._texts[document][0] if document in self._texts else b""
        after = rules.apply(rules.decode(data), update)
        if after is None:
            return "no_match"
        self._put(document, rules.encode(after))
        return "applied"

    def _put(self, key: str, data: bytes) -> None:
        if data or key in self._texts:
            self._texts[key] = rules.cut_to_size(data, self._max_bytes)[1], datetime.now(UTC)

    def _text(self, key: str | None) -> str | None:
        text = rules.show(self._texts[key][0]) if key in self._texts else ""
        return text if text.strip() else None

    def _key(self, scope: MemoryScope, store: MemoryStoreName) -> str:
        check_ids(scope)
        key = document_key(scope, store)
        if key is None:
            raise InvalidId("user", "")
        return key

    def _document(self, key: str) -> MemoryDocument:
        if key not in self._texts:
            return MemoryDocument(content="", path=Path(key), modified_at=None, version=HASH_OF_NOTHING)
        data, modified_at = self._texts[key]
        return MemoryDocument(
            content=rules.show(data), path=Path(key), modified_at=modified_at, version=rules.version(data)
        )
