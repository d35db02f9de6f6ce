"""Turns in SQLite: all effects in one transaction; see `gateway.pipeline.commit.TurnStore`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from gateway.domain.sessions import Session, SessionMessage
from gateway.errors import ClaimLost
from gateway.pipeline.commit import TurnCommit
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.clock import steady_ms, wall_ms
from gateway.store.database import Database, statement
from gateway.store.ingest import insert_job
from gateway.store.memory_journal import insert_pending, select_unsettled, settle_pending
from gateway.store.outbox import insert_replies
from gateway.store.payloads import storable, to_ms
from gateway.store.people import apply_change, insert_chat
from gateway.store.proposals import insert_proposals

_END = """
    UPDATE inbox SET state = ?, claimed_by = NULL, lease_until = NULL, error = ?, ended_at = ?
    WHERE seq = ? AND state = 'running' AND claimed_by = ?
"""
# The wait that begins now is not the message's fault: the attempt is taken back.
_PARK = """
    UPDATE inbox SET state = 'parked', claimed_by = NULL, lease_until = NULL, error = ?, due_at = ?, waiting_since = ?,
                     waits_for = ?, is_told = 1, attempts = attempts - 1, deaths = 0
    WHERE seq = ? AND state = 'running' AND claimed_by = ?
"""
# A summary that was saved while the turn ran is not taken back.
_SAVE_SESSION = """
    INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary,
                          summary_until, created_at, updated_at, is_tainted)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        key = excluded.key, user_id = excluded.user_id, personality_id = excluded.personality_id,
        channel = excluded.channel, conversation = excluded.conversation, thread = excluded.thread,
        title = iif(is_titled, title, excluded.title), updated_at = excluded.updated_at,
        summary = iif(excluded.summary_until >= summary_until, excluded.summary, summary),
        summary_until = max(excluded.summary_until, summary_until),
        is_tainted = max(excluded.is_tainted, is_tainted)
"""
_MAKE_ACTIVE = """
    INSERT INTO session_keys (key, session_id) VALUES (?, ?)
    ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id WHERE session_id <> excluded.session_id
"""
_SAVE_MESSAGE = """
    INSERT INTO messages (session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id,
                          is_superseded, created_at, author, is_tainted)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SAVE_STEPS = """
    INSERT INTO turn_steps (turn_id, steps, saved_at) VALUES (?, ?, ?)
    ON CONFLICT (turn_id) DO UPDATE SET steps = excluded.steps, saved_at = excluded.saved_at
"""
_BEGIN_TOOL = "INSERT INTO tool_journal (turn_id, call_id, name, begun_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_END_TOOL = "UPDATE tool_journal SET result = ?, ended_at = ? WHERE turn_id = ? AND call_id = ?"


