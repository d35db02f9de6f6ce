"""The memory journal in SQLite.

Only `insert_pending` is part of a turn's commit. All else is written without an fsync of its own: it survives a killed
process, and what a power cut takes is found again in the evidence beside the file.
"""

from __future__ import annotations

import sqlite3
import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256

from gateway.memory.delta import Delta
from gateway.memory.journal import (
    HASH_OF_NOTHING,
    LATELY_ENTRIES,
    Ask,
    EntryOutcome,
    JournalEntry,
    Key,
    Tail,
    Write,
    is_due,
)
from gateway.memory.paths import document_key
from gateway.memory.rules import clean
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.database import Database

_INSERT = """
    INSERT INTO memory_journal (turn_id, update_index, document, personality_id, user_id, session_id, channel, place,
                                store, action, content, at, refers_to, author_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (turn_id, update_index) DO NOTHING"""
# A turn's rows are inserted in one transaction, so they stand together. `undo` and the like are the caller's to repeat.
_OF_TURNS = "action IN ('add', 'replace', 'remove') AND refers_to IS NULL"
_UNSETTLED = f"""
    SELECT * FROM memory_journal WHERE {_OF_TURNS} AND turn_id IN (
        SELECT turn_id FROM memory_journal
        WHERE outcome IS NULL AND {_OF_TURNS}
            AND id > coalesce((SELECT max(id) FROM memory_journal WHERE turn_id = ?1), 0)
        GROUP BY turn_id ORDER BY min(id) LIMIT ?2
    ) ORDER BY id, update_index
"""  # noqa: S608 (constants)


def insert_pending(
    connection: sqlite3.Connection, scope: MemoryScope, updates: Sequence[MemoryUpdate], at: datetime
) -> None:
    """Note a turn's updates, inside the transaction that commits the turn. Harmless when they are noted already.

    The ids are not checked: the provider refuses malformed ones, and nothing of a turn may fail for its memory.
    """
    connection.executemany(_INSERT, [_row(ask) for ask in _asks(scope, updates, at)])


def settle_pending(connection: sqlite3.Connection, turn_id: str, outcomes: Sequence[str]) -> None:
    """Note what a provider's `sync` reported, for providers that do not keep this journal themselves."""
    connection.executemany(
        "UPDATE memory_journal SET outcome = ? WHERE turn_id = ? AND update_index = ? AND outcome IS NULL",
        [("no_match" if outcome == "no_match" else "applied", turn_id, i) for i, outcome in enumerate(outcomes)],
    )


def select_unsettled(
    connection: sqlite3.Connection, *, after: str | None = None, limit: int | None = None
) -> list[tuple[MemoryScope, list[MemoryUpdate]]]:
    """Whole turns of which something is not settled, in the order in which they were committed.

    Args:
        after: a turn; only those that were committed after it.
        limit: how many turns at most.
    """
    turns: dict[str, tuple[MemoryScope, list[MemoryUpdate]]] = {}
    for row in connection.execute(_UNSETTLED, (after, -1 if limit is None else limit)):
        update = MemoryUpdate(action=row["action"], store=row["store"], content=row["content"])
        turns.setdefault(row["turn_id"], (_scope(row), []))[1].append(update)
    return list(turns.values())


