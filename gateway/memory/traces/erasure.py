"""Takes a person's traces out of a brain, so that no byte of the file tells of them; and a single trace, for good.

A person owns the traces of the user, of each personality with that user, and of the threads of their sessions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from gateway.memory.traces.brain import Brain
from gateway.memory.traces.rows import SELECT, find, from_row, places
from gateway.memory.traces.trace import Trace, Viewer
from gateway.store.erasure import compact

_OWNERS = """
    CREATE TEMP TABLE gone_owners AS SELECT number FROM owners WHERE
        (kind = 'user' AND id IN (SELECT id FROM temp.gone_ids))
        OR (kind = 'thread' AND id IN (SELECT id FROM temp.gone_threads))
        OR (kind = 'persona' AND substr(id, 1, instr(id, '::') - 1) IN (SELECT id FROM temp.gone_ids))
"""
# What they have told the gateway as a whole, or a group, was theirs too.
_TRACES = """
    CREATE TEMP TABLE gone_traces AS SELECT id FROM traces
    WHERE owner IN (SELECT number FROM temp.gone_owners) OR author IN (SELECT id FROM temp.gone_ids)
"""
_GONE = "(SELECT id FROM temp.gone_traces)"
_DEPENDENT = (
    f"DELETE FROM edges WHERE source IN {_GONE} OR target IN {_GONE}",  # noqa: S608 (constants)
    f"DELETE FROM uses WHERE trace IN {_GONE}",  # noqa: S608
    f"DELETE FROM archive WHERE trace IN {_GONE}",  # noqa: S608
    f"DELETE FROM archive_reads WHERE trace IN {_GONE} OR reader IN (SELECT id FROM temp.gone_ids)",  # noqa: S608
)
_OWNED = (
    f"DELETE FROM traces WHERE id IN {_GONE}",  # noqa: S608 (constants)
    "DELETE FROM records WHERE owner IN (SELECT number FROM temp.gone_owners)",
    "DELETE FROM owners WHERE number IN (SELECT number FROM temp.gone_owners)",
)


async def erase_person(brain: Brain, *, user_ids: Collection[str], session_ids: Collection[str]) -> int:
    """Take out all that is a person's, and write the file anew; how many traces went. Twice is harmless.

    Args:
        brain: the brain.
        user_ids: the person's.
        session_ids: sessions in which nobody else wrote.

    Raises:
        StoreUnavailable: there is no room, or the disk is broken; nothing was changed.
    """

    def work(connection: sqlite3.Connection) -> int:
        connection.execute("BEGIN IMMEDIATE")
        count = erase_traces(connection, user_ids, session_ids)
        connection.execute("COMMIT")
        compact(connection)
        return count

    return await brain.database.alone(work)


async def forget(brain: Brain, viewer: Viewer, trace_id: str) -> bool:
    """Take out one trace of the viewer's, hidden or not, for good; False where there is none with that id."""

    def work(connection: sqlite3.Connection) -> bool:
        kept = find(connection, viewer, trace_id) or find(connection, viewer, trace_id, is_deleted=True)
        if kept is None:
            return False
        connection.execute("BEGIN IMMEDIATE")
        _gather(connection, (), ())
        connection.execute("CREATE TEMP TABLE gone_traces AS SELECT ? AS id", (kept.trace.id,))
        try:
            for sql in _DEPENDENT:
                connection.execute(sql)
            connection.execute("DELETE FROM traces WHERE number = ?", (kept.number,))
        finally:
            _drop(connection)
        connection.execute("COMMIT")
        compact(connection)
        return True

    return await brain.database.alone(work)


def erase_traces(connection: sqlite3.Connection, user_ids: Collection[str], session_ids: Collection[str]) -> int:
    """Take out what belongs to these users and sessions, inside the caller's transaction; how many traces went."""
    _gather(connection, user_ids, session_ids)
    try:
        connection.execute(_OWNERS)
        connection.execute(_TRACES)
        for sql in _DEPENDENT:
            connection.execute(sql)
        count = connection.execute(_OWNED[0]).rowcount
        for sql in _OWNED[1:]:
            connection.execute(sql)
        return count
    finally:
        _drop(connection)


def traces_of(connection: sqlite3.Connection, ids: Collection[str]) -> list[Trace]:
    """All traces that belong to these users and sessions, hidden ones too, oldest first."""
    known = {
        row["number"]: (row["kind"], row["id"]) for row in connection.execute("SELECT number, kind, id FROM owners")
    }
    owners = [
        number
        for number, (kind, name) in known.items()
        if (kind in ("user", "thread") and name in ids) or (kind == "persona" and name.partition("::")[0] in ids)
    ]
    sql = f"{SELECT} WHERE owner IN ({places(owners)}) ORDER BY traces.created_at, traces.number"
    return [from_row(row) for row in connection.execute(sql, owners)]


def _gather(connection: sqlite3.Connection, user_ids: Collection[str], session_ids: Collection[str]) -> None:
    for table, ids in (("gone_ids", user_ids), ("gone_threads", session_ids)):
        connection.execute(f"CREATE TEMP TABLE {table} (id TEXT PRIMARY KEY)")
        connection.executemany(f"INSERT INTO temp.{table} VALUES (?)", [(each,) for each in ids])  # noqa: S608


def _drop(connection: sqlite3.Connection) -> None:
    for name in ("gone_ids", "gone_threads", "gone_owners", "gone_traces"):
        connection.execute(f"DROP TABLE IF EXISTS temp.{name}")
