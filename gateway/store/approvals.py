"""Approvals and grants: see `gateway.approvals.approval.ApprovalStore`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Literal

from gateway.approvals.approval import Approval, ApprovalState, Grant
from gateway.pipeline.storable import APPROVED
from gateway.runtime.failpoints import reach
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.lanes import arrive
from gateway.store.payloads import conversation_of, inbound, inbound_json, storable
from gateway.store.rows import columns_of, insert, marks_for, value_of

# What waits too long is expired, whether or not that stands there yet.
_ALL = """
    SELECT approvals.*, state = 'waiting' AND expires_at <= now_ms() AS is_late FROM approvals {which}
    ORDER BY id DESC LIMIT ?
"""
_ONE = _ALL.format(which="WHERE id = ?")
_AGAIN = _ALL.format(which="WHERE turn_id = ? AND call_id = ?")
# The index of those that wait is taken for its very condition.
_IN_STATE = {
    "waiting": "state = 'waiting' AND expires_at > now_ms()",
    "expired": "(state = 'expired' OR (state = 'waiting' AND expires_at <= now_ms()))",
}
_DECIDE = "UPDATE approvals SET state = ?, decided_at = ?, decided_by = ? WHERE id = ? AND state = 'waiting'"
_EXPIRE = """
    UPDATE approvals SET state = 'expired', decided_at = now_ms()
    WHERE id = ? AND state = 'waiting' AND expires_at <= now_ms()
"""
_WITHDRAW = "UPDATE approvals SET state = 'withdrawn' WHERE id = ? AND state = 'granted'"
_DROP = """
    UPDATE approvals SET state = 'withdrawn', decided_at = now_ms()
    WHERE session_id = ? AND (state = 'granted' OR (state = 'waiting' AND expires_at > now_ms()))
"""
_ASKED_BY = "SELECT * FROM inbox WHERE turn_id = ?"
_GRANTS = "SELECT * FROM grants WHERE (until_at IS NULL OR until_at > now_ms()) {whose} ORDER BY id"
_REVOKE = "DELETE FROM grants WHERE id = ?"


def insert_approvals(connection: Connection, approvals: Sequence[Approval]) -> None:
    """Keep what a turn asks for, inside the transaction that commits the turn."""
    for one in approvals:
        sources = storable(json.dumps(one.sources, ensure_ascii=False))
        row = {**columns_of(one, without=("sources",)), "sources": sources}
        insert(connection, "approvals", row, "ON CONFLICT DO NOTHING")


def withdraw_approval(connection: Connection, approval_id: int) -> bool:
    """End one that was granted and is not begun; False where there is none."""
    return connection.execute(_WITHDRAW, (approval_id,)).rowcount == 1


class SqlApprovals:
    """The lock of an approval's own row decides which of two presses was first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def approvals(
        self, *, user_ids: Sequence[str] | None = None, state: ApprovalState | None = "waiting", limit: int = 200
    ) -> Sequence[Approval]:
        conditions: list[str] = []
        values: list[object] = []
        if state is not None:
            conditions.append(_IN_STATE.get(state, "state = ?"))
            values += [] if state in _IN_STATE else [state]
        if user_ids is not None:
            conditions.append(f"user_id IN ({marks_for(user_ids)})")
            values += user_ids
        which = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = await self._engine.rows(_ALL.format(which=which), (*values, limit))
        return [_approval(row) for row in reversed(rows)]

    async def approval(self, approval_id: int) -> Approval | None:
        row = await self._engine.row(_ONE, (approval_id, 1))
        return None if row is None else _approval(row)

    async def decide(
        self,
        approval: Approval,
        state: Literal["granted", "refused", "withdrawn"],
        *,
        by: str,
        grant: Grant | None = None,
    ) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute(_EXPIRE, (approval.id,))
            if connection.execute(_DECIDE, (state, wall_ms(), by, approval.id)).rowcount != 1:
                return False
            if state == "granted":
                _send_in(connection, approval)
            if grant is not None:
                connection.execute("DELETE FROM grants WHERE until_at <= now_ms()")
                insert(connection, "grants", columns_of(grant, without=("id",)))
            return True

        is_first = await self._engine.write(work, alone=())
        reach("approval.decided")
        return is_first

    async def withdraw(self, approval_id: int) -> bool:
        return await self._engine.write(partial(withdraw_approval, approval_id=approval_id), alone=())

    async def drop(self, session_id: str) -> int:
        return await self._engine.write(statement(_DROP, (session_id,)), alone=())

    async def ask_again(self, approval: Approval, number: int, *, at: datetime) -> Approval | None:
        wanted = approval.again(number, at=at)

        def work(connection: Connection) -> Approval | None:
            connection.execute(_EXPIRE, (approval.id,))
            found = connection.execute(_ONE, (approval.id, 1)).fetchone()
            if found is None or _approval(found).state != "expired":
                return None
            insert_approvals(connection, [wanted])
            row = connection.execute(_AGAIN, (wanted.turn_id, wanted.call_id, 1)).fetchone()
            asked = None if row is None else _approval(row)
            return asked if asked is not None and asked.digest == approval.digest else None

        return await self._engine.write(work, alone=())

    async def grants(self, user_ids: Sequence[str] | None = None) -> Sequence[Grant]:
        whose = "" if user_ids is None else f"AND user_id IN ({marks_for(user_ids)})"
        rows = await self._engine.rows(_GRANTS.format(whose=whose), tuple(user_ids or ()))
        return [value_of(Grant, row) for row in rows]

    async def revoke(self, grant_id: int) -> bool:
        return await self._engine.write(statement(_REVOKE, (grant_id,)), alone=()) == 1


def _send_in(connection: Connection, approval: Approval) -> None:
    """The message that makes the call, in the conversation in which it was asked for, once."""
    asked = connection.execute(_ASKED_BY, (approval.turn_id,)).fetchone()
    if asked is None:  # its person was erased
        return
    name = f"{APPROVED}{approval.id}"
    message = replace(inbound(asked), id=name, event_id=name, text="", attachments=(), quotes=(), command=None)
    place = arrive(connection, message.conversation, asked["sender"], needs_channel=False)()
    row = {
        **columns_of(message.conversation),
        **place._asdict(),
        "turn_id": f"{approval.turn_id}.{approval.id}",
        "event_id": message.event_id,
        "message_id": message.id,
        "payload": inbound_json(message),
        "sender": asked["sender"],
        "is_direct": bool(asked["is_direct"]),
        "state": "ready",
        "approval_id": approval.id,
        "accepted_at": wall_ms(),
    }
    insert(connection, "inbox", row, "ON CONFLICT DO NOTHING")


def _approval(row: Row) -> Approval:
    sources, state = tuple(json.loads(row["sources"])), "expired" if row["is_late"] else row["state"]
    return value_of(Approval, row, conversation=conversation_of(row), sources=sources, state=state)