class SqliteTurns:
    """Commits turns, and keeps the steps of unfinished ones; `now_ms` measures how long a message is parked."""

    def __init__(
        self,
        database: Database,
        *,
        now_ms: Callable[[], int] = steady_ms,
        on_messages: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """Nothing is read yet; `on_messages` is told how many messages of a session were committed."""
        self._database = database
        self._on_messages = on_messages
        self._now_ms = now_ms

    async def commit_turn(self, commit: TurnCommit) -> None:
        now_ms = self._now_ms()

        def work(connection: sqlite3.Connection) -> None:
            _end_claim(connection, commit, now_ms)
            if commit.session is not None:
                _save_session(connection, _as_it_is_now(connection, commit.session, commit.inbox_seq))
            if commit.supersedes is not None:
                connection.execute("UPDATE messages SET is_superseded = 1 WHERE turn_id = ?", (commit.supersedes,))
            for message in commit.messages:
                _save_message(connection, message)
            insert_replies(connection, commit.turn_id, commit.replies, now_ms, delivered=commit.delivered)
            if commit.memory is not None:
                insert_pending(connection, *commit.memory, datetime.now(UTC))
            insert_proposals(connection, commit.proposals)
            if commit.people is not None:
                apply_change(connection, commit.people, inbox_seq=commit.inbox_seq)
            if commit.owner_chat is not None:
                insert_chat(connection, *commit.owner_chat)
            if commit.ingest is not None:
                insert_job(connection, commit.ingest, now_ms)
            if commit.end != "parked":
                delete_steps(connection, commit.turn_id)

        await self._database.write(work)
        self._on_messages(len(commit.messages))

    async def save_steps(self, turn_id: str, steps: str, *, is_durable: bool) -> None:
        await self._database.write(statement(_SAVE_STEPS, (turn_id, storable(steps), wall_ms())), is_durable=is_durable)

    async def load_steps(self, turn_id: str) -> str | None:
        row = await self._database.row("SELECT steps FROM turn_steps WHERE turn_id = ?", (turn_id,))
        return None if row is None else str(row["steps"])

    async def begin_tool(self, turn_id: str, call_id: str, name: str) -> None:
        await self._database.write(statement(_BEGIN_TOOL, (turn_id, call_id, storable(name), wall_ms())))

    async def end_tool(self, turn_id: str, call_id: str, result: str) -> None:
        await self._database.write(statement(_END_TOOL, (storable(result), wall_ms(), turn_id, call_id)))

    async def tool_outcome(self, turn_id: str, call_id: str) -> tuple[bool, str | None]:
        sql = "SELECT result FROM tool_journal WHERE turn_id = ? AND call_id = ?"
        row = await self._database.row(sql, (turn_id, call_id))
        return (False, None) if row is None else (True, row["result"])

    async def unsettled_memory(
        self, *, after: str | None = None, limit: int | None = None
    ) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        return await self._database.read(partial(select_unsettled, after=after, limit=limit))

    async def settle_memory(self, turn_id: str, outcomes: Sequence[str]) -> None:
        work = partial(settle_pending, turn_id=turn_id, outcomes=outcomes)
        await self._database.write(work, is_durable=False)


def delete_steps(connection: sqlite3.Connection, turn_id: str) -> None:
    """Forget how far a turn came, inside the transaction that ends it."""
    connection.execute("DELETE FROM turn_steps WHERE turn_id = ?", (turn_id,))
    connection.execute("DELETE FROM tool_journal WHERE turn_id = ?", (turn_id,))


def _end_claim(connection: sqlite3.Connection, commit: TurnCommit, now_ms: int) -> None:
    error = None if commit.error is None else storable(commit.error)
    if commit.end == "parked":
        due_at = now_ms + round(commit.again_after_s * 1000)
        row = (error, due_at, now_ms, commit.waits_for, commit.inbox_seq, commit.owner)
        ended = connection.execute(_PARK, row)
    else:
        ended = connection.execute(_END, (commit.end, error, wall_ms(), commit.inbox_seq, commit.owner))
    if not ended.rowcount:
        raise ClaimLost(f"turn {commit.turn_id} is no longer claimed by {commit.owner}; nothing of it was committed")


def _as_it_is_now(connection: sqlite3.Connection, session: Session, inbox_seq: int) -> Session:
    """A session that was deleted while its turn ran starts empty: no earlier message comes back."""
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session.id,)).fetchone() is not None:
        return session
    row = connection.execute("SELECT accepted_at FROM inbox WHERE seq = ?", (inbox_seq,)).fetchone()
    if row is None or to_ms(session.created_at) >= row["accepted_at"]:
        return session  # the turn has made it
    return replace(session, title="", summary="", summary_until=0)


def _save_session(connection: sqlite3.Connection, session: Session) -> None:
    where = session.conversation
    connection.execute(
        _SAVE_SESSION,
        (
            session.id,
            session.key,
            session.user_id,
            session.personality_id,
            where.channel,
            where.conversation,
            where.thread,
            storable(session.title),
            storable(session.summary),
            session.summary_until,
            to_ms(session.created_at),
            to_ms(session.updated_at),
            session.is_tainted,
        ),
    )
    connection.execute(_MAKE_ACTIVE, (session.key, session.id))


def _save_message(connection: sqlite3.Connection, message: SessionMessage) -> None:
    connection.execute(
        _SAVE_MESSAGE,
        (
            message.session_id,
            message.turn_id,
            message.role,
            message.personality_id,
            message.user_id,
            storable(message.text),
            message.tool_name,
            message.tool_call_id,
            message.is_superseded,
            to_ms(message.created_at),
            storable(message.author),
            message.is_tainted,
        ),
    )
