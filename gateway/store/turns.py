"""Turns: all effects in one transaction; see `gateway.pipeline.commit.TurnStore`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from gateway.domain.sessions import Session
from gateway.errors import ClaimLost, PersonChanged
from gateway.pipeline.commit import TurnCommit
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.accounts import require_still, still_is
from gateway.store.approvals import insert_approvals, withdraw_approval
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row, require
from gateway.store.ingest import insert_job
from gateway.store.lanes import hold, hold_at_once, put_off, settle
from gateway.store.memory_journal import ask_unsettled, insert_pending, settle_pending
from gateway.store.occurrences import end_occurrence
from gateway.store.outbox import insert_replies
from gateway.store.payloads import storable, to_ms
from gateway.store.people import apply_change, insert_chat
from gateway.store.proposals import insert_proposals
from gateway.store.questions import keep_question
from gateway.store.queue_rows import Place
from gateway.store.rows import put
from gateway.store.sessions import save_message, save_session
from gateway.store.tool_calls import begin_call, end_call, keep_calls, kept_call, leave_calls
from gateway.store.usage import add_bill
from gateway.tools.contract import Outcome
from gateway.tools.journal import CallKey, CallRow, KeptCall

_END = """
    UPDATE inbox SET state = ?, error = ?, ended_at = ?, attempts = attempts + 1
    WHERE lane = ? AND seq = ? AND ended_at IS NULL
"""
# The wait that begins now is not the message's fault: no attempt is counted.
_PARK = """
    UPDATE inbox SET state = 'parked', error = ?, waits_for = ?, is_told = TRUE, deaths = 0
    WHERE lane = ? AND seq = ? AND ended_at IS NULL
"""
_STOPPED = "UPDATE inbox SET had_effect = TRUE WHERE lane = ? AND seq = ? AND ended_at IS NULL"
# An erasure waits for what is written about the turn meanwhile, and what comes later finds no turn.
_OPEN_TURN = """
    SELECT lanes.stop_seq, inbox.seq FROM inbox JOIN lanes ON lanes.id = inbox.lane
    WHERE inbox.turn_id = ? AND inbox.ended_at IS NULL
"""
_DONE = """
    SELECT 1 FROM inbox JOIN lanes ON lanes.id = inbox.lane
    WHERE inbox.lane = ? AND inbox.seq = ? AND inbox.state = ? AND lanes.claim IS DISTINCT FROM ?
"""
_IS_THERE_OR_MADE = """
    SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?)
    OR ? >= (SELECT accepted_at FROM inbox WHERE lane = ? AND seq = ?)
