"""The memory journal in the gateway's database.

Only `insert_pending` is part of a turn's commit. All else is written without an fsync of its own: it survives a killed
process, and what a power cut takes is found again in the evidence next to the file.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from gateway.memory.delta import Delta
from gateway.memory.journal import (
    HASH_OF_NOTHING,
    LATELY_ENTRIES,
    MERGE,
    Change,
    JournalEntry,
    JournalRequest,
    Key,
    PastChange,
    Tail,
    Write,
    is_due,
    iso,
    requests_of,
)
from gateway.memory.rules import clean
from gateway.protocols import MemoryOutcome, MemoryScope, MemoryUpdate
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row
from gateway.store.erasure import erase_history_alone, forget_in_history
from gateway.store.rows import columns_of, insert, insert_new, value_of

# A turn's rows are inserted in one transaction, so they stand together. `undo` and the like are the caller's to repeat.
_OF_TURNS = "action IN ('add', 'replace', 'remove') AND refers_to IS NULL"
# What a memory of another kind has applied is noted, too, but is no history of the files: it has no place in one.
_OF_FILES = "outcome IS NOT NULL AND (position IS NOT NULL OR outcome <> 'applied')"
_UNSETTLED = f"""
    SELECT * FROM memory_journal WHERE {_OF_TURNS} AND turn_id IN (
        SELECT turn_id FROM memory_journal
        WHERE outcome IS NULL AND {_OF_TURNS}
            AND id > coalesce((SELECT max(id) FROM memory_journal WHERE turn_id = ?1), 0)
        GROUP BY turn_id ORDER BY min(id) LIMIT ?2
    ) ORDER BY id, update_index
"""  # noqa: S608 (constants)
_ALL = 1 << 62
_NEWEST = f"""
    SELECT * FROM memory_journal WHERE {_OF_FILES} {{after}}
    ORDER BY coalesce(written_at, '') DESC, id DESC LIMIT ?1
"""  # noqa: S608 (a constant)
_AFTER = """
    AND (coalesce(written_at, ''), id) < (SELECT coalesce(written_at, ''), id FROM memory_journal WHERE id = ?2)
"""


def insert_pending(connection: Connection, scope: MemoryScope, updates: Sequence[MemoryUpdate], at: datetime) -> None:
    """Note a turn's updates, inside the transaction that commits the turn. Harmless when they are noted already.

    The ids are not checked: the provider refuses malformed ones, and nothing of a turn may fail for its memory.
    """
    for request in requests_of(scope, updates, at):
        insert(connection, "memory_journal", _columns_of_request(request), "ON CONFLICT DO NOTHING")


def settle_pending(connection: Connection, turn_id: str, outcomes: Sequence[str]) -> None:
    """Note what a provider's `sync` reported, for providers that do not keep this journal themselves."""
    connection.executemany(
        "UPDATE memory_journal SET outcome = ? WHERE turn_id = ? AND update_index = ? AND outcome IS NULL",
        [("no_match" if outcome == "no_match" else "applied", turn_id, i) for i, outcome in enumerate(outcomes)],
    )


def ask_unsettled(
    connection: Connection, *, after: str | None = None, limit: int | None = None
) -> Callable[[], list[tuple[MemoryScope, list[MemoryUpdate]]]]:
    """Ask for whole turns of which something is not settled, in the order in which they were committed.

    Args:
        after: a turn; only those that were committed after it.
        limit: how many turns at most.
    """
    asked = connection.execute(_UNSETTLED, (after, _ALL if limit is None else limit))

    def found() -> list[tuple[MemoryScope, list[MemoryUpdate]]]:
        turns: dict[str, tuple[MemoryScope, list[MemoryUpdate]]] = {}
        for row in asked.fetchall():
            update = MemoryUpdate(action=row["action"], store=row["store"], content=row["content"])
            turns.setdefault(row["turn_id"], (value_of(MemoryScope, row), []))[1].append(update)
        return list(turns.values())

    return found


