"""People's own personalities as documents: the place where many workers share them.

A worker has a copy of all in memory, and `refresh` compares their hashes, so what did not change is not read again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from gateway.domain.personalities.places import NAMES, PARTS, PREVIOUS_NAME, Change, OwnFiles
from gateway.memory import rules
from gateway.memory.paths import COMPLETE
from gateway.store.engine import Connection, Engine
from gateway.store.payloads import to_ms

_ROOT = "personalities/"
_HASHES = "SELECT path, sha256 FROM documents WHERE path >= 'personalities/' AND path < 'personalities0'"
_LOAD = "SELECT content, sha256 FROM documents WHERE path = ?"
# Of these the memory keeps no history, so they have no place in one.
_PUT = """
    INSERT INTO documents (path, content, version, sha256, position, archive, modified_at)
    VALUES (?, ?, 1, ?, 0, ?, ?)
    ON CONFLICT (path) DO UPDATE SET content = excluded.content, version = documents.version + 1,
        sha256 = excluded.sha256, modified_at = excluded.modified_at
"""


class StoredPersonalities:
    """The `PersonalityPlace` over an engine; it has nothing before the first `refresh`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.of("documents")
        self._held: dict[str, tuple[str, bytes]] = {}  # by path: hash and text

    def names(self) -> Sequence[str]:
        return sorted({path.split("/")[1] for path in self._held})

    def stamp(self, personality_id: str) -> Hashable | None:
        stamp = tuple(self._hash(personality_id, name) for name in PARTS)
        return stamp if any(stamp) else None

    def read(self, personality_id: str, name: str) -> bytes | None:
        return self._text(f"{_ROOT}{personality_id}/{name}")

    def previous(self, personality_id: str) -> Mapping[str, bytes] | None:
        place = f"{_ROOT}{personality_id}/{PREVIOUS_NAME}/"
        if self._text(f"{place}{COMPLETE}") is None:
            return None
        found = {name: self._text(f"{place}{name}") for name in NAMES}
        return {name: data for name, data in found.items() if data is not None}

    async def refresh(self) -> None:
        rows = await self._engine.ask(lambda connection: connection.execute(_HASHES).fetchall)
        hashes = {row["path"]: row["sha256"] for row in rows if _is_ours(row["path"])}
        held = self._held
        changed = [path for path, sha256 in hashes.items() if path not in held or held[path][0] != sha256]
        if changed or len(hashes) != len(held):
            loaded = await self._engine.read(partial(_loaded, paths=changed)) if changed else {}
            self._held = {path: held[path] for path in hashes if path in held and path not in loaded} | loaded

    async def change(self, personality_id: str, change: Change) -> None:
        place = f"{_ROOT}{personality_id}/"
        work = partial(_change, place=place, change=change)
        await self._engine.write(work, alone=(f"documents {place}",))
        await self.refresh()

    def _hash(self, personality_id: str, name: str) -> str | None:
        held = self._held.get(f"{_ROOT}{personality_id}/{name}")
        return None if held is None else held[0]

    def _text(self, path: str) -> bytes | None:
        held = self._held.get(path)
        return None if held is None else held[1]


def _is_ours(path: str) -> bool:
    """Whether it is a file of a personality, or what is kept of one; the memory's are none."""
    match path.split("/")[2:]:
        case [name]:
            return name in NAMES
        case [previous, name]:
            return previous == PREVIOUS_NAME and name in (*NAMES, COMPLETE)
    return False


def _loaded(connection: Connection, *, paths: Sequence[str], locked: str = "") -> dict[str, tuple[str, bytes]]:
    rows = ((path, connection.execute(f"{_LOAD} {locked}", (path,)).fetchone()) for path in paths)
    return {path: (row["sha256"], bytes(row["content"])) for path, row in rows if row is not None}


def _change(connection: Connection, *, place: str, change: Change) -> None:
    before = f"{place}{PREVIOUS_NAME}/"
    paths = [*(f"{where}{name}" for where in (place, before) for name in NAMES), f"{before}{COMPLETE}"]
    found = _loaded(connection, paths=paths, locked=connection.dialect.locked)
    own, kept = ({name: found[f"{at}{name}"][1] for name in NAMES if f"{at}{name}" in found} for at in (place, before))
    wanted = change(OwnFiles(files=own, previous=kept if f"{before}{COMPLETE}" in found else None))
    _put(connection, before, {**own, COMPLETE: b""})
    _put(connection, place, wanted)


def _put(connection: Connection, place: str, files: Mapping[str, bytes]) -> None:
    """Have these there and no others."""
    for name in NAMES:
        if name not in files:
            connection.execute("DELETE FROM documents WHERE path = ?", (f"{place}{name}",))
    for name, data in files.items():
        values = (f"{place}{name}", data, rules.version(data), b"", to_ms(datetime.now(UTC)))
        connection.execute(_PUT, values)