"""


class SqlTurns:
    """Commits turns, and keeps the steps of unfinished ones."""

    def __init__(
        self,
        engine: Engine,
        *,
        on_messages: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """Nothing is read yet; `on_messages` is told how many messages of a session were committed."""
        self._engine = engine
        self._on_messages = on_messages

    async def commit_turn(self, commit: TurnCommit) -> bool:
        def work(connection: Connection) -> Callable[[], bool]:
            if connection.may_be_done and _is_done(connection, commit):
                add_bill(connection, commit.bill)  # it was another worker's commit, perhaps
                return lambda: True
            _end_row(connection, commit)
            insert_replies(connection, commit.turn_id, commit.replies, delivered=commit.delivered)
            _keep_said(connection, commit)
            if commit.memory is not None:
                insert_pending(connection, *commit.memory, datetime.now(UTC))
            insert_proposals(connection, commit.proposals)
            if commit.people is not None:
                apply_change(connection, commit.people, place=Place(commit.lane, commit.inbox_seq))
            if commit.owner_chat is not None:
                insert_chat(connection, *commit.owner_chat)
            keep_calls(connection, commit.calls)
            insert_approvals(connection, commit.approvals)
            keep_question(connection, commit)
            if commit.approval_id is not None and commit.end == "done":
                withdraw_approval(connection, commit.approval_id)
            if commit.occurrence is not None:
                end_occurrence(connection, commit.turn_id, commit.occurrence)
            if commit.ingest is not None:
                insert_job(connection, commit.ingest)
            if commit.end != "parked":
                delete_steps(connection, commit.turn_id)
            has_more = _release(connection, commit)
            add_bill(connection, commit.bill)  # last: others wait for the sums of a day no longer than they must
            return has_more

        has_more = await self._engine.write_at_once(work, alone=() if commit.people is None else ("people",))
        self._on_messages(len(commit.messages))
        return has_more

    async def save_steps(self, turn_id: str, steps: str, *, is_durable: bool) -> bool:
        row = {"turn_id": turn_id, "steps": storable(steps), "saved_at": wall_ms()}

        def work(connection: Connection) -> bool:
            is_stopped = False
            if connection.dialect.is_shared:
                turn = _open_turn(connection, turn_id)
                is_stopped = turn["stop_seq"] is not None and turn["stop_seq"] > turn["seq"]
            put(connection, "turn_steps", row, key="turn_id")
            return is_stopped

        return await self._engine.write(work, is_durable=is_durable, alone=())

    async def load_steps(self, turn_id: str) -> str | None:
        row = await self._engine.row("SELECT steps FROM turn_steps WHERE turn_id = ?", (turn_id,))
        return None if row is None else str(row["steps"])

    async def begin_call(self, row: CallRow) -> bool:
        def work(connection: Connection) -> bool:
            if connection.dialect.is_shared:
                _open_turn(connection, row.key.turn_id)
            return begin_call(connection, row)

        return await self._engine.write(work, alone=())

    async def end_call(self, key: CallKey, outcome: Outcome, result: str, sources: Sequence[str] = ()) -> None:
        work = partial(end_call, key=key, outcome=outcome, result=result, sources=sources)
        await self._engine.write(work, alone=())

    async def kept_call(self, key: CallKey) -> KeptCall | None:
        return await self._engine.read(partial(kept_call, key=key))

    async def unsettled_memory(
        self, *, after: str | None = None, limit: int | None = None
    ) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        return await self._engine.ask(partial(ask_unsettled, after=after, limit=limit))

    async def settle_memory(self, turn_id: str, outcomes: Sequence[str]) -> None:
        work = partial(settle_pending, turn_id=turn_id, outcomes=outcomes)
        await self._engine.write(work, is_durable=False, alone=())


def delete_steps(connection: Connection, turn_id: str) -> None:
    """Forget how far a turn came, inside the transaction that ends it."""
    connection.execute("DELETE FROM turn_steps WHERE turn_id = ?", (turn_id,))
    leave_calls(connection, turn_id)


def _open_turn(connection: Connection, turn_id: str) -> Row:
    """The row of a turn of one of many workers, locked against its erasure; raises ClaimLost where it is over."""
    sql = f"{_OPEN_TURN} {connection.dialect.shared} OF inbox"
    row: Row | None = connection.execute(sql, (turn_id,)).fetchone()
    if row is None:
        raise ClaimLost(f"turn {turn_id} has ended elsewhere, or was erased")
    return row


def _end_row(connection: Connection, commit: TurnCommit) -> None:
    """Lock the lane, whose lock is the first that a turn takes, and end or park its message."""
    place = (commit.lane, commit.inbox_seq)
    error = None if commit.error is None else storable(commit.error)
    if commit.end == "parked":
        ending: str = _PARK
        values: tuple[object, ...] = (error, commit.waits_for, *place)
    else:
        ending, values = _END, (commit.end, error, wall_ms(), *place)
    if connection.is_at_once:
        hold_at_once(connection, commit.lane, commit.claim)
        require(connection, "SELECT 1 FROM inbox WHERE lane = ? AND seq = ? AND ended_at IS NULL", place)
        connection.execute(ending, values)
        return
    holding = hold(connection, commit.lane, commit.claim)
    ended = connection.execute(ending, values)
    has_ended, held = bool(ended.rowcount), holding()  # behind both, so that a server is waited for once
    if not has_ended:
        raise ClaimLost(f"turn {commit.turn_id} has ended already, or was erased; nothing of it was committed")
    stop_seq = held["stop_seq"]
    if stop_seq is not None and (commit.is_stopped or stop_seq <= commit.inbox_seq) and commit.end != "parked":
        connection.execute(_STOPPED, (commit.lane, stop_seq))
        connection.execute("UPDATE lanes SET stop_seq = NULL WHERE id = ?", (commit.lane,))


def _keep_said(connection: Connection, commit: TurnCommit) -> None:
    """What was said goes into the session."""
    if commit.session is not None:
        save_session(connection, _as_it_is_now(connection, commit.session, commit))
    if commit.supersedes is not None:
        connection.execute("UPDATE messages SET is_superseded = TRUE WHERE turn_id = ?", (commit.supersedes,))
    for message in commit.messages:
        save_message(connection, message)


def _is_done(connection: Connection, commit: TurnCommit) -> bool:
    """Whether an earlier run, whose connection broke, has committed: the turn has ended so, and gave its lane free."""
    values = (commit.lane, commit.inbox_seq, commit.end, commit.claim)
    return connection.execute(_DONE, values).fetchone() is not None


def _release(connection: Connection, commit: TurnCommit) -> Callable[[], bool]:
    """Give the lane free, as the last that the turn does; then gives whether something is to be answered there now."""
    if commit.end == "parked":
        put_off(connection, commit.lane, commit.inbox_seq, commit.claim, commit.again_after_s)
        return lambda: False
    if commit.answered is not None and connection.dialect.is_shared:
        if connection.is_at_once:
            require_still(connection, *commit.answered)
        elif not still_is(connection, *commit.answered):
            raise PersonChanged("who was answered is another person by now, or is being erased; the turn runs again")
    return settle(connection, commit.lane)


def _as_it_is_now(connection: Connection, session: Session, commit: TurnCommit) -> Session:
    """A session that was deleted while its turn ran starts empty: no earlier message comes back."""
    if connection.is_at_once:
        values = (session.id, to_ms(session.created_at), commit.lane, commit.inbox_seq)
        require(connection, _IS_THERE_OR_MADE, values)
        return session
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session.id,)).fetchone() is not None:
        return session
    sql = "SELECT accepted_at FROM inbox WHERE lane = ? AND seq = ?"
    row = connection.execute(sql, (commit.lane, commit.inbox_seq)).fetchone()
    if row is None or to_ms(session.created_at) >= row["accepted_at"]:
        return session  # the turn has made it
    return replace(session, title="", summary="", summary_until=0)
