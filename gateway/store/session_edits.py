"""Sessions as people look through and tidy them: found by many marks, forked, renamed, pinned, deleted.

No method here writes a new message: a fork copies whole messages as they are.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from gateway.domain.sessions import Session, SessionHit, SessionMessage
from gateway.messages import ConversationRef
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.payloads import storable, to_ms
from gateway.store.persons import PERSON, ids_of_person
from gateway.store.rows import columns_of, insert_new, marks_for, value_of
from gateway.store.search import RANKED, MessageIndex, finder_of, search_messages
from gateway.store.sessions import MESSAGE, NO_ID, make_active, message_of, session_of
from gateway.store.turns import delete_steps

_LISTED = """
    SELECT *, (SELECT count(*) FROM messages WHERE session_id = sessions.id) AS message_count
    FROM sessions WHERE {where} ORDER BY updated_at DESC, number DESC LIMIT ?
"""
_HEAD = """
    SELECT *, EXISTS (
        SELECT 1 FROM session_keys WHERE session_keys.key = sessions.key AND session_id = sessions.id
    ) AS is_active FROM sessions WHERE id = ?
"""
_COPY_SESSION = """
    INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary,
                          summary_until, created_at, updated_at, is_tainted, is_titled, forked_from, branch_of,
                          branch_turn)
    SELECT ?1, ?2, user_id, personality_id, ?3, ?4, NULL, coalesce(?5, title), summary, 0, ?6, ?6, is_tainted,
           ?5 IS NOT NULL OR is_titled, id, CASE WHEN ?7 <> '' THEN coalesce(branch_of, id) END, ?7
    FROM sessions WHERE id = ?8
"""
_COPY_MESSAGES = """
    INSERT INTO messages (session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id,
                          is_superseded, created_at, author, is_tainted{words})
    SELECT ?1, turn_id || ':' || ?1, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded,
           created_at, author, is_tainted{words}
    FROM messages WHERE session_id = ?2 AND id <= ?3{whose} ORDER BY id
"""


# The first turn of a branch is no copy; until it is committed, it waits in the branch's conversation.
_BRANCHES = """
    SELECT id, branch_turn, coalesce(
        (SELECT turn_id FROM messages WHERE session_id = sessions.id AND turn_id NOT LIKE '%:%' ORDER BY id LIMIT 1),
        (SELECT turn_id FROM inbox WHERE channel = sessions.channel AND conversation = sessions.conversation
         ORDER BY seq LIMIT 1)
    ) AS first_turn
    FROM sessions WHERE branch_of = ? ORDER BY number
"""
_ASKED = "SELECT turn_id FROM messages WHERE session_id = ? AND role = 'user' ORDER BY id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Another version of a session.

    Attributes:
        branch_turn: the turn in whose place its first one stands.
        first_turn: its first turn of its own; None where nothing is said in it yet.
    """

    id: str
    branch_turn: str
    first_turn: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """A session in a list.

    Attributes:
        number: orders sessions of one moment.
        forked_from: the session that it was copied from.
        branch_of: the first of the versions that it is one of; None where there is no other.
        branch_turn: as in `Branch`.
    """

    session: Session
    number: int
    messages: int
    is_pinned: bool
    forked_from: str | None
    branch_of: str | None
    branch_turn: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """What sessions are asked for; None for any.

    Attributes:
        user_id: of one person, with all its ids.
        title: words that stand so in the title, in small or large letters.
        branch_of: another version of this session.
    """

    user_id: str | None = None
    personality_id: str | None = None
    channel: str | None = None
    is_pinned: bool | None = None
    title: str | None = None
    branch_of: str | None = None


