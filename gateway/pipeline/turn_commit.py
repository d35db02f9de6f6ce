"""All that a turn changes, as one value, so that it can be committed as one.

Messages of the session, replies, the memory journal and the state of the inbound row: either all of it is
durable or none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from gateway.domain.sessions import Session, SessionMessage
from gateway.memory.ingest import IngestJob
from gateway.memory.proposals import Proposal
from gateway.memory.sync import CommittedMemory
from gateway.messages import ConversationRef, OutboundMessage
from gateway.people.access_records import PeopleChange
from gateway.protocols import MemoryScope, MemoryUpdate

InboxEnd = Literal["done", "parked", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCommit:
    """What a turn changes.

    Attributes:
        inbox_seq: the row that the turn answers, which must be claimed by `owner`.
        end: what becomes of the row: `done`; `parked` (the person is told by one of the replies, and it is claimed
            again after `again_after_s`); `dead` (a dead letter, with `error`).
        waits_for: what a parked row waits for, in the words of `Parking`.
        session: to be stored as it is, and to be the active one of its key.
        supersedes: a turn whose messages give way to this one's.
        memory: updates for the journal, with their scope; applied to the memory after the commit.
        proposals: updates that wait for a person's yes.
        people: who is let in, or asks to be.
        ingest: what a memory is still to take from the turn by itself.
        delivered: the ids of replies that are delivered by being committed, because their channel shows the log.
        owner_chat: an owner's account, and the direct chat that it used with this turn.
    """

    inbox_seq: int
    owner: str
    turn_id: str
    end: InboxEnd = "done"
    again_after_s: float = 0.0
    waits_for: str | None = None
    error: str | None = None
    session: Session | None = None
    messages: tuple[SessionMessage, ...] = ()
    supersedes: str | None = None
    replies: tuple[OutboundMessage, ...] = ()
    memory: tuple[MemoryScope, tuple[MemoryUpdate, ...]] | None = None
    proposals: tuple[Proposal, ...] = ()
    people: PeopleChange | None = None
    ingest: IngestJob | None = None
    delivered: frozenset[str] = frozenset()
    owner_chat: tuple[str, ConversationRef] | None = None


class TurnStore(CommittedMemory, Protocol):
    """Where turns are committed, and where an unfinished one leaves its steps."""

    async def commit_turn(self, commit: TurnCommit) -> None:
        """Make all of it durable at once. The turn's saved steps go with it, except when it is parked.

        Raises:
            ClaimLost: the inbound row is not claimed by the owner any more; nothing was committed.
            StoreUnavailable: nothing was committed.
        """

    async def save_steps(self, turn_id: str, steps: str, *, is_durable: bool) -> None:
        """Keep the steps of an unfinished turn, in place of what was kept before."""

    async def load_steps(self, turn_id: str) -> str | None:
        """What `save_steps` kept last, None for a turn that starts."""

    async def begin_tool(self, turn_id: str, call_id: str, name: str) -> None:
        """Note, durably, that a tool is about to act."""

    async def end_tool(self, turn_id: str, call_id: str, result: str) -> None:
        """Note, durably, what it returned."""

    async def tool_outcome(self, turn_id: str, call_id: str) -> tuple[bool, str | None]:
        """Whether the tool was begun, and what it returned; None: it was interrupted."""
