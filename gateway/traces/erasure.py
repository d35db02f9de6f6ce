"""Removes a person's traces from a trace store, so that no byte of the file tells of them; and a single trace.

A person owns the traces of the user, of each personality with that user, and of the threads of their sessions.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.store.engine import Connection
from gateway.traces.insights import DERIVED_FROM
from gateway.traces.rows import SELECT, find_to_change, from_row, places
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TraceStore

_OWNERS = """
    CREATE TEMP TABLE gone_owners AS SELECT number FROM owners WHERE
        (kind = 'user' AND id IN (SELECT id FROM gone_ids))
        OR (kind = 'thread' AND id IN (SELECT id FROM gone_threads))
        OR (kind = 'persona'
            AND EXISTS (SELECT 1 FROM gone_ids WHERE instr(owners.id, gone_ids.id || '::') = 1))
"""
# Traces that the person shared belong to the person too, and so does what was derived from them.
_TRACES = f"""
    CREATE TEMP TABLE gone_traces AS WITH RECURSIVE gone (id) AS (
        SELECT id FROM traces
        WHERE owner IN (SELECT number FROM gone_owners) OR author IN (SELECT id FROM gone_ids)
        UNION SELECT made.id FROM gone JOIN (
            SELECT id AS part, merged_into AS id FROM traces WHERE merged_into IS NOT NULL
            UNION ALL SELECT target, source FROM edges WHERE kind = '{DERIVED_FROM}'
        ) AS made ON made.part = gone.id
    ) SELECT id FROM gone
"""  # noqa: S608 (a constant)
# Traces of others that were merged with an erased one are separate again.
_UNMERGED = """
    UPDATE traces SET deleted_at = NULL, merged_into = NULL
    WHERE merged_into IN (SELECT id FROM gone_traces) AND id NOT IN (SELECT id FROM gone_traces)
"""
_GONE = "(SELECT id FROM gone_traces)"
_DEPENDENT = (
    f"DELETE FROM edges WHERE source IN {_GONE} OR target IN {_GONE}",  # noqa: S608 (constants)
    f"DELETE FROM uses WHERE trace IN {_GONE}",  # noqa: S608 (names of ours)
    f"DELETE FROM archive WHERE trace IN {_GONE}",  # noqa: S608 (names of ours)
    f"DELETE FROM archive_reads WHERE trace IN {_GONE} OR reader IN (SELECT id FROM gone_ids)",  # noqa: S608 (names of ours)
)
# An edge may end at a node of an import, `node:<owner>:<id>`.
_NODES = """
    DELETE FROM edges WHERE EXISTS (
        SELECT 1 FROM gone_owners WHERE instr(source, 'node:' || number || ':') = 1
            OR instr(target, 'node:' || number || ':') = 1
    )
"""
_OWNED = (
    f"DELETE FROM traces WHERE id IN {_GONE}",  # noqa: S608 (constants)
    _NODES,
    "DELETE FROM records WHERE owner IN (SELECT number FROM gone_owners)",
    "DELETE FROM owners WHERE number IN (SELECT number FROM gone_owners)",
)


async def erase_person(trace_store: TraceStore, *, user_ids: Collection[str], session_ids: Collection[str]) -> int:
    """Erase all of a person's traces and rewrite the file; returns how many were erased. Safe to repeat.

    Args:
        session_ids: sessions in which only this person wrote.

    Raises:
        StoreUnavailable: there is no room, or the disk is broken; nothing was changed.
    """

    def work(connection: Connection) -> int:
        return _erase_traces(connection, user_ids, session_ids)

    count = await trace_store.database.write_long(work)
    await trace_store.database.compact()
    return count


async def forget(trace_store: TraceStore, viewer: Viewer, trace_id: str) -> bool:
    """Take out one trace of the viewer's, hidden or not, for good; False where there is none with that id.

    Raises:
        TraceError: everybody shares it, and the viewer may not change that.
    """
    viewer = await trace_store.whole(viewer)

    def work(connection: Connection) -> bool:
        stored = find_to_change(connection, viewer, trace_id)
        stored = stored or find_to_change(connection, viewer, trace_id, is_deleted=True)
        if stored is None:
            return False
        _gather(connection, (), ())
        connection.execute("CREATE TEMP TABLE gone_traces (id TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO gone_traces VALUES (?)", (stored.trace.id,))
        for sql in _DEPENDENT:
            connection.execute(sql)
        connection.execute("DELETE FROM traces WHERE number = ?", (stored.number,))
        _drop(connection)
        return True

    is_forgotten = await trace_store.database.write_long(work)
    if is_forgotten:
        await trace_store.database.compact()
    return is_forgotten


def _erase_traces(connection: Connection, user_ids: Collection[str], session_ids: Collection[str]) -> int:
    """Take out what belongs to these users and sessions, inside the caller's transaction; how many traces went."""
    _gather(connection, user_ids, session_ids)
    connection.execute(_OWNERS)
    connection.execute(_TRACES)
    connection.execute(_UNMERGED)
    for sql in _DEPENDENT:
        connection.execute(sql)
    count = connection.execute(_OWNED[0]).rowcount
    for sql in _OWNED[1:]:
        connection.execute(sql)
    _drop(connection)
    return count


def owner_ids(connection: Connection) -> frozenset[str]:
    """The user ids of everybody who has traces or documents here."""
    rows = connection.execute("SELECT id FROM owners WHERE kind IN ('user', 'persona')")
    authors = connection.execute("SELECT DISTINCT author FROM traces WHERE author IS NOT NULL")
    documents = connection.execute("SELECT key FROM trace_documents WHERE key LIKE 'users/%/%'")
    return frozenset(
        {
            *(row[0].partition("::")[0] for row in rows),
            *(row[0] for row in authors),
            *(row[0].split("/")[1] for row in documents),
        }
    )


def traces_of(connection: Connection, ids: Collection[str]) -> list[Trace]:
    """All traces that belong to these users and sessions or are the users' words, hidden ones too, oldest first.

    What was merged of several people's words is left out; the person's own are there one by one.
    """
    known = {
        row["number"]: (row["kind"], row["id"]) for row in connection.execute("SELECT number, kind, id FROM owners")
    }
    owners = [
        number
        for number, (kind, name) in known.items()
        if (kind in ("user", "thread") and name in ids) or (kind == "persona" and name.partition("::")[0] in ids)
    ]
    sql = f"""{SELECT} WHERE owner IN ({places(owners)}) OR (author IN ({places([*ids])}) AND NOT EXISTS (
        SELECT 1 FROM traces AS part WHERE part.merged_into = traces.id AND part.author NOT IN ({places([*ids])})
    )) ORDER BY traces.created_at, traces.number"""  # noqa: S608 (question marks)
    return [from_row(row) for row in connection.execute(sql, (*owners, *ids, *ids))]


def _gather(connection: Connection, user_ids: Collection[str], session_ids: Collection[str]) -> None:
    for table, ids in (("gone_ids", user_ids), ("gone_threads", session_ids)):
        connection.execute(f"CREATE TEMP TABLE {table} (id TEXT PRIMARY KEY)")
        connection.executemany(f"INSERT INTO {table} VALUES (?)", [(each,) for each in ids])  # noqa: S608 (names of ours)


def _drop(connection: Connection) -> None:
    """A failure takes them back as all else."""
    for name in ("gone_ids", "gone_threads", "gone_owners", "gone_traces"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
