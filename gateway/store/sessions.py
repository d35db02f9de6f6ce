"""Sessions: see `gateway.domain.sessions.SessionStore`.

A column of a session stands in two places: what becomes of it where there is a row (`_MERGE`), and `session_edits.py`,
which copies it (`_COPY_SESSION`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby

from gateway.domain.sessions import Session, SessionHit, SessionMessage
from gateway.store.engine import Connection, Cursor, Engine, Row, statement
from gateway.store.payloads import conversation_of, storable, to_ms
from gateway.store.persons import PERSON
from gateway.store.rows import columns_of, insert, value_of
from gateway.store.search import MessageIndex, finder_of, search_messages

NO_ID = 1 << 62
"""Above every id, and every number of rows."""
# Of a message; what an engine keeps beside it for its search is not read.
MESSAGE = """
    id, session_id, turn_id, role, personality_id, user_id, author, text, tool_name, tool_call_id, is_superseded,
    is_tainted, created_at
"""
_ACTIVE = "SELECT sessions.* FROM session_keys JOIN sessions ON sessions.id = session_id WHERE session_keys.key = ?"
# Of a session that is gone meanwhile nothing but its time is known: those of the same moment are then left out.
_BEHIND = "(updated_at, number) < (?, (SELECT number FROM sessions WHERE id = ?))"
_LIST = "SELECT * FROM sessions WHERE {} ORDER BY updated_at DESC, number DESC LIMIT ?"
_NEWEST = f"SELECT {MESSAGE} FROM messages WHERE session_id = ? ORDER BY id DESC LIMIT ?"  # noqa: S608 (constants)
_UNREPLACED = f"SELECT {MESSAGE} FROM messages WHERE session_id = ? AND NOT is_superseded"  # noqa: S608 (constants)
_WINDOW = f"{_UNREPLACED} AND id > ? ORDER BY id DESC"
_RESULTS = """
    SELECT text FROM messages WHERE session_id = ? AND role = 'tool_result' AND tool_name = ? ORDER BY id
"""
_OLDER = f"{_UNREPLACED} AND id > ? AND id < ? ORDER BY id"
# A summary that was saved while the turn ran is not taken back.
_MERGE = """
    ON CONFLICT (id) DO UPDATE SET
        key = excluded.key, user_id = excluded.user_id, personality_id = excluded.personality_id,
        channel = excluded.channel, conversation = excluded.conversation, thread = excluded.thread,
        title = CASE WHEN sessions.is_titled THEN sessions.title ELSE excluded.title END,
        updated_at = excluded.updated_at,
        summary = CASE WHEN excluded.summary_until >= sessions.summary_until THEN excluded.summary
                       ELSE sessions.summary END,
        summary_until = CASE WHEN excluded.summary_until >= sessions.summary_until THEN excluded.summary_until
                             ELSE sessions.summary_until END,
        is_tainted = sessions.is_tainted OR excluded.is_tainted
"""
_MAKE_ACTIVE = """
    INSERT INTO session_keys (key, session_id) VALUES (?, ?)
    ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id
    WHERE session_keys.session_id <> excluded.session_id
