"""Proposals of the in-memory twin; held to the same tests as those in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from gateway.memory.fact_changes import FactChange
from gateway.memory.proposals import Proposal, ProposalState
from gateway.protocols import MemoryUpdate
from gateway.store.in_memory_tables import Tables


class InMemoryProposals:
    """The `ProposalStore` of `gateway.memory.proposals`, in a dict."""

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
        if proposal is None or proposal.state != "waiting" or proposal.fact is not None:
            return False
        self._tables.proposals[proposal_id] = replace(proposal, updates=tuple(updates), is_edited=True)
        return True

    async def edit_fact(self, proposal_id: int, fact: FactChange) -> bool:
        """Put another change in place; False where it is not waiting any more, or not about a fact."""
        proposal = self._tables.proposals.get(proposal_id)
        if proposal is None or proposal.state != "waiting" or proposal.fact is None:
            return False
        self._tables.proposals[proposal_id] = replace(proposal, fact=fact, is_edited=True)
        return True

    async def add(self, proposals: Sequence[Proposal]) -> None:
        """Keep proposals that were found after their turn; those that are there already stay as they are."""
        for proposal in proposals:
            self._tables.propose(proposal)

    async def of_turn(self, turn_id: str) -> Sequence[Proposal]:
        """All that the turn has proposed, whatever became of it."""
        found = (one for one in self._tables.proposals.values() if one.scope.turn_id == turn_id)
        return sorted(found, key=lambda one: one.id)

    async def facts_to_write(self) -> Sequence[Proposal]:
        """Approved changes of facts that the trace memory may not have yet, oldest first."""
        written = self._tables.written_facts
        found = (one for one in self._tables.proposals.values() if one.fact is not None and one.id not in written)
        return sorted((one for one in found if one.state == "approved"), key=lambda one: one.id)

    async def fact_is_written(self, proposal_id: int) -> None:
        """The trace memory has it."""
        self._tables.written_facts.add(proposal_id)

    async def decide(self, proposal_id: int, state: Literal["approved", "refused"], *, by: str) -> bool:
        """End the wait; the updates of one that is approved are unsettled memory from then on."""
        proposal = self._tables.proposals.get(proposal_id)
        if proposal is None or proposal.state != "waiting":
            return False
        decided = replace(proposal, state=state, decided_at=datetime.now(UTC), decided_by=by)
        self._tables.proposals[proposal_id] = decided
        if state == "approved" and decided.updates:
            scope = decided.approved_scope
            self._tables.memory.setdefault(scope.turn_id, (scope, decided.updates))
        return True
