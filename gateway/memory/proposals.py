"""Changes of the memory that wait for a person's yes: what becomes one, who decides, and where they are kept.

A change waits when its turn had read words that are not the person's (see `domain/provenance.py`), or when the
personality has every change reviewed. Prompts are no protection here: a model that obeys whatever it reads gets no
further than to a proposal. Another kind of change is another field beside `fact`, and a protocol beside `FactMemory` in
`review.py`; what is no memory has no place here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, Protocol

from gateway.domain.personalities.files import MemoryWrites
from gateway.domain.roles import Role, may
from gateway.memory.fact_changes import FactChange
from gateway.messages import Action
from gateway.protocols import MemoryScope, MemoryStoreName, MemoryUpdate

ProposedStore = Literal["user", "memory", "traces"]
"""A document, or the trace memory."""
ProposalState = Literal["waiting", "approved", "refused"]

AT_THE_MACHINE = "command-line"
"""Who decided, where it was done on the command line."""
_TURN = "proposal:"
MAX_CHOICES = 2
"""Proposals that one message has buttons for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one turn wants to change in one document, or about one fact.

    Attributes:
        id: a small number, for people; given once.
        scope: of the turn; its author wrote the message that the turn answered.
        updates: all of `store`, in order; none where it is about a fact.
        fact: what is to become of it, where `store` is `traces`.
        part: tells apart what one turn wants to change in one store.
        sources: what the turn had read that is not its author's, in words; empty where everything is reviewed.
        is_edited: somebody changed the updates before they decided.
        decided_by: a user id, or `AT_THE_MACHINE`.
    """

    id: int
    scope: MemoryScope
    store: ProposedStore
    updates: tuple[MemoryUpdate, ...] = ()
    fact: FactChange | None = None
    part: str = ""
    sources: tuple[str, ...] = ()
    state: ProposalState = "waiting"
    is_edited: bool = False
    proposed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    decided_at: datetime | None = None
    decided_by: str | None = None

    @property
    def is_shared(self) -> bool:
        """Whether others read what it would change."""
        if self.fact is not None:
            in_group = self.fact.scope == "thread" and self.scope.user_id is None
            return in_group or self.fact.scope == "organization"
        return self.store == "memory" and is_shared(self.scope, self.store)

    @property
    def text(self) -> str:
        """All that it would write, for the person who decides."""
        texts = [update.content for update in self.updates]
        return "\n".join(texts if self.fact is None else [self.fact.content or ""])

    @property
    def approved_scope(self) -> MemoryScope:
        """Under which it is applied: a turn of its own, so that it is applied once however often that is tried.

        The turn that proposed it is in the name: after a restore of the gateway a number may come again, and a memory
        that lies elsewhere still knows what was applied under it.
        """
        return replace(self.scope, turn_id=f"{_TURN}{self.id}:{self.scope.turn_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """Who looks at proposals; `user_id` None is the operator at the machine, who may do everything.

    Attributes:
        other_ids: further ids of the same person, whose accounts are linked.
    """

    user_id: str | None
    role: Role = "member"
    other_ids: tuple[str, ...] = ()

    def is_called(self, user_id: str | None) -> bool:
        """Whether the id is one of the person's."""
        return user_id is not None and user_id in {self.user_id, *self.other_ids}

    def may_see(self, proposal: Proposal) -> bool:
        """Their own, and what they may decide."""
        return self.may_decide(proposal) or any(map(self.is_called, (proposal.scope.user_id, proposal.scope.author_id)))

    def may_decide(self, proposal: Proposal) -> bool:
        """What only one person reads, only that person decides, not the owner; what is shared is the owner's."""
        if self.user_id is None:
            return True
        if proposal.is_shared:
            return self.role == "owner"
        return self.is_called(proposal.scope.user_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledMemory:
    """What becomes of a turn's memory updates.

    Attributes:
        applied: what is written with the turn.
        proposals: what waits for a yes.
        sources: what the turn had read that is not the person's own.
        notice: what the person is told of it, to stand below the answer; empty where nothing waits.
        choices: the same as buttons.
    """

    applied: tuple[MemoryUpdate, ...]
    proposals: tuple[Proposal, ...]
    sources: tuple[str, ...]
    notice: str
    choices: tuple[Action, ...]


class ProposalStore(Protocol):
    """Where proposals are kept. They come in with the commit of their turn, see `TurnCommit.proposals`."""

    async def reserve(self, count: int) -> int:
        """The first of so many numbers that no other turn will get."""

    async def proposals(self, *, state: ProposalState | None = "waiting", limit: int = 200) -> Sequence[Proposal]:
        """The newest, oldest first; None for every state."""

    async def proposal(self, proposal_id: int) -> Proposal | None:
        """By its number; None where there is none."""

    async def edit(self, proposal_id: int, updates: Sequence[MemoryUpdate]) -> bool:
        """Put other updates in place; False where it is not waiting any more."""

    async def edit_fact(self, proposal_id: int, fact: FactChange) -> bool:
        """Put another change in place; False where it is not waiting any more, or not about a fact."""

    async def add(self, proposals: Sequence[Proposal]) -> None:
        """Keep proposals that were found after their turn; those that are there already stay as they are."""

    async def of_turn(self, turn_id: str) -> Sequence[Proposal]:
        """All that the turn has proposed, whatever became of it."""

    async def facts_to_write(self) -> Sequence[Proposal]:
        """Approved changes of facts that the trace memory may not have yet, oldest first."""

    async def fact_is_written(self, proposal_id: int) -> None:
        """The trace memory has it. Not durable at once: written again, it changes nothing."""

    async def decide(self, proposal_id: int, state: Literal["approved", "refused"], *, by: str) -> bool:
        """End the wait, durably; False where somebody has done so already.

        The updates of one that is approved are in the memory journal with the same commit, under `approved_scope`.
        """


def proposal_number(turn_id: str) -> int | None:
    """The number of the proposal that was applied under this turn id; None for a turn of another kind."""
    number = turn_id.removeprefix(_TURN).partition(":")[0]
    return int(number) if turn_id.startswith(_TURN) and number.isdecimal() else None


def has_document(scope: MemoryScope, store: MemoryStoreName) -> bool:
    """Whether there is such a document at all: what is one person's is not there where others read along."""
    return scope.user_id is not None or (store == "memory" and scope.place != "per-user")


def is_shared(scope: MemoryScope, store: MemoryStoreName) -> bool:
    """Whether others read the document, too."""
    return store == "memory" and scope.place != "per-user"


async def settle_updates(
    updates: Sequence[MemoryUpdate],
    facts: Iterable[FactChange],
    scope: MemoryScope,
    store: ProposalStore,
    *,
    writes: MemoryWrites,
    role: Role,
    sources: tuple[str, ...],
) -> SettledMemory:
    """What of a turn's updates is written, and what waits; what may not be is left out.

    Proposals get their numbers: one for each document, one for each fact.
    """
    allowed = tuple(update for update in updates if may_write(scope, update.store, writes=writes, role=role))
    waiting = allowed if sources or writes == "review" else ()
    wanted = [
        *(
            Proposal(id=0, scope=scope, store=of, updates=tuple(update for update in waiting if update.store == of))
            for of in dict.fromkeys(update.store for update in waiting)
        ),
        *(
            Proposal(id=0, scope=scope, store="traces", fact=fact, part=f"tool {part}")
            for part, fact in enumerate(facts, start=1)
        ),
    ]
    first = await store.reserve(len(wanted)) if wanted else 0
    proposals = tuple(replace(one, id=number, sources=sources) for number, one in enumerate(wanted, start=first))
    reviewer = Reviewer(user_id=scope.author_id, role=role)
    is_direct = scope.user_id is not None
    return SettledMemory(
        applied=() if waiting else allowed,
        proposals=proposals,
        sources=sources,
        notice=notice(proposals, reviewer, is_direct=is_direct),
        choices=choices(proposals, reviewer) if is_direct else (),
    )


def may_write(scope: MemoryScope, store: MemoryStoreName, *, writes: MemoryWrites, role: Role) -> bool:
    """Whether a turn may change the document at all, at once or as a proposal: a guest never what others read."""
    return (
        writes != "off"
        and has_document(scope, store)
        and (may(role, "write shared memory") or not is_shared(scope, store))
    )


def notice(proposals: Sequence[Proposal], reviewer: Reviewer, *, is_direct: bool) -> str:
    """What the person is told below the answer; nothing of what it would change, since a group may read it."""
    if not proposals:
        return ""
    numbers = " and ".join(str(proposal.id) for proposal in proposals)
    sources = dict.fromkeys(source for proposal in proposals for source in proposal.sources)
    why = f", because not all that I read was yours ({', '.join(sources)})" if sources else ""
    is_theirs = is_direct and all(reviewer.may_decide(proposal) for proposal in proposals)
    whose = "your" if is_theirs else "the owner's"
    how = " `/memory proposals` shows it." if is_direct else ""
    return f"\n\n_A change of my memory waits for {whose} yes{why}: proposal {numbers}._{how}"


def choices(proposals: Sequence[Proposal], reviewer: Reviewer) -> tuple[Action, ...]:
    """What they may decide, as buttons; with the numbers where there are several."""
    return buttons([proposal.id for proposal in proposals if reviewer.may_decide(proposal)])


def buttons(numbers: Sequence[int]) -> tuple[Action, ...]:
    """For a yes and a no to the first of these proposals; with their numbers where there are several."""
    return tuple(
        Action(id=f"memory {verb} {number}", label=f"{label} {number}" if len(numbers) > 1 else label)
        for number in numbers[:MAX_CHOICES]
        for verb, label in (("approve", "Remember it"), ("refuse", "Do not"))
    )
