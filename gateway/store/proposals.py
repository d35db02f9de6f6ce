"""Proposals: see `gateway.memory.proposals.ProposalStore`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from gateway.memory.fact_changes import FactChange
from gateway.memory.proposals import Proposal, ProposalState
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.memory_journal import insert_pending
from gateway.store.payloads import storable
from gateway.store.persons import living_id
from gateway.store.rows import columns_of, insert, value_of

_NEWEST = "SELECT * FROM memory_proposals {which} ORDER BY id DESC LIMIT ?"
# The index of those that wait is small however many are decided; it is taken for its very condition.
_WHICH: Mapping[ProposalState | None, str] = {
    None: "",
    "waiting": "WHERE state = 'waiting'",
    "approved": "WHERE state = 'approved'",
    "refused": "WHERE state = 'refused'",
}
_EDIT = """
    UPDATE memory_proposals SET updates = ?, is_edited = TRUE WHERE id = ? AND state = 'waiting'
    AND (store = 'traces') = ?
"""
_TO_WRITE = """
    SELECT * FROM memory_proposals WHERE state = 'approved' AND store = 'traces' AND NOT is_written ORDER BY id
"""
_WRITTEN = "UPDATE memory_proposals SET is_written = TRUE WHERE id = ?"
_DECIDE = "UPDATE memory_proposals SET state = ?, decided_at = ?, decided_by = ? WHERE id = ? AND state = 'waiting'"


def insert_proposals(connection: Connection, proposals: Sequence[Proposal]) -> None:
    """Keep a turn's proposals, inside the transaction that commits the turn."""
    for proposal in proposals:
        content = _updates_json(proposal.updates) if proposal.fact is None else _fact_json(proposal.fact)
        sources = storable(json.dumps(proposal.sources, ensure_ascii=False))
        row = {**columns_of(proposal, without=("fact",)), "updates": content, "sources": sources}
        insert(connection, "memory_proposals", row, "ON CONFLICT (turn_id, store, part) DO NOTHING")


class SqlProposals:
    """Proposals, and the numbers that they have. The lock of a proposal's own row is enough for most."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def reserve(self, count: int) -> int:
        def work(connection: Connection) -> int:
            sql = "UPDATE memory_proposal_numbers SET last = last + ? RETURNING last"
            return int(connection.execute(sql, (count,)).fetchone()[0]) - count + 1

        # the commit that uses them is durable, and makes this so too; before that no one has seen a number
        return await self._engine.write(work, is_durable=False, alone=())

    async def proposals(self, *, state: ProposalState | None = "waiting", limit: int = 200) -> Sequence[Proposal]:
        rows = await self._engine.rows(_NEWEST.format(which=_WHICH[state]), (limit,))
        return [_proposal(row) for row in reversed(rows)]

    async def proposal(self, proposal_id: int) -> Proposal | None:
        return await self._engine.read(lambda connection: _one(connection, proposal_id))

    async def edit(self, proposal_id: int, updates: Sequence[MemoryUpdate]) -> bool:
        work = statement(_EDIT, (_updates_json(updates), proposal_id, False))
        return await self._engine.write(work, alone=()) == 1

    async def edit_fact(self, proposal_id: int, fact: FactChange) -> bool:
        return await self._engine.write(statement(_EDIT, (_fact_json(fact), proposal_id, True)), alone=()) == 1

    async def add(self, proposals: Sequence[Proposal]) -> None:
        await self._engine.write(lambda connection: insert_proposals(connection, proposals), alone=())

    async def of_turn(self, turn_id: str) -> Sequence[Proposal]:
        sql = "SELECT * FROM memory_proposals WHERE turn_id = ? ORDER BY id"
        return [_proposal(row) for row in await self._engine.rows(sql, (turn_id,))]

    async def facts_to_write(self) -> Sequence[Proposal]:
        return [_proposal(row) for row in await self._engine.rows(_TO_WRITE)]

    async def fact_is_written(self, proposal_id: int) -> None:
        await self._engine.write(statement(_WRITTEN, (proposal_id,)), is_durable=False, alone=())

    async def decide(self, proposal_id: int, state: Literal["approved", "refused"], *, by: str) -> bool:
        def work(connection: Connection) -> bool:
            if connection.execute(_DECIDE, (state, wall_ms(), by, proposal_id)).rowcount != 1:
                return False
            proposal = _one(connection, proposal_id)
            if state == "approved" and proposal is not None:
                if proposal.scope.user_id is not None:  # who was absorbed since is remembered as who they are now
                    living = living_id(connection, proposal.scope.user_id)
                    proposal = replace(proposal, scope=replace(proposal.scope, user_id=living))
                    connection.execute("UPDATE memory_proposals SET user_id = ? WHERE id = ?", (living, proposal_id))
                insert_pending(connection, proposal.approved_scope, proposal.updates, datetime.now(UTC))
            return True

        return await self._engine.write(work, alone=("links",))  # no link may be decided between question and answer


def _one(connection: Connection, proposal_id: int) -> Proposal | None:
    row = connection.execute("SELECT * FROM memory_proposals WHERE id = ?", (proposal_id,)).fetchone()
    return None if row is None else _proposal(row)


def _fact_json(fact: FactChange) -> str:
    return storable(json.dumps(fact.as_value(), ensure_ascii=False))


def _updates_json(updates: Sequence[MemoryUpdate]) -> str:
    return storable(json.dumps([[update.action, update.content] for update in updates], ensure_ascii=False))


def _proposal(row: Row) -> Proposal:
    content, store = json.loads(row["updates"]), row["store"]
    is_fact = store == "traces"
    updates = () if is_fact else (MemoryUpdate(action=action, store=store, content=text) for action, text in content)
    return value_of(
        Proposal,
        row,
        scope=value_of(MemoryScope, row),
        updates=tuple(updates),
        fact=FactChange.of_value(content) if is_fact else None,
        sources=tuple(json.loads(row["sources"])),
    )