class SqlMemoryJournal:
    """The `MemoryJournal` of `gateway/memory/journal.py`, in the gateway's database.

    What gives an entry its place in a history runs alone by the store's name.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def begin(self, requests: Sequence[JournalRequest]) -> Mapping[Key, MemoryOutcome]:
        return await self._engine.write(partial(_begin, requests=requests), is_durable=False, alone=())

    async def tail(self, document: str) -> Tail:
        return await self._engine.read(partial(_tail, document=document))

    async def knows(self, document: str, text_hash: str) -> bool:
        sql = (
            "SELECT 1 FROM memory_journal WHERE document = ?1 AND outcome = 'applied'"
            " AND ?2 IN (hash_before, hash_after)"
            " AND position > (SELECT max(position) FROM memory_journal WHERE document = ?1) - ?3 LIMIT 1"
        )
        return await self._engine.row(sql, (document, bytes.fromhex(text_hash), LATELY_ENTRIES)) is not None

    async def record(self, write: Write) -> Mapping[Key, MemoryOutcome]:
        return await self._engine.write(partial(_record, write=write), is_durable=False)

    async def settle(self, outcomes: Mapping[Key, MemoryOutcome], *, is_durable: bool = False) -> None:
        await self._engine.write(partial(_settle, outcomes=outcomes), is_durable=is_durable)

    async def pending(self, document: str) -> Collection[Key]:
        sql = "SELECT turn_id, update_index FROM memory_journal WHERE document = ? AND outcome IS NULL"
        return {(row["turn_id"], row["update_index"]) for row in await self._engine.rows(sql, (document,))}

    async def unsettled(self) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        return await self._engine.ask(ask_unsettled)

    async def entries(self, document: str | None, limit: int, before: int | None = None) -> Sequence[JournalEntry]:
        if document is None:
            if before is None:
                return await self._entries(_NEWEST.format(after=""), (limit,))
            return await self._entries(_NEWEST.format(after=_AFTER), (limit, before))
        return await self._entries(
            "SELECT * FROM memory_journal WHERE document = ? AND position < ? AND outcome IS NOT NULL "
            "ORDER BY position DESC LIMIT ?",
            (document, before if before is not None else _ALL, limit),
        )

    async def past(self, document: str, since: datetime, limit: int) -> Sequence[PastChange]:
        return await self._engine.read(partial(_past, document=document, since=iso(since), limit=limit))

    async def entry(self, entry_id: int) -> JournalEntry | None:
        found = await self._entries("SELECT * FROM memory_journal WHERE id = ?", (entry_id,))
        return found[0] if found else None

    async def chain(self, document: str, position: int) -> Sequence[JournalEntry]:
        return await self._entries(
            "SELECT * FROM memory_journal WHERE document = ?1 AND outcome = 'applied' AND position <= ?2"
            " AND position >= (SELECT coalesce(max(position), 0) FROM memory_journal WHERE document = ?1"
            " AND outcome = 'applied' AND position <= ?2 AND checkpoint IS NOT NULL) ORDER BY position",
            (document, position),
        )

    async def documents(self) -> Sequence[str]:
        sql = "SELECT DISTINCT document FROM memory_journal WHERE document IS NOT NULL AND hash_after IS NOT NULL"
        return sorted(row["document"] for row in await self._engine.rows(sql, ()))

    async def whole_history(self, document: str) -> Sequence[JournalEntry]:
        sql = f"SELECT * FROM memory_journal WHERE document = ? AND {_OF_FILES}"  # noqa: S608 (a constant)
        return _in_order(await self._entries(sql, (document,)))

    async def replace_history(self, document: str, entries: Sequence[JournalEntry]) -> None:
        await self._engine.write(partial(put_history, document=document, entries=entries))

    async def numbers(self, count: int) -> int:
        return await self._engine.write(partial(_numbers, count=count), is_durable=False, alone=())

    async def forget(self, user_ids: Collection[str], document: str, lines: Collection[str]) -> None:
        work = partial(forget_in_history, user_ids=user_ids, document=document, lines=frozenset(lines))
        await self._engine.write(work)

    async def erase(self, user_ids: Collection[str]) -> None:
        await self._engine.write(partial(erase_history_alone, user_ids=user_ids))

    async def _entries(self, sql: str, values: tuple[object, ...]) -> list[JournalEntry]:
        return await self._engine.read(lambda connection: [_entry(row) for row in connection.execute(sql, values)])


# ---- one function for each statement of the protocol, on the database's own threads ---------------------------------


def _begin(connection: Connection, *, requests: Sequence[JournalRequest]) -> dict[Key, MemoryOutcome]:
    done: dict[Key, MemoryOutcome] = {}
    for request in requests:
        if not _insert(connection, request):
            done.update(_outcome(connection, request.key))
    return done


def _outcome(connection: Connection, key: Key) -> dict[Key, MemoryOutcome]:
    sql = "SELECT outcome FROM memory_journal WHERE turn_id = ? AND update_index = ? AND outcome IS NOT NULL"
    row = connection.execute(sql, key).fetchone()
    return {} if row is None else {key: row["outcome"]}


def _tail(connection: Connection, *, document: str) -> Tail:
    sql = (
        f"SELECT turn_id, update_index FROM memory_journal {connection.dialect.by_pending}"  # noqa: S608 (a constant)
        " WHERE document = ? AND outcome IS NULL AND position IS NOT NULL"
    )
    unsettled = frozenset((row["turn_id"], row["update_index"]) for row in connection.execute(sql, (document,)))
    sql = (
        "SELECT hash_after, written_at FROM memory_journal WHERE document = ? AND outcome = 'applied'"
        " AND position IS NOT NULL ORDER BY position DESC LIMIT 1"
    )
    row = connection.execute(sql, (document,)).fetchone()
    if row is None:
        return Tail(hash=HASH_OF_NOTHING, at=None, unsettled=unsettled)
    return Tail(hash=_hex(row["hash_after"]), at=datetime.fromisoformat(row["written_at"]), unsettled=unsettled)


def _record(connection: Connection, *, write: Write) -> dict[Key, MemoryOutcome]:
    # What an attempt recorded that never came into place; a repetition of it has a key of its own.
    connection.execute(
        f"DELETE FROM memory_journal {connection.dialect.by_pending} WHERE document = ? AND outcome IS NULL"  # noqa: S608 (a constant)
        " AND position IS NOT NULL AND action IN ('write', 'undo', 'edit')",
        (write.document,),
    )
    position, is_known = _end(connection, write.document)
    if not _record_changes(connection, write, position):  # some were not begun, or are settled
        settled = [_outcome(connection, change.request.key) for change in write.changes]
        if any(settled):
            return {key: outcome for each in settled for key, outcome in each.items()}
        for change in write.changes:
            _insert(connection, change.request)
        _record_changes(connection, write, position)
    last_position = position + len(write.changes) - 1
    if write.changes and (not is_known or is_due(last_position, len(write.after), len(write.changes))):
        connection.execute(
            "UPDATE memory_journal SET checkpoint = ? WHERE turn_id = ? AND update_index = ?",
            (zlib.compress(write.after, 1), *write.changes[-1].request.key),
        )
    return {}


def _end(connection: Connection, document: str) -> tuple[int, bool]:
    """The next position, and whether the text that the last applied entry left is known."""
    row = connection.execute(
        "SELECT coalesce(max(position), 0) + 1, coalesce((SELECT hash_after IS NOT NULL FROM memory_journal"
        " WHERE document = ?1 AND outcome = 'applied' AND position IS NOT NULL ORDER BY position DESC LIMIT 1), TRUE)"
        " FROM memory_journal WHERE document = ?1",
        (document,),
    ).fetchone()
    return int(row[0]), bool(row[1])


def _record_changes(connection: Connection, write: Write, position: int) -> bool:
    """Whether all were there to be recorded, and none was settled."""
    cursor = connection.executemany(
        "UPDATE memory_journal SET position = ?, written_at = ?, hash_before = ?, hash_after = ?, prefix_bytes = ?,"
        " suffix_bytes = ?, removed = ?, inserted = ?, checkpoint = ?"
        " WHERE turn_id = ? AND update_index = ? AND outcome IS NULL",
        [_values(change, position + number, write.at) for number, change in enumerate(write.changes)],
    )
    return not write.changes or cursor.rowcount == len(write.changes)


def _values(change: Change, position: int, at: datetime) -> tuple[object, ...]:
    delta, checkpoint = change.delta, change.checkpoint
    return (
        *(position, iso(change.request.at if change.request.is_by_hand else at)),
        *(bytes.fromhex(change.hash_before), bytes.fromhex(change.hash_after)),
        *((delta.prefix_bytes, delta.suffix_bytes, delta.removed, delta.inserted) if delta else (None,) * 4),
        *(None if checkpoint is None else zlib.compress(checkpoint, 1), *change.request.key),
    )


def _settle(connection: Connection, *, outcomes: Mapping[Key, MemoryOutcome]) -> None:
    now = iso(datetime.now(UTC))
    connection.executemany(
        "UPDATE memory_journal SET outcome = ?1, written_at = coalesce(written_at, ?4), position = CASE"
        " WHEN position IS NULL AND ?1 = 'applied' THEN (SELECT coalesce(max(position), 0) + 1 FROM memory_journal AS j"
        " WHERE j.document = memory_journal.document) ELSE position END"
        " WHERE turn_id = ?2 AND update_index = ?3 AND outcome IS NULL",
        [(outcome, *key, now) for key, outcome in outcomes.items()],
    )
    for turn_id, _ in outcomes:
        if turn_id.startswith(MERGE):
            _propose(connection, turn_id)


def _propose(connection: Connection, turn_id: str) -> None:
    """Make a proposal of what an edit displaced, once."""
    sql = "SELECT id FROM memory_journal WHERE turn_id = ? AND action = 'edit' AND content <> ''"
    row = connection.execute(sql, (turn_id,)).fetchone()
    if row is None:
        return
    (number,) = connection.execute("UPDATE memory_proposal_numbers SET last = last + 1 RETURNING last").fetchone()
    sources = json.dumps(["an edit of the same lines by hand"])
    connection.execute(
        "INSERT INTO memory_proposals (id, turn_id, personality_id, user_id, author_id, session_id, channel, place,"
        " store, updates, sources, proposed_at) SELECT ?, turn_id, personality_id, user_id, author_id, session_id,"
        " channel, place, store, content, ?, ? FROM memory_journal WHERE id = ?",
        (number, sources, wall_ms(), row["id"]),
    )
    connection.execute("UPDATE memory_journal SET content = '' WHERE id = ?", (row["id"],))


def _past(connection: Connection, *, document: str, since: str, limit: int) -> list[PastChange]:
    sql = (
        "SELECT id, action, refers_to, written_at, prefix_bytes, suffix_bytes, removed, inserted FROM memory_journal"
        " WHERE document = ? AND outcome = 'applied' AND position IS NOT NULL ORDER BY position DESC LIMIT ?"
    )
    rows = map(PastChange._make, connection.execute(sql, (document, limit)))
    return list(itertools.takewhile(lambda change: change.written_at >= since, rows))


def _numbers(connection: Connection, *, count: int) -> int:
    hold, take = connection.dialect.journal_numbers
    connection.execute(hold)
    return int(connection.execute(take, (count,)).fetchone()[0]) - count + 1


def put_history(connection: Connection, *, document: str, entries: Sequence[JournalEntry]) -> None:
    """See `MemoryJournal.replace_history`."""
    connection.execute("DELETE FROM memory_journal WHERE document = ? AND outcome IS NOT NULL", (document,))
    for entry in entries:
        # Noted by its turn here, and settled where it comes from.
        sql = "DELETE FROM memory_journal WHERE turn_id = ? AND update_index = ? AND document = ?"
        connection.execute(sql, (*entry.request.key, document))
        insert(connection, "memory_journal", columns_of_entry(entry))


# ---- rows and values ------------------------------------------------------------------------------------------------


def _insert(connection: Connection, request: JournalRequest) -> bool:
    """Note a request; False where it is noted already."""
    return insert_new(connection, "memory_journal", _columns_of_request(request))


def _columns_of_request(request: JournalRequest) -> dict[str, object]:
    return columns_of(request, without=("index",)) | {
        "update_index": request.index,
        "document": request.document or None,
        "content": clean(request.content),
        "at": iso(request.at),
    }


def request_of(row: Row) -> JournalRequest:
    """The request of a row."""
    return value_of(
        JournalRequest,
        row,
        scope=value_of(MemoryScope, row),
        index=row["update_index"],
        document=row["document"] or "",
        at=datetime.fromisoformat(row["at"]),
    )


def columns_of_entry(entry: JournalEntry) -> dict[str, object]:
    """A row of the journal."""
    request, delta, checkpoint = entry.request, entry.delta, entry.checkpoint
    return columns_of(request, without=("index",)) | {
        "id": entry.id,
        "update_index": request.index,
        "at": iso(request.at),
        "outcome": entry.outcome,
        "position": entry.position,
        "written_at": None if entry.written_at is None else iso(entry.written_at),
        "hash_before": None if entry.hash_before is None else bytes.fromhex(entry.hash_before),
        "hash_after": None if entry.hash_after is None else bytes.fromhex(entry.hash_after),
        "prefix_bytes": None if delta is None else delta.prefix_bytes,
        "suffix_bytes": None if delta is None else delta.suffix_bytes,
        "removed": None if delta is None else delta.removed,
        "inserted": None if delta is None else delta.inserted,
        "checkpoint": None if checkpoint is None else zlib.compress(checkpoint, 1),
    }


def _in_order(entries: Sequence[JournalEntry]) -> list[JournalEntry]:
    """As they came about: by position, and what changed nothing where its id says. Ids alone are given earlier."""
    placed = sorted((entry for entry in entries if entry.position is not None), key=lambda entry: entry.position or 0)
    newest = itertools.accumulate((entry.id for entry in placed), max)
    ordered = [(number, 0, entry.position or 0, entry) for number, entry in zip(newest, placed, strict=True)]
    ordered += [(entry.id, 1, entry.id, entry) for entry in entries if entry.position is None]
    return [entry for *_, entry in sorted(ordered, key=lambda one: one[:3])]


def _entry(row: Row) -> JournalEntry:
    has_delta = row["prefix_bytes"] is not None
    return value_of(
        JournalEntry,
        row,
        request=request_of(row),
        written_at=datetime.fromisoformat(row["written_at"]) if row["written_at"] else None,
        hash_before=_hex(row["hash_before"]),
        hash_after=_hex(row["hash_after"]),
        delta=Delta(row["prefix_bytes"], row["suffix_bytes"], row["removed"], row["inserted"]) if has_delta else None,
        checkpoint=zlib.decompress(row["checkpoint"]) if row["checkpoint"] else None,
    )


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