class SqliteMemoryJournal:
    """The `MemoryJournal` of `gateway/memory/journal.py`, in the gateway's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, asks: Sequence[Ask]) -> Mapping[Key, EntryOutcome]:
        """Note what is not noted yet; returns the outcomes of those that are settled."""
        return await self._database.write(partial(_begin, asks=asks), is_durable=False)

    async def tail(self, document: str) -> Tail:
        """What was applied last."""
        return await self._database.read(partial(_tail, document=document))

    async def since(self, document: str, moment: datetime) -> Sequence[tuple[int, Ask]]:
        """What was written at a moment or later, with the entries' ids, oldest first."""
        return await self._database.read(partial(_since, document=document, moment=moment))

    async def knows(self, document: str, text_hash: str) -> bool:
        """Whether a text is one that the document had lately."""
        return await self._database.read(partial(_knows, document=document, text_hash=text_hash))

    async def record(self, write: Write) -> Mapping[Key, EntryOutcome]:
        """Note what is about to be written."""
        return await self._database.write(partial(_record, write=write), is_durable=False)

    async def settle(self, outcomes: Mapping[Key, EntryOutcome], *, is_durable: bool = False) -> None:
        """Note what became of them."""
        await self._database.write(partial(_settle, outcomes=outcomes), is_durable=is_durable)

    async def pending(self, document: str) -> Collection[Key]:
        """What is not settled yet."""
        return await self._database.read(partial(_pending, document=document))

    async def unsettled(self) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        """Whole turns of which something is not settled, oldest first."""
        return await self._database.read(select_unsettled)

    async def entries(self, document: str | None, limit: int, before: int | None = None) -> Sequence[JournalEntry]:
        """What was settled, newest first."""
        if document is None:
            sql = (
                "SELECT * FROM memory_journal WHERE outcome IS NOT NULL AND (?2 IS NULL OR "
                "(ifnull(written_at, ''), id) < (SELECT ifnull(written_at, ''), id FROM memory_journal WHERE id = ?2)) "
                "ORDER BY written_at DESC, id DESC LIMIT ?1"
            )
            return await self._database.read(partial(_select, sql=sql, values=(limit, before)))
        sql = (
            "SELECT * FROM memory_journal WHERE document = ? AND position < ? AND outcome IS NOT NULL "
            "ORDER BY position DESC LIMIT ?"
        )
        values = (document, before if before is not None else 1 << 62, limit)
        return await self._database.read(partial(_select, sql=sql, values=values))

    async def entry(self, entry_id: int) -> JournalEntry | None:
        """One entry."""
        sql = "SELECT * FROM memory_journal WHERE id = ?"
        found = await self._database.read(partial(_select, sql=sql, values=(entry_id,)))
        return found[0] if found else None

    async def chain(self, document: str, position: int) -> Sequence[JournalEntry]:
        """Applied entries up to `position`, oldest first, from the nearest checkpoint on."""
        sql = (
            "SELECT * FROM memory_journal WHERE document = ?1 AND outcome = 'applied' AND position <= ?2"
            " AND position >= (SELECT coalesce(max(position), 0) FROM memory_journal WHERE document = ?1"
            " AND outcome = 'applied' AND position <= ?2 AND checkpoint IS NOT NULL) ORDER BY position"
        )
        return await self._database.read(partial(_select, sql=sql, values=(document, position)))


# ---- one function for each statement of the protocol, on the database's own threads ---------------------------------


def _begin(connection: sqlite3.Connection, *, asks: Sequence[Ask]) -> dict[Key, EntryOutcome]:
    done: dict[Key, EntryOutcome] = {}
    for ask in asks:
        if not connection.execute(_INSERT, _row(ask)).rowcount:
            done.update(_outcome(connection, ask.key))
    return done


def _outcome(connection: sqlite3.Connection, key: Key) -> dict[Key, EntryOutcome]:
    sql = "SELECT outcome FROM memory_journal WHERE turn_id = ? AND update_index = ? AND outcome IS NOT NULL"
    row = connection.execute(sql, key).fetchone()
    return {} if row is None else {key: row["outcome"]}


def _tail(connection: sqlite3.Connection, *, document: str) -> Tail:
    sql = (
        "SELECT turn_id, update_index FROM memory_journal"
        " WHERE document = ? AND outcome IS NULL AND position IS NOT NULL"
    )
    unsettled = frozenset((row["turn_id"], row["update_index"]) for row in connection.execute(sql, (document,)))
    return Tail(hash=_last_hash(connection, document), unsettled=unsettled)


def _since(connection: sqlite3.Connection, *, document: str, moment: datetime) -> list[tuple[int, Ask]]:
    """By position from the end, and so without an index of times."""
    sql = "SELECT * FROM memory_journal WHERE document = ? AND outcome = 'applied' ORDER BY position DESC"
    start, found = _time(moment), list[tuple[int, Ask]]()
    for row in connection.execute(sql, (document,)):
        if row["written_at"] < start:
            break
        found.append((row["id"], _ask(row)))
    return found[::-1]