class SqlSessionEdits:
    """Lists, renames, pins, forks and deletes sessions."""

    def __init__(self, engine: Engine, index: MessageIndex) -> None:
        self._engine = engine
        self._index = index

    async def listed(
        self, wanted: SessionFilter, *, limit: int, before: tuple[int, int] | None = None
    ) -> Sequence[ListedSession]:
        """The newest by `updated_at`; `before`: those behind the one of this time (milliseconds) and number."""
        clauses, values = _clauses(wanted, self._engine.dialect.unindexed)
        if before is not None:
            clauses.append("(updated_at, number) < (?, ?)")
            values += before
        sql = _LISTED.format(where=" AND ".join(clauses) or "TRUE")
        rows = await self._engine.rows(sql, (*values, limit))
        return [_listed(row) for row in rows]

    async def one(self, session_id: str) -> ListedSession | None:
        """One, as the list has it."""
        row = await self._engine.row(_LISTED.format(where="id = ?"), (session_id, 1))
        return None if row is None else _listed(row)

    async def head(self, session_id: str) -> tuple[Session, bool] | None:
        """One without what the list counts, and whether the next message of its key belongs to it."""
        row = await self._engine.row(_HEAD, (session_id,))
        return None if row is None else (session_of(row), bool(row["is_active"]))

    async def found(
        self, query: str, *, user_id: str | None, before: int | None, limit: int = RANKED
    ) -> Sequence[SessionHit]:
        """The newest messages with all words of the query, the best first; `before`: those with a lower id."""
        await self._index.catch_up()
        return await self._engine.read(
            lambda connection: search_messages(connection, query, user_id, limit, NO_ID if before is None else before)
        )

    async def messages(
        self, session_id: str, *, after: int, limit: int, user_id: str | None = None
    ) -> Sequence[SessionMessage]:
        """Those with an id above `after`, oldest first; `user_id`: only what concerns this person."""
        clause = f" AND user_id IN {PERSON.format('?4')}" if user_id is not None else ""
        sql = f"SELECT {MESSAGE} FROM messages WHERE session_id = ?1 AND id > ?2{clause} ORDER BY id LIMIT ?3"  # noqa: S608 (of our own)
        values = (session_id, after, limit) if user_id is None else (session_id, after, limit, user_id)
        return [message_of(row) for row in await self._engine.rows(sql, values)]

    async def passage(
        self, session_id: str, *, before: int | None, limit: int, user_id: str | None = None
    ) -> Sequence[SessionMessage]:
        """The newest messages with an id below `before`, oldest first; its cost does not grow with the session.

        Args:
            user_id: only what concerns this person.
        """
        clause = f" AND user_id IN {PERSON.format('?4')}" if user_id is not None else ""
        sql = f"SELECT {MESSAGE} FROM messages WHERE session_id = ?1 AND id < ?2{clause} ORDER BY id DESC LIMIT ?3"  # noqa: S608 (constants)
        values: tuple[object, ...] = (session_id, NO_ID if before is None else before, limit)
        if user_id is not None:
            values = (*values, user_id)
        return [message_of(row) for row in reversed(await self._engine.rows(sql, values))]

    async def of_turns(self, turn_ids: Collection[str]) -> Sequence[SessionMessage]:
        """All messages of these turns, oldest first; copies in other sessions are left out."""
        sql = f"SELECT {MESSAGE} FROM messages WHERE turn_id IN ({marks_for(turn_ids)}) ORDER BY id"  # noqa: S608 (placeholders only)
        return [message_of(row) for row in await self._engine.rows(sql, tuple(turn_ids))]

    async def sessions_of(self, turn_ids: Collection[str]) -> dict[str, str]:
        """In which session each of these turns was; one that said nothing, or is a copy, is left out."""
        sql = f"SELECT DISTINCT turn_id, session_id FROM messages WHERE turn_id IN ({marks_for(turn_ids)})"  # noqa: S608 (placeholders only)
        return {row["turn_id"]: row["session_id"] for row in await self._engine.rows(sql, tuple(turn_ids))}

    async def channels(self, turn_ids: Collection[str]) -> dict[str, str]:
        """On which channel the message of each turn came; a turn whose message is gone or a copy is left out."""
        sql = f"SELECT turn_id, channel FROM inbox WHERE turn_id IN ({marks_for(turn_ids)})"  # noqa: S608 (placeholders only)
        return {row["turn_id"]: row["channel"] for row in await self._engine.rows(sql, tuple(turn_ids))}

    async def person_ids(self, user_id: str) -> frozenset[str]:
        """All ids under which a person has written."""
        return frozenset(await self._engine.read(lambda connection: ids_of_person(connection, user_id)))

    async def branches(self, session_id: str) -> Sequence[Branch]:
        """The other versions of a session that is the first, the oldest first."""
        return [value_of(Branch, row) for row in await self._engine.rows(_BRANCHES, (session_id,))]

    async def asked(self, session_id: str) -> Sequence[str]:
        """The turns of a session that a person began, in order."""
        return [row["turn_id"] for row in await self._engine.rows(_ASKED, (session_id,))]

    # ---- changes ----------------------------------------------------------------------------------------------------

    async def open(self, session: Session) -> None:
        """Keep a session that has no message yet, for its key's next message; where its key has one, that stays."""

        def work(connection: Connection) -> None:
            if not connection.execute("SELECT 1 FROM session_keys WHERE key = ?", (session.key,)).fetchone():
                is_made = insert_new(connection, "sessions", columns_of(session))
                key = {"key": session.key, "session_id": session.id}
                is_first = insert_new(connection, "session_keys", key)
                if is_made and not is_first:  # a turn was committed at this moment
                    connection.execute("DELETE FROM sessions WHERE id = ?", (session.id,))

        await self._engine.write(work, alone=())

    async def activate(self, session: Session) -> None:
        """Let the next message of the session's key belong to it."""
        await self._engine.write(partial(make_active, key=session.key, session_id=session.id), alone=())

    async def fork(
        self,
        session_id: str,
        *,
        until: int,
        title: str | None,
        key: str,
        conversation: ConversationRef,
        user_id: str | None = None,
        branch_turn: str | None = None,
        new_id: str | None = None,
    ) -> str | None:
        """Copy a session up to and including a message; the new id, or None: the session has no such message.

        Args:
            title: None keeps the session's, which the next turn may still change.
            key: that of the copy, in a conversation of its own.
            user_id: only what concerns this person is copied; a summary, which may tell of others, is not.
            branch_turn: the copy is another version of the session: the message itself, which is of this turn, is
                left out, and what is said next stands in its place.
            new_id: of the copy; where there is one already, it stays as it is.
        """
        new_id = new_id or f"s_{secrets.token_hex(8)}"

        def work(connection: Connection) -> int:
            known = "SELECT summary_until FROM sessions JOIN messages ON session_id = sessions.id WHERE messages.id = ?"
            sql = f"{known} AND sessions.id = ? {connection.dialect.shared}"
            row = connection.execute(sql, (until, session_id)).fetchone()
            if row is None:
                return 0
            if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (new_id,)).fetchone():
                return 0
            place = (conversation.channel, conversation.conversation)
            named = None if title is None else storable(title)
            values = (new_id, key, *place, named, wall_ms(), branch_turn, session_id)
            connection.execute(_COPY_SESSION, values)
            last = until if branch_turn is None else until - 1
            copied = _copy_messages(connection, session_id, new_id, last, user_id)
            covered_until = int(row["summary_until"]) if user_id is None else until + 1
            _carry_summary(connection, session_id, new_id, covered_until, last)
            if branch_turn is not None and not copied:
                connection.execute("UPDATE sessions SET title = '' WHERE id = ? AND NOT is_titled", (new_id,))
            make_active(connection, key, new_id)
            return copied

        copied = await self._engine.write(work, alone=())
        self._index.added(copied)
        return new_id if copied or (branch_turn is not None and await self.head(new_id)) else None

    async def update(self, session_id: str, *, title: str | None, is_pinned: bool | None) -> bool:
        """Give it another title or pin it, each where it is not None; False where there is no such session."""
        sql = (
            "UPDATE sessions SET title = coalesce(?1, title), is_titled = is_titled OR ?1 IS NOT NULL, "
            "is_pinned = coalesce(?2, is_pinned) WHERE id = ?3"
        )
        values = (None if title is None else storable(title), is_pinned, session_id)
        return await self._engine.write(statement(sql, values), alone=()) == 1

    async def delete(self, session_id: str) -> bool:
        """Forget a session with all that was said in it, in the search index too; False where there is none."""

        def work(connection: Connection) -> bool:
            # A turn that is being committed adds messages behind this lock, and they go, too; or it makes the session
            # once more, and then none of them comes back.
            locking = f"SELECT id FROM sessions WHERE id = ? {connection.dialect.locked}"  # noqa: S608 (of our own)
            if connection.execute(locking, (session_id,)).fetchone() is None:
                return False
            turns = connection.execute("SELECT DISTINCT turn_id FROM messages WHERE session_id = ?", (session_id,))
            for row in turns.fetchall():
                delete_steps(connection, row["turn_id"])
            connection.execute("DELETE FROM session_keys WHERE session_id = ?", (session_id,))
            connection.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
            connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            return True

        return await self._engine.write(work, alone=())


