"""What people do about the memory besides reading it: decide on proposals, ask where a line comes from, take back.

One place for the chat, the command line and whatever else shows it; each of them only says who asks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from gateway.domain.roles import Role
from gateway.errors import MemoryStoreError
from gateway.memory.fact_changes import FactChange
from gateway.memory.proposals import AT_THE_MACHINE, Proposal, ProposalStore, Reviewer, is_shared, proposal_number
from gateway.memory.sync import MemorySync
from gateway.protocols import MemoryDocument, MemoryProvider, MemoryScope, MemoryStoreName, MemoryUpdate

_STORES: tuple[MemoryStoreName, ...] = ("user", "memory")
_LOOKED_AT = 200


class NotReviewable(MemoryStoreError):
    """The reviewer may see no such proposal or change, or it cannot be done any more; the text says what can."""


class MemoryChange(Protocol):
    """One change of a document, as its history tells it; see `gateway.memory.history.HistoryEntry`."""

    @property
    def id(self) -> int: ...  # noqa: D102
    @property
    def at(self) -> datetime: ...  # noqa: D102
    @property
    def document(self) -> str: ...  # noqa: D102
    @property
    def author_id(self) -> str | None: ...  # noqa: D102
    @property
    def channel(self) -> str | None: ...  # noqa: D102
    @property
    def turn_id(self) -> str: ...  # noqa: D102
    @property
    def action(self) -> str: ...  # noqa: D102
    @property
    def outcome(self) -> str: ...  # noqa: D102
    @property
    def diff(self) -> str: ...  # noqa: D102
    @property
    def refers_to(self) -> int | None: ...  # noqa: D102


class MemoryWithHistory(MemoryProvider, Protocol):
    """A memory that knows what it was before."""

    async def difference(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> str:
        """What updates of one store would change in its text now, as a unified diff; empty for nothing."""

    async def log(
        self, scope: MemoryScope | None = None, store: MemoryStoreName = "memory", limit: int = 50
    ) -> Sequence[MemoryChange]:
        """The newest changes of a document, newest first."""

    async def why(self, scope: MemoryScope, line: str, store: MemoryStoreName | None = None) -> MemoryChange | None:
        """The newest change that brought a line in."""

    async def undo(self, scope: MemoryScope, entry_id: int) -> MemoryDocument:
        """Bring back the bytes from before a change.

        Raises:
            MemoryConflict: the text has changed since.
        """


class FactMemory(Protocol):
    """The trace memory, as far as proposals are about its facts."""

    @property
    def late(self) -> int:
        """Approved changes that could not be written yet."""

    async def difference(self, proposal: Proposal) -> str:
        """What it would change now, line by line; empty for nothing."""

    async def write(self, proposal: Proposal) -> bool:
        """Write what was approved, once however often it is called; False: not now, but later."""

    async def origins(self, scope: MemoryScope, role: Role, words: str) -> Sequence[FactOrigin]:
        """Where the facts come from that the role may read and that hold all of these words, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactOrigin:
    """Where a fact of the trace memory comes from.

    Attributes:
        at: when it was said or happened.
        source: for people: `said by Ada on web`, `imported`.
        turn_id: None for what no turn wrote.
        channel: on which it was said; None where that is not known.
        proposal: the number under which it waited for a yes; None where it did not.
    """

    id: str
    text: str
    at: datetime
    source: str
    turn_id: str | None
    channel: str | None
    proposal: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a line of the memory comes from.

    Attributes:
        turn_id: of the turn in which it was said, also where the change had to wait for a yes.
        proposal: None where it was applied at once.
    """

    change: MemoryChange
    turn_id: str
    proposal: Proposal | None


class MemoryReview:
    """Decides, explains and takes back, for those who may."""

    def __init__(
        self,
        store: ProposalStore,
        memory: MemoryWithHistory,
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

    # ---- proposals --------------------------------------------------------------------------------------------------

    async def waiting(self, reviewer: Reviewer) -> list[Proposal]:
        """What waits and the reviewer may see, oldest first."""
        return [one for one in await self._store.proposals() if reviewer.may_see(one)]

    async def difference(self, proposal: Proposal) -> str:
        """What it would change in the text of now, as a unified diff; empty where it would change nothing any more."""
        if proposal.fact is None:
            return await self._memory.difference(proposal.scope, proposal.updates)
        facts = self._facts
        return (
            f"+{proposal.fact.content or proposal.fact.action}" if facts is None else await facts.difference(proposal)
        )

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
        proposal = await self._store.proposal(proposal_id)
        if proposal is None or not reviewer.may_see(proposal):
            raise NotReviewable(f"there is no proposal {proposal_id}; `proposals` lists those that wait")
        if not reviewer.may_decide(proposal):
            raise NotReviewable(f"proposal {proposal_id} is about what others read, too, so the owner decides on it")
        return proposal

    # ---- history ----------------------------------------------------------------------------------------------------

    async def why(self, scope: MemoryScope, line: str, store: MemoryStoreName | None = None) -> Origin:
        """Where a line comes from.

        Args:
            scope: whose memory it stands in.
            line: a line, or a part of one.
            store: None looks into both, the user's first.

        Raises:
            NotReviewable: no change is known that brought it in.
        """
        change = await self._memory.why(scope, line, store)
        if change is None:
            raise NotReviewable(f"no change is known that brought in {json.dumps(line, ensure_ascii=False)}")
        proposal = await self.proposal_of(change)
        turn_id = change.turn_id if proposal is None else proposal.scope.turn_id
        return Origin(change=change, turn_id=turn_id, proposal=proposal)

    async def facts_about(self, scope: MemoryScope, role: Role, words: str) -> Sequence[FactOrigin]:
        """Where the facts come from that the role may read and that hold all of these words; none without traces."""
        facts = self._facts
        return () if facts is None else await facts.origins(scope, role, words)

    async def proposal_of(self, change: MemoryChange) -> Proposal | None:
        """The proposal that a change was, None where it was applied at once."""
        number = proposal_number(change.turn_id)
        return None if number is None else await self._store.proposal(number)

    async def log(self, scope: MemoryScope, limit: int = 10) -> list[tuple[MemoryStoreName, MemoryChange]]:
        """The newest changes of both documents, newest first."""
        found: list[tuple[MemoryStoreName, MemoryChange]] = []
        for store in _STORES:
            if store == "memory" or scope.user_id is not None:
                found += [(store, change) for change in await self._memory.log(scope, store, limit)]
        return sorted(found, key=lambda pair: (pair[1].at, pair[1].id), reverse=True)[:limit]

    async def undo(self, scope: MemoryScope, reviewer: Reviewer, entry_id: int | None = None) -> MemoryChange:
        """Take back a change, or the reviewer's newest one; in one turn (of the scope) once, however often tried.

        Raises:
            NotReviewable: there is none that they may take back.
            MemoryConflict: the text has changed since; carries both texts.
        """
        changes = await self.log(scope, _LOOKED_AT)
        mine = next((one for _, one in changes if one.turn_id.startswith(f"{scope.turn_id}:")), None)
        if mine is not None:  # an earlier try of the same turn did it
            return next((one for _, one in changes if one.id == mine.refers_to), mine)
        undone = {one.refers_to for _, one in changes if one.action == "undo"}
        for store, change in changes:
            is_wanted = change.id == entry_id if entry_id is not None else self._is_open(change, undone)
            if is_wanted and self._may_undo(scope, store, change, reviewer):
                await self._memory.undo(scope, change.id)
                return change
        which = "no change" if entry_id is None else f"no change {entry_id}"
        raise NotReviewable(f"there is {which} that you may take back; `log` lists the changes")

    @staticmethod
    def _is_open(change: MemoryChange, undone: set[int | None]) -> bool:
        return change.outcome == "applied" and change.action not in {"undo", "edit"} and change.id not in undone

    @staticmethod
    def _may_undo(scope: MemoryScope, store: MemoryStoreName, change: MemoryChange, reviewer: Reviewer) -> bool:
        """One's own documents, and of shared ones what one has brought in; the owner all. A guest nothing shared."""
        if reviewer.user_id is None or not is_shared(scope, store) or reviewer.role == "owner":
            return True
        return reviewer.role != "guest" and reviewer.is_called(change.author_id)
