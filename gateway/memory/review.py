"""What people do about proposals: read, word differently, approve, refuse.

`gateway.services.memory` asks it for every surface, and says who asks.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Literal, Protocol

from gateway.errors import FileError, MemoryStoreError, MemoryUnavailable
from gateway.memory.fact_changes import FactChange
from gateway.memory.proposals import AT_THE_MACHINE, Proposal, ProposalStore, Reviewer
from gateway.memory.sync import MemorySync
from gateway.protocols import HistoricMemory, MemoryProvider


class NotReviewable(MemoryStoreError):
    """It may not be decided by the reviewer, or not any more; the text says what can."""


class NoSuchProposal(NotReviewable):
    """There is none, or none that the reviewer may see."""


class FactMemory(Protocol):
    """The trace memory, as far as proposals are about its facts."""

    @property
    def late(self) -> int:
        """Approved changes that could not be written yet."""

    async def difference(self, proposal: Proposal) -> str:
        """What it would change now, line by line; empty for nothing."""

    async def write(self, proposal: Proposal) -> bool:
        """Write what was approved, once however often it is called; False: not now, but later."""


class MemoryReview:
    """Decides on proposals, for those who may."""

    def __init__(
        self,
        store: ProposalStore,
        memory: MemoryProvider,
        sync: MemorySync,
        facts: FactMemory | None = None,
    ) -> None:
        """`facts` is the trace memory, None where it is off."""
        self._store = store
        self._memory = memory
        self._sync = sync
        self._facts = facts

    @property
    def late(self) -> int:
        """Turns and facts whose approved changes could not be written yet."""
        return self._sync.late + (0 if self._facts is None else self._facts.late)

    async def waiting(self, reviewer: Reviewer) -> list[Proposal]:
        """What waits and the reviewer may see, oldest first."""
        return [one for one in await self._store.proposals() if reviewer.may_see(one)]

    async def difference(self, proposal: Proposal) -> str | None:
        """What it would change in the text of now, as a unified diff; empty where it would change nothing any more.

        None where the memory cannot say that, or not now.
        """
        if proposal.fact is None:
            if isinstance(self._memory, HistoricMemory):
                with contextlib.suppress(FileError, MemoryUnavailable):
                    return await self._memory.difference(proposal.scope, proposal.updates)
            return None
        facts = self._facts
        return (
            f"+{proposal.fact.content or proposal.fact.action}" if facts is None else await facts.difference(proposal)
        )

    async def proposal(self, proposal_id: int, reviewer: Reviewer) -> Proposal:
        """One.

        Raises:
            NoSuchProposal: there is none, or the reviewer may not see it.
        """
        proposal = await self._store.proposal(proposal_id)
        if proposal is None or not reviewer.may_see(proposal):
            raise NoSuchProposal(f"there is no proposal {proposal_id}; `proposals` lists those that wait")
        return proposal

    async def approve(self, proposal_id: int, reviewer: Reviewer) -> Proposal:
        """Apply it, exactly once.

        Raises:
            NotReviewable: the reviewer may not decide it, or it was refused.
        """
        return await self._decide(proposal_id, "approved", reviewer)

    async def refuse(self, proposal_id: int, reviewer: Reviewer) -> Proposal:
        """Let it go; it is kept, and never applied.

        Raises:
            NotReviewable: the reviewer may not decide it, or it was approved.
        """
        return await self._decide(proposal_id, "refused", reviewer)

    async def edit(self, proposal_id: int, content: str, reviewer: Reviewer) -> Proposal:
        """Put another text in place of the one that would be added; nothing is applied yet.

        Raises:
            NotReviewable: the reviewer may not decide it, is decided, or adds not exactly one text.
        """
        proposal = await self._decidable(proposal_id, reviewer)
        if proposal.fact is not None:
            return await self._edit_fact(proposal, proposal.fact, content.strip())
        texts = [index for index, update in enumerate(proposal.updates) if update.action != "remove"]
        if len(texts) != 1 or not content.strip():
            wanted = "a text that is not blank" if len(texts) == 1 else f"one text, and it has {len(texts)}"
            raise NotReviewable(f"proposal {proposal_id} can be edited by giving {wanted}; or refuse it")
        updates = list(proposal.updates)
        updates[texts[0]] = replace(updates[texts[0]], content=content.strip())
        if proposal.state != "waiting" or not await self._store.edit(proposal_id, updates):
            raise NotReviewable(f"proposal {proposal_id} is {proposal.state} already; it cannot be edited any more")
        return replace(proposal, updates=tuple(updates), is_edited=True)

    async def _edit_fact(self, proposal: Proposal, fact: FactChange, content: str) -> Proposal:
        has_text = fact.content is not None or fact.action == "merge"
        if not has_text or not content:
            wanted = "a text that is not blank" if has_text else "one text, and it has 0"
            raise NotReviewable(f"proposal {proposal.id} can be edited by giving {wanted}; or refuse it")
        edited = replace(fact, content=content)
        if proposal.state != "waiting" or not await self._store.edit_fact(proposal.id, edited):
            raise NotReviewable(f"proposal {proposal.id} is {proposal.state} already; it cannot be edited any more")
        return replace(proposal, fact=edited, is_edited=True)

    async def _decide(self, proposal_id: int, state: Literal["approved", "refused"], reviewer: Reviewer) -> Proposal:
        proposal = await self._decidable(proposal_id, reviewer)
        facts = self._facts
        if proposal.fact is not None and facts is None and state == "approved":
            raise NotReviewable(
                f"proposal {proposal_id} is a fact, and the trace memory is off; switch it on "
                "(`memory.traces.enabled`), or refuse it"
            )
        await self._store.decide(proposal_id, state, by=reviewer.user_id or AT_THE_MACHINE)
        decided = await self._decidable(proposal_id, reviewer)
        if decided.state != state:
            raise NotReviewable(f"proposal {proposal_id} is {decided.state} already")
        if state == "approved" and decided.fact is None:  # again is harmless: the memory applies a turn once
            await self._sync.apply(decided.approved_scope, decided.updates)
        elif state == "approved" and facts is not None:
            await facts.write(decided)
        return decided

    async def _decidable(self, proposal_id: int, reviewer: Reviewer) -> Proposal:
        proposal = await self.proposal(proposal_id, reviewer)
        if not reviewer.may_decide(proposal):
            raise NotReviewable(f"proposal {proposal_id} is about what others read, too, so the owner decides on it")
        return proposal
