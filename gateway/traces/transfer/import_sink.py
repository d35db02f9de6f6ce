"""Where an import puts what it reads: some hundred at a time, each lot in a transaction of its own.

What exists already is not imported twice, so an interrupted import is simply started again.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from gateway.store.engine import Connection
from gateway.store.payloads import storable, to_ms
from gateway.traces.changes import add_tags_to_same, same_as
from gateway.traces.rows import as_json, insert, known_number, merge_index, node_end, owner_number
from gateway.traces.trace import Owner, hash_of, new_trace_id
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import Bounds
from gateway.traces.transfer.import_records import (
    UNNAMED,
    CarriedEdge,
    CarriedRecord,
    CarriedTrace,
    ImportItem,
    ImportProblem,
    ImportResult,
    RefusedItem,
    SkippedItem,
    UnreadableRest,
)

_TAKEN = "SELECT 1 FROM traces WHERE id = ?"
_LIVE = "SELECT owner FROM traces WHERE id = ? AND deleted_at IS NULL"
_ARCHIVE = "INSERT INTO archive (trace, verbatim, content_hash, archived_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_RECORD = "INSERT INTO records (kind, id, owner, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_HAS_NODE = "SELECT 1 FROM records WHERE kind = 'node' AND id = ? AND owner = ?"
_EDGE = """
    INSERT INTO edges (source, target, kind, weight, metadata, created_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
LINK = "link"
_MERGED_PAGES = 500  # of the index, in one transaction
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


class ImportSink:
    """One import on its way into a trace store."""

    def __init__(
        self, trace_store: TraceStore, bounds: Bounds, *, file: str, dedup: bool, is_dry_run: bool, result: ImportResult
    ) -> None:
        """`file` names in the errors what is read; `result` is counted up."""
        self.result = result
        self._trace_store = trace_store
        self._bounds = bounds
        self._file = file
        self._dedup = dedup
        self._is_dry_run = is_dry_run
        self._is_owner_asked = False
        self._scratch = ImportIndex()
        self._numbers: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.close()

    def note(self, problem: ImportProblem) -> None:
        """Keep a problem for the report."""
        self.result.left_out += isinstance(problem, RefusedItem)
        self.result.is_broken_off |= isinstance(problem, UnreadableRest)
        self.result.add_error(": ".join(part for part in (self._file, problem.place, problem.text) if part))

    def _note_ownerless(self, place: str) -> None:
        """Report it once: a file of a million lines may name no owner on any line."""
        if self._is_owner_asked:
            self.result.left_out += 1
        else:
            self._is_owner_asked = True
            self.note(
                RefusedItem(
                    place, "it does not say whose it is; name the person. Others like it are counted, not listed"
                )
            )

    async def take(self, items: Sequence[ImportItem]) -> None:
        """Put these in, all in one transaction.

        Raises:
            StoreUnavailable: the disk is full or broken; what was taken before is in.
        """
        if self._is_dry_run:
            await self._trace_store.database.read(lambda connection: self._take(connection, items))
        else:
            await self._trace_store.database.write(
                lambda connection: self._take(connection, items),
                is_repeatable=False,  # it counts
            )

    async def link(self, place_of: str) -> None:
        """Make edges of the links between notes, now that all names are known; `place_of` names them in errors."""
        now_ms = to_ms(self._trace_store.now())
        for lot in self._scratch.resolved_links():
            edges = [
                CarriedEdge(
                    place=place_of,
                    source=source,
                    target=target,
                    kind=LINK,
                    weight=1.0,
                    metadata={},
                    created_at_ms=now_ms,
                    owner=UNNAMED,
                )
                for source, target in lot
            ]
            await self.take(edges)

    async def merge_index(self) -> None:
        """Merge the segments that the lots have left in the index, a part at a time, so that others can write."""
        if self._is_dry_run or not self.result.imported:
            return
        while await self._trace_store.database.write(partial(merge_index, pages=_MERGED_PAGES), is_durable=False):
            pass

    def _take(self, connection: Connection, items: Sequence[ImportItem]) -> None:
        for item in items:
            match item:
                case CarriedTrace():
                    self._take_trace(connection, item)
                case CarriedRecord():
                    self._take_record(connection, item)
                case CarriedEdge():
                    self._take_edge(connection, item)
                case ImportProblem():
                    self.note(item)
                case SkippedItem():
                    self.result.skipped += 1

    def _take_trace(self, connection: Connection, imported: CarriedTrace) -> None:
        owner = self._bounds.owner(imported.trace.owner)
        if owner is None:
            self._note_ownerless(imported.place)
            return
        trace = replace(imported.trace, owner=owner)
        same = self._same(connection, imported, owner) if self._dedup else None
        if same is not None:
            self.result.skipped += 1
            kept_id = same
        else:
            kept_id = trace.id
            if connection.execute(_TAKEN, (trace.id,)).fetchone() is not None:
                kept_id = new_trace_id()
            self.result.imported += 1
            if self._is_dry_run:
                self._scratch.add_seen(owner, trace.type, hash_of(trace.content), kept_id)
                self._scratch.add_end(kept_id)
            else:
                insert(connection, replace(trace, id=kept_id))
        if imported.verbatim is not None and not self._is_dry_run:
            text = storable(imported.verbatim)
            connection.execute(_ARCHIVE, (kept_id, text, hash_of(text), imported.archived_at_ms))
        if imported.is_id_its_own and kept_id != imported.trace.id:
            self._scratch.add_renamed(imported.trace.id, kept_id)
        self._scratch.add_names(kept_id, imported.names)
        self._scratch.add_links(kept_id, imported.links)

    def _same(self, connection: Connection, imported: CarriedTrace, owner: Owner) -> str | None:
        """The id of the trace that says the same, which has all tags then."""
        number = known_number(connection, owner)
        trace = imported.trace
        if self._is_dry_run:
            seen = self._scratch.seen(owner, trace.type, hash_of(trace.content))
            return seen or (None if number is None else same_as(connection, number, trace))
        return None if number is None else add_tags_to_same(connection, number, trace)

    def _take_record(self, connection: Connection, imported: CarriedRecord) -> None:
        owner = self._bounds.owner(imported.owner)
        if owner is None:
            self._note_ownerless(imported.place)
        elif self._is_dry_run:
            if imported.kind == "node":
                self._scratch.add_end(imported.id, owner)
        else:
            number = owner_number(connection, owner)
            connection.execute(_RECORD, (imported.kind, imported.id, number, as_json(dict(imported.body))))

    def _take_edge(self, connection: Connection, imported: CarriedEdge) -> None:
        owner = self._bounds.owner(imported.owner)
        ends = [self._end(connection, end, owner) for end in (imported.source, imported.target)]
        missing = [end for end, found in zip((imported.source, imported.target), ends, strict=True) if found is None]
        if missing:
            self.note(
                RefusedItem(imported.place, f"it leads to {missing[0][:80]}, which is not there; it was left out")
            )
        elif ends[0] != ends[1] and not self._is_dry_run:  # two that said the same are one now
            metadata = as_json(dict(imported.metadata))
            connection.execute(_EDGE, (*ends, imported.kind, imported.weight, metadata, imported.created_at_ms))

    def _end(self, connection: Connection, end: str, owner: Owner | None) -> str | None:
        """What an edge ends at, by its id in the trace store: a trace or a node that the importer may see."""
        trace_id = self._scratch.renamed(end) or end
        if self._is_dry_run and (self._scratch.has_end(trace_id) or self._scratch.has_end(end, owner)):
            return trace_id
        row = connection.execute(_LIVE, (trace_id,)).fetchone()
        if row is not None and self._may_see(connection, row["owner"]):
            return trace_id
        number = None if owner is None else known_number(connection, owner)
        if number is not None and connection.execute(_HAS_NODE, (end, number)).fetchone() is not None:
            return node_end(number, end)
        return None

    def _may_see(self, connection: Connection, number: int) -> bool:
        """Whether a trace of this owner is within the bounds; owners come to be during an import."""
        if number not in self._numbers:
            self._numbers = set(self._bounds.numbers(connection))
        return number in self._numbers


class ImportIndex:
    """What an import must remember, in a temporary file, because it may be more than fits into memory."""

    def __init__(self) -> None:
        # An empty name is a file of SQLite's own, https://www.sqlite.org/inmemorydb.html#temp_db
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_SCHEMA}")

    def close(self) -> None:
        """Close and delete the temporary file."""
        self._connection.close()

    def add_renamed(self, old: str, new: str) -> None:
        """A trace of the source has another id here."""
        self._connection.execute("INSERT OR REPLACE INTO renamed VALUES (?, ?)", (old, new))

    def renamed(self, old: str) -> str | None:
        """The id that a trace of the source has here, if it is another."""
        return self._one("SELECT new FROM renamed WHERE old = ?", old)

    def add_seen(self, owner: Owner, kind: str, content_hash: str, trace_id: str) -> None:
        """A dry run would have put this in."""
        values = (_owner_key(owner), kind, content_hash, trace_id)
        self._connection.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?)", values)

    def seen(self, owner: Owner, kind: str, content_hash: str) -> str | None:
        """The id of what a dry run would have put in with that content."""
        sql = "SELECT trace FROM seen WHERE owner = ? AND type = ? AND hash = ?"
        return self._one(sql, _owner_key(owner), kind, content_hash)

    def add_end(self, end: str, owner: Owner | None = None) -> None:
        """A dry run would have put in a trace, or a node of that owner's, at which edges may end."""
        self._connection.execute("INSERT OR IGNORE INTO ends VALUES (?, ?)", (_owner_key(owner), end))

    def has_end(self, end: str, owner: Owner | None = None) -> bool:
        """Whether `add_end` was called for it."""
        return self._one("SELECT id FROM ends WHERE owner = ? AND id = ?", _owner_key(owner), end) is not None

    def add_names(self, trace_id: str, names: Sequence[str]) -> None:
        """Links may call a trace by these; of two notes with one name, the first is meant."""
        rows = [(_normalized(name), trace_id) for name in names]
        self._connection.executemany("INSERT OR IGNORE INTO names VALUES (?, ?)", rows)

    def add_links(self, trace_id: str, names: Sequence[str]) -> None:
        """A trace links to what is called so."""
        rows = [(trace_id, _normalized(name)) for name in names]
        self._connection.executemany("INSERT OR IGNORE INTO links VALUES (?, ?)", rows)

    def resolved_links(self) -> Iterator[Sequence[tuple[str, str]]]:
        """The links whose names are known, as ids, some hundred at a time."""
        cursor = self._connection.execute(_RESOLVED)
        while lot := cursor.fetchmany(_LOT):
            yield [(str(source), str(target)) for source, target in lot]

    def _one(self, sql: str, *values: str) -> str | None:
        row = self._connection.execute(sql, values).fetchone()
        return None if row is None else str(row[0])


def _owner_key(owner: Owner | None) -> str:
    return "" if owner is None else f"{owner.kind}:{owner.id}"


def _normalized(name: str) -> str:
    """Names are the same in any case and however their accents are written; some file systems take them apart."""
    return unicodedata.normalize("NFC", name).casefold()
