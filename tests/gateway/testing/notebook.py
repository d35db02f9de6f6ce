"""A memory of somebody else, in a file of SQLite; with a fault on request, so that the suites and the hammer find it.

It imports what a package outside of this repository may: the contract, and the public texts of its rules.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from gateway.errors import InvalidId
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate, SyncReport, UpdateOutcome

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (key TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS done (turn TEXT, number INTEGER, PRIMARY KEY (turn, number));
"""


class Notebook:
    """A `MemoryProvider`; `fault` is one of those that its methods name."""

    def __init__(self, path: str | Path, fault: str = "") -> None:
        self._path = path
        self._fault = fault

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        user, memory = self._keys(scope)
        with closing(self._connected()) as connection:
            texts = [self._text(connection, key) or None for key in (user, memory)]
        if texts == [None, None]:
            return None
        return MemoryContext(user_memory=texts[0], project_memory=texts[1])

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        keys = self._keys(scope)
        outcomes: list[UpdateOutcome] = []
        with closing(self._connected()) as connection:
            if self._fault != "overwrites":
                connection.execute("BEGIN IMMEDIATE")
            for number, update in enumerate(updates):
                key = keys[0] if update.store == "user" else keys[1]
                row = (scope.turn_id, number)
                seen = connection.execute("SELECT 1 FROM done WHERE turn = ? AND number = ?", row).fetchone()
                if seen and self._fault != "doubles":
                    outcomes.append("replayed")
                    continue
                connection.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", row)
                before = self._text(connection, key)
                if self._fault == "overwrites":
                    await asyncio.sleep(0.005)
                after = _applied(before, update)
                connection.execute("REPLACE INTO documents VALUES (?, ?)", (key, after))
                is_blank = update.action == "add" and not update.content.strip()
                is_known = bool(key) and (after != before or update.action == "replace") and not is_blank
                outcomes.append("applied" if is_known else "no_match")
            if self._fault != "overwrites":
                connection.execute("COMMIT")
        return SyncReport(outcomes=tuple(outcomes))

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        connection.executescript(_SCHEMA)
        return connection

    def _text(self, connection: sqlite3.Connection, key: str) -> str:
        found = connection.execute("SELECT text FROM documents WHERE key = ?", (key,)).fetchone()
        return found[0] if found and key else ""

    def _keys(self, scope: MemoryScope) -> tuple[str, str]:
        for kind, value in (("personality", scope.personality_id), ("user", scope.user_id)):
            if value is not None and not _ID.match(value) and self._fault != "takes any id":
                raise InvalidId(kind, value)
        user = "" if scope.user_id is None else f"user {scope.user_id}"
        memory = {
            "per-personality": f"personality {scope.personality_id}",
            "global": "all",
            "per-user": f"{user} {scope.personality_id}" if user else "",
        }[scope.place]
        return user, "personality" if self._fault == "mixes personalities" else memory


def _applied(text: str, update: MemoryUpdate) -> str:
    content = re.sub("[\0\ud800-\udfff]", "\ufffd", update.content.replace("\r\n", "\n"))
    if update.action == "remove":
        if not content.strip() or not any(content in line for line in text.split("\n")):
            return text
        kept = "\n".join(line for line in text.split("\n") if content not in line).rstrip("\n")
        return f"{kept}\n" if kept else ""
    content = content.strip()
    if not content:
        return "" if update.action == "replace" else text
    return f"{text}\n{content}\n" if text and update.action == "add" else f"{content}\n"