def place_of(listed: ListedSession) -> tuple[int, int]:
    """Where a session stands in the list."""
    return to_ms(listed.session.updated_at), listed.number


def _clauses(wanted: SessionFilter, unindexed: str) -> tuple[list[str], list[object]]:
    clauses: list[str] = []
    values: list[object] = []
    # Few are pinned: their own index finds them, and no other is to be walked through.
    mark = unindexed if wanted.is_pinned else ""
    if wanted.user_id is not None:
        clauses.append(f"{mark}user_id IN {PERSON.format('?')}")
        values.append(wanted.user_id)
    columns = {"personality_id": wanted.personality_id, "channel": wanted.channel, "branch_of": wanted.branch_of}
    for column, value in columns.items():
        if value is not None:
            clauses.append(f"{mark}{column} = ?")
            values.append(value)
    if wanted.title is not None:
        # A database knows the large letters of its own locale only, so what stands there as it is typed counts, too.
        clauses.append("(title LIKE ? ESCAPE '!' OR lower(title) LIKE ? ESCAPE '!')")
        pattern = "%" + re.sub("([!%_])", r"!\1", wanted.title) + "%"
        values += (pattern, pattern.lower())
    if wanted.is_pinned is not None:
        clauses.append("is_pinned" if wanted.is_pinned else "NOT is_pinned")
    return clauses, values