"""
_SAVE_SUMMARY = "UPDATE sessions SET summary = ?1, summary_until = ?2 WHERE id = ?3 AND summary_until <= ?2"


class SqlSessions:
    """Reads sessions and their messages; only a turn's commit writes messages."""

    def __init__(self, engine: Engine, index: MessageIndex) -> None:
        self._engine = engine
        self._index = index

    async def active_session(self, key: str) -> Session | None:
        row = await self._engine.ask(lambda connection: connection.execute(_ACTIVE, (key,)).fetchone)
        return None if row is None else session_of(row)

    async def session(self, session_id: str) -> Session | None:
        row = await self._engine.row("SELECT * FROM sessions WHERE id = ?", (session_id,))
        return None if row is None else session_of(row)

    async def list_sessions(
        self, *, user_id: str | None = None, limit: int = 50, before: Session | None = None
    ) -> Sequence[Session]:
        clauses = ["TRUE" if user_id is None else f"user_id IN {PERSON.format('?')}"]
        values: list[object] = [] if user_id is None else [user_id]
        if before is not None:
            clauses.append(_BEHIND)
            values += (to_ms(before.updated_at), before.id)
        rows = await self._engine.rows(_LIST.format(" AND ".join(clauses)), (*values, limit))
        return [session_of(row) for row in rows]

    async def people(self) -> Mapping[str, frozenset[str]]:
        """The users who ever talked with each personality, by its id. Reads every message."""
        rows = await self._engine.rows("SELECT DISTINCT personality_id, user_id FROM messages WHERE role = 'user'")
        return {
            personality_id: frozenset(row["user_id"] for row in rows if row["personality_id"] == personality_id)
            for personality_id in {row["personality_id"] for row in rows}
        }

    async def messages(self, session_id: str, *, limit: int | None = None) -> Sequence[SessionMessage]:
        rows = await self._engine.rows(_NEWEST, (session_id, NO_ID if limit is None else limit))
        return [message_of(row) for row in reversed(rows)]

    async def window(self, session_id: str, *, after: int, max_chars: int) -> Sequence[SessionMessage]:
        def asking(connection: Connection) -> Callable[[], list[SessionMessage]]:
            return partial(_newest_that_fit, connection.execute(_WINDOW, (session_id, after)), max_chars)

        return (await self._engine.ask(asking))[::-1]

    async def results(self, session_id: str, tool: str) -> Sequence[str]:
        return [str(row["text"]) for row in await self._engine.rows(_RESULTS, (session_id, tool))]

    async def older_than(self, session_id: str, *, after: int, before: int) -> Sequence[SessionMessage]:
        rows = await self._engine.rows(_OLDER, (session_id, after, before))
        return [message_of(row) for row in rows]

    async def save_summary(self, session_id: str, *, summary: str, until: int) -> None:
        row = (storable(summary), until, session_id)
        await self._engine.write(statement(_SAVE_SUMMARY, row), is_durable=False, alone=())

    async def search_messages(self, query: str, *, user_id: str | None, limit: int = 20) -> Sequence[SessionHit]:
        await self._index.catch_up()
        return await self._engine.read(lambda connection: search_messages(connection, query, user_id, limit))


def _newest_that_fit(rows: Cursor, max_chars: int) -> list[SessionMessage]:
    """The messages of whole turns, as they come, which is newest first."""
    newest_first: list[SessionMessage] = []
    left_chars = max_chars
    for _, turn in groupby(rows, key=lambda row: row["turn_id"]):
        messages = []
        for row in turn:
            left_chars -= len(row["text"])
            if left_chars < 0:
                rows.close()
                return newest_first
            messages.append(message_of(row))
        newest_first += messages
    return newest_first


def save_session(connection: Connection, session: Session) -> None:
    """Keep a session as a turn leaves it, for its key's next message, inside a transaction.

    Its row is locked from here on. That makes the ids of its messages an order: those of another transaction that is
    committed later are higher.
    """
    insert(connection, "sessions", columns_of(session), _MERGE)
    make_active(connection, session.key, session.id)


def save_message(connection: Connection, message: SessionMessage) -> None:
    """Append a message to its session, inside a transaction, after `save_session`."""
    kept = finder_of(connection).kept(message)
    insert(connection, "messages", {**columns_of(message, without=("id",)), **kept})


def make_active(connection: Connection, key: str, session_id: str) -> None:
    """Let the next message of the key belong to the session, inside a transaction."""
    connection.execute(_MAKE_ACTIVE, (key, session_id))


def session_of(row: Row) -> Session:
    """A session of a row of its table."""
    return value_of(Session, row, conversation=conversation_of(row))


def message_of(row: Row) -> SessionMessage:
    """A message of a row of its table."""
    return value_of(SessionMessage, row)
