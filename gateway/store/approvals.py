"""Approvals and grants: see `gateway.approvals.approval.ApprovalStore`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from gateway.approvals.approval import Approval, ApprovalState, Grant
from gateway.pipeline.storable import APPROVED
from gateway.runtime.failpoints import reach
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.lanes import arrive
from gateway.store.payloads import conversation_of, inbound, inbound_json, storable
from gateway.store.rows import columns_of, insert, marks_for, value_of

_NEWEST = "SELECT * FROM approvals {which} ORDER BY id DESC LIMIT ?"
# The index of those that wait is taken for its very condition.
_WAITING = "state = 'waiting' AND expires_at > now_ms()"
_DECIDE = "UPDATE approvals SET state = ?, decided_at = ?, decided_by = ? WHERE id = ? AND state = 'waiting'"
_EXPIRE = """
    UPDATE approvals SET state = 'expired', decided_at = now_ms()
    WHERE id = ? AND state = 'waiting' AND expires_at <= now_ms()
"""
_WITHDRAW = "UPDATE approvals SET state = 'withdrawn' WHERE id = ? AND state = 'granted'"
_ASKED_BY = "SELECT * FROM inbox WHERE turn_id = ?"
_GRANTS = "SELECT * FROM grants WHERE (until_at IS NULL OR until_at > now_ms()) {whose} ORDER BY id"
_REVOKE = "DELETE FROM grants WHERE id = ?"


def insert_approvals(connection: Connection, approvals: Sequence[Approval]) -> None:
    """Keep what a turn asks for, inside the transaction that commits the turn."""
    for one in approvals:
        sources = storable(json.dumps(one.sources, ensure_ascii=False))
        row = {**columns_of(one, without=("sources",)), "sources": sources}
        insert(connection, "approvals", row, "ON CONFLICT DO NOTHING")


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
            conditions.append(_WAITING if state == "waiting" else "state = ?")
            values += [] if state == "waiting" else [state]
        if user_ids is not None:
            conditions.append(f"user_id IN ({marks_for(user_ids)})")
            values += user_ids
        which = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = await self._engine.rows(_NEWEST.format(which=which), (*values, limit))
        return [_approval(row) for row in reversed(rows)]

    async def approval(self, approval_id: int) -> Approval | None:
        row = await self._engine.row("SELECT * FROM approvals WHERE id = ?", (approval_id,))
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
        return await self._engine.write(statement(_WITHDRAW, (approval_id,)), alone=()) == 1

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
    return value_of(Approval, row, conversation=conversation_of(row), sources=tuple(json.loads(row["sources"])))