def _knows(connection: sqlite3.Connection, *, document: str, text_hash: str) -> bool:
    sql = (
        "SELECT 1 FROM memory_journal WHERE document = ?1 AND outcome = 'applied' AND ?2 IN (hash_before, hash_after)"
        " AND position > (SELECT max(position) FROM memory_journal WHERE document = ?1) - ?3 LIMIT 1"
    )
    return connection.execute(sql, (document, bytes.fromhex(text_hash), LATELY_ENTRIES)).fetchone() is not None


def _last_hash(connection: sqlite3.Connection, document: str) -> str | None:
    sql = (
        "SELECT hash_after FROM memory_journal WHERE document = ? AND outcome = 'applied'"
        " ORDER BY position DESC LIMIT 1"
    )
    row = connection.execute(sql, (document,)).fetchone()
    return HASH_OF_NOTHING if row is None else _hex(row["hash_after"])


def _record(connection: sqlite3.Connection, *, write: Write) -> dict[Key, EntryOutcome]:
    last = _last_hash(connection, write.document)
    if last is not None and last != write.found_hash and not _settle_dead(connection, write):
        _insert_edit(connection, write, write.found, last, write.found_hash)
    if write.overtaken is not None:
        _insert_edit(connection, write, write.overtaken, write.found_hash, sha256(write.overtaken).hexdigest())
    # What an attempt recorded that never came into place; a repetition of it has a key of its own.
    connection.execute(
        "DELETE FROM memory_journal WHERE document = ? AND outcome IS NULL AND position IS NOT NULL"
        " AND (refers_to IS NOT NULL OR action IN ('write', 'undo'))",
        (write.document,),
    )
    position = _next_position(connection, write.document)
    if not _record_changes(connection, write, position):  # some were not begun, or are settled
        connection.executemany(_INSERT, [_row(change.ask) for change in write.changes])
        settled = [_outcome(connection, change.ask.key) for change in write.changes]
        if any(settled):
            return {key: outcome for each in settled for key, outcome in each.items()}
        _record_changes(connection, write, position)
    last_position = position + len(write.changes) - 1
    if write.changes and (last is None or is_due(last_position, len(write.after), len(write.changes))):
        connection.execute(
            "UPDATE memory_journal SET checkpoint = ? WHERE turn_id = ? AND update_index = ?",
            (zlib.compress(write.after, 1), *write.changes[-1].ask.key),
        )
    return {}


def _record_changes(connection: sqlite3.Connection, write: Write, position: int) -> bool:
    """Whether all were there to be recorded, and none was settled."""
    at = _time(write.at)
    cursor = connection.executemany(
        "UPDATE memory_journal SET position = ?, written_at = ?, hash_before = ?, hash_after = ?, prefix_bytes = ?,"
        " suffix_bytes = ?, removed = ?, inserted = ?, checkpoint = NULL"
        " WHERE turn_id = ? AND update_index = ? AND outcome IS NULL",
        [
            (
                *(position + number, at, bytes.fromhex(change.hash_before), bytes.fromhex(change.hash_after)),
                *(change.delta.prefix_bytes, change.delta.suffix_bytes, change.delta.removed, change.delta.inserted),
                *change.ask.key,
            )
            for number, change in enumerate(write.changes)
        ],
    )
    return not write.changes or cursor.rowcount == len(write.changes)


def _settle_dead(connection: sqlite3.Connection, write: Write) -> bool:
    """Settle the entries of a process that died between replacing the file and saying so: their hash is the proof."""
    sql = (
        "SELECT hash_before, position FROM memory_journal WHERE document = ? AND outcome IS NULL AND hash_after = ? "
        "AND position IS NOT NULL ORDER BY position DESC LIMIT 1"
    )
    row = connection.execute(sql, (write.document, bytes.fromhex(write.found_hash))).fetchone()
    found = row is not None
    while row is not None:
        where = (write.document, row["position"])
        connection.execute("UPDATE memory_journal SET outcome = 'applied' WHERE document = ? AND position = ?", where)
        sql = (
            "SELECT hash_before, position FROM memory_journal WHERE document = ? AND outcome IS NULL AND position = ? "
            "AND hash_after = ?"
        )
        row = connection.execute(sql, (write.document, row["position"] - 1, row["hash_before"])).fetchone()
    return found