def _copy_messages(connection: Connection, old: str, new: str, until: int, user_id: str | None) -> int:
    whose, values = ("", ()) if user_id is None else (f" AND user_id IN {PERSON.format('?4')}", (user_id,))
    sql = _COPY_MESSAGES.format(whose=whose, words=finder_of(connection).COPIED)
    return connection.execute(sql, (new, old, until, *values)).rowcount


def _carry_summary(connection: Connection, old: str, new: str, summary_until: int, until: int) -> None:
    """Copies have other ids: the summary covers as many of them; it is dropped where it says more than was copied."""
    if summary_until > until:
        connection.execute("UPDATE sessions SET summary = '' WHERE id = ?", (new,))
        return
    covered = "SELECT count(*) FROM messages WHERE session_id = ? AND id <= ?"
    count = connection.execute(covered, (old, summary_until)).fetchone()[0]
    if count:
        nth = "SELECT id FROM messages WHERE session_id = ? ORDER BY id LIMIT 1 OFFSET ?"
        last = connection.execute(nth, (new, count - 1)).fetchone()[0]
        connection.execute("UPDATE sessions SET summary_until = ? WHERE id = ?", (last, new))


def _listed(row: Row) -> ListedSession:
    return value_of(ListedSession, row, session=session_of(row), messages=row["message_count"])
