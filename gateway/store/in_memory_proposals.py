"""Proposals of the in-memory twin; held to the same tests as those in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from gateway.memory_proposals import Proposal, ProposalState
from gateway.protocols import MemoryUpdate
from gateway.store.in_memory_tables import Tables


class InMemoryProposals:
    """The `ProposalStore` of `gateway.memory_proposals`, in a dict."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def reserve(self, count: int) -> int:
        """The first of so many numbers that nobody else will get."""
        self._tables.last_proposal += count
        return self._tables.last_proposal - count + 1

    async def proposals(self, *, state: ProposalState | None = "waiting", limit: int = 200) -> Sequence[Proposal]:
        """The newest, oldest first; None for every state."""
        chosen = [one for one in self._tables.proposals.values() if state in {None, one.state}]
        return sorted(chosen, key=lambda one: one.id)[max(0, len(chosen) - limit) :]

    async def proposal(self, proposal_id: int) -> Proposal | None:
        """One."""
        return self._tables.proposals.get(proposal_id)

    async def edit(self, proposal_id: int, updates: Sequence[MemoryUpdate]) -> bool:
        """Put other updates in place; False where it is not waiting any more."""
        proposal = self._tables.proposals.get(proposal_id)
        if proposal is None or proposal.state != "waiting":
            return False
        self._tables.proposals[proposal_id] = replace(proposal, updates=tuple(updates), is_edited=True)
        return True

    async def decide(self, proposal_id: int, state: Literal["approved", "refused"], *, by: str) -> bool:
        """End the wait; the updates of one that is approved are unsettled memory from then on."""
        proposal = self._tables.proposals.get(proposal_id)
        if proposal is None or proposal.state != "waiting":
            return False
        decided = replace(proposal, state=state, decided_at=datetime.now(UTC), decided_by=by)
        self._tables.proposals[proposal_id] = decided
        if state == "approved":
            scope = decided.approved_scope
            self._tables.memory.setdefault(scope.turn_id, (scope, decided.updates))
        return True