def _insert_edit(connection: sqlite3.Connection, write: Write, data: bytes, before: str, after: str) -> None:
    """What somebody wrote outside: who is not known, and the whole text is the checkpoint that all else starts from."""
    scope = MemoryScope(
        personality_id=write.scope.personality_id,
        user_id=None,
        session_id=None,
        turn_id=f"edit:{uuid.uuid4().hex}",
        place=write.scope.place,
    )
    ask = Ask(scope=scope, index=0, document=write.document, store=write.store, action="edit", content="", at=write.at)
    connection.execute(_INSERT, _row(ask))
    connection.execute(
        "UPDATE memory_journal SET outcome = 'applied', position = ?, written_at = ?, hash_before = ?, hash_after = ?, "
        "checkpoint = ? WHERE turn_id = ? AND update_index = 0",
        (
            *(_next_position(connection, write.document), _time(write.at), bytes.fromhex(before)),
            *(bytes.fromhex(after), zlib.compress(data, 1), scope.turn_id),
        ),
    )


def _next_position(connection: sqlite3.Connection, document: str) -> int:
    sql = "SELECT coalesce(max(position), 0) + 1 FROM memory_journal WHERE document = ?"
    return int(connection.execute(sql, (document,)).fetchone()[0])


def _settle(connection: sqlite3.Connection, *, outcomes: Mapping[Key, EntryOutcome]) -> None:
    now = _time(datetime.now(UTC))
    connection.executemany(
        "UPDATE memory_journal SET outcome = ?1, written_at = coalesce(written_at, ?4), position = CASE"
        " WHEN position IS NULL AND ?1 = 'applied' THEN (SELECT coalesce(max(position), 0) + 1 FROM memory_journal AS j"
        " WHERE j.document = memory_journal.document) ELSE position END"
        " WHERE turn_id = ?2 AND update_index = ?3 AND outcome IS NULL",
        [(outcome, *key, now) for key, outcome in outcomes.items()],
    )


def _pending(connection: sqlite3.Connection, *, document: str) -> set[Key]:
    sql = "SELECT turn_id, update_index FROM memory_journal WHERE document = ? AND outcome IS NULL"
    return {(row["turn_id"], row["update_index"]) for row in connection.execute(sql, (document,))}


def _select(connection: sqlite3.Connection, *, sql: str, values: tuple[object, ...]) -> list[JournalEntry]:
    return [_entry(row) for row in connection.execute(sql, values)]


# ---- rows and values ------------------------------------------------------------------------------------------------


def _asks(scope: MemoryScope, updates: Sequence[MemoryUpdate], at: datetime) -> list[Ask]:
    return [
        Ask(
            scope=scope,
            index=index,
            document=document_key(scope, update.store) or "",
            store=update.store,
            action=update.action,
            content=update.content,
            at=at,
        )
        for index, update in enumerate(updates)
    ]


def _row(ask: Ask) -> tuple[object, ...]:
    scope = ask.scope
    return (
        *(scope.turn_id, ask.index, ask.document or None, scope.personality_id, scope.user_id, scope.session_id),
        *(scope.channel, scope.place, ask.store, ask.action, clean(ask.content), _time(ask.at), ask.refers_to),
        scope.author_id,
    )


def _scope(row: sqlite3.Row) -> MemoryScope:
    return MemoryScope(
        personality_id=row["personality_id"],
        user_id=row["user_id"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        place=row["place"],
        channel=row["channel"],
        author_id=row["author_id"],
    )


def _ask(row: sqlite3.Row) -> Ask:
    return Ask(
        scope=_scope(row),
        index=row["update_index"],
        document=row["document"] or "",
        store=row["store"],
        action=row["action"],
        content=row["content"],
        at=datetime.fromisoformat(row["at"]),
        refers_to=row["refers_to"],
    )


def _entry(row: sqlite3.Row) -> JournalEntry:
    has_delta = row["prefix_bytes"] is not None
    return JournalEntry(
        id=row["id"],
        ask=_ask(row),
        outcome=row["outcome"],
        position=row["position"],
        written_at=datetime.fromisoformat(row["written_at"]) if row["written_at"] else None,
        hash_before=_hex(row["hash_before"]),
        hash_after=_hex(row["hash_after"]),
        delta=Delta(row["prefix_bytes"], row["suffix_bytes"], row["removed"], row["inserted"]) if has_delta else None,
        checkpoint=zlib.decompress(row["checkpoint"]) if row["checkpoint"] else None,
    )


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")
