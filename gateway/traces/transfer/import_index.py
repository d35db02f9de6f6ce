"""What an import must remember of what it has read, on disk, because it may be more than fits into memory."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence

from gateway.traces.trace import Owner

_SCHEMA = """
    CREATE TABLE renamed (old TEXT PRIMARY KEY, new TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE seen (owner TEXT, type TEXT, hash TEXT, trace TEXT, PRIMARY KEY (owner, type, hash)) WITHOUT ROWID;
    CREATE TABLE ends (owner TEXT, id TEXT, PRIMARY KEY (owner, id)) WITHOUT ROWID;
    CREATE TABLE names (name TEXT PRIMARY KEY, trace TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE links (source TEXT, name TEXT, PRIMARY KEY (source, name)) WITHOUT ROWID;
"""
_RESOLVED = """
    SELECT DISTINCT links.source, names.trace FROM links JOIN names USING (name)
    WHERE links.source <> names.trace ORDER BY 1, 2
"""
_LOT = 500


class Scratch:
    """A database that nobody else sees, and that is gone when it is closed."""

    def __init__(self) -> None:
        # An empty name is a file of SQLite's own, https://www.sqlite.org/inmemorydb.html#temp_db
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_SCHEMA}")

    def close(self) -> None:
        """Throw it away."""
        self._connection.close()

    def add_renamed(self, old: str, new: str) -> None:
        """A trace of the source has another id here."""
        self._connection.execute("INSERT OR REPLACE INTO renamed VALUES (?, ?)", (old, new))

    def renamed(self, old: str) -> str | None:
        """The id that a trace of the source has here, if it is another."""
        return self._one("SELECT new FROM renamed WHERE old = ?", old)

    def add_seen(self, owner: Owner, kind: str, content_hash: str, trace_id: str) -> None:
        """A dry run would have put this in."""
        values = (_told(owner), kind, content_hash, trace_id)
        self._connection.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?)", values)

    def seen(self, owner: Owner, kind: str, content_hash: str) -> str | None:
        """The id of what a dry run would have put in with that content."""
        sql = "SELECT trace FROM seen WHERE owner = ? AND type = ? AND hash = ?"
        return self._one(sql, _told(owner), kind, content_hash)

    def add_end(self, end: str, owner: Owner | None = None) -> None:
        """A dry run would have put in a trace, or a node of that owner's, at which edges may end."""
        self._connection.execute("INSERT OR IGNORE INTO ends VALUES (?, ?)", (_told(owner), end))

    def has_end(self, end: str, owner: Owner | None = None) -> bool:
        """Whether it would."""
        return self._one("SELECT id FROM ends WHERE owner = ? AND id = ?", _told(owner), end) is not None

    def add_names(self, trace_id: str, names: Sequence[str]) -> None:
        """Links may call a trace by these; of two notes with one name, the first is meant."""
        rows = [(_folded(name), trace_id) for name in names]
        self._connection.executemany("INSERT OR IGNORE INTO names VALUES (?, ?)", rows)

    def add_links(self, trace_id: str, names: Sequence[str]) -> None:
        """A trace links to what is called so."""
        rows = [(trace_id, _folded(name)) for name in names]
        self._connection.executemany("INSERT OR IGNORE INTO links VALUES (?, ?)", rows)

    def resolved_links(self) -> Iterator[Sequence[tuple[str, str]]]:
        """The links whose names are known, as ids, some hundred at a time."""
        cursor = self._connection.execute(_RESOLVED)
        while lot := cursor.fetchmany(_LOT):
            yield [(str(source), str(target)) for source, target in lot]

    def _one(self, sql: str, *values: str) -> str | None:
        row = self._connection.execute(sql, values).fetchone()
        return None if row is None else str(row[0])


def _told(owner: Owner | None) -> str:
    return "" if owner is None else f"{owner.kind}:{owner.id}"


def _folded(name: str) -> str:
    """Names are the same in any case and however their accents are written; some file systems take them apart."""
    return unicodedata.normalize("NFC", name).casefold()
