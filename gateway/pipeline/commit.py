"""All that a turn changes, as one value, and the one place that commits it.

Messages of the session, replies, the memory journal and the state of the inbound row: either all of it is
durable or none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import structlog

from gateway.agent.budgets import Bill
from gateway.agent.loop import StepStore
from gateway.approvals.approval import Approval
from gateway.domain.channels import Channels
from gateway.domain.command_text import in_form
from gateway.domain.sessions import Session, SessionMessage
from gateway.memory.ingest import IngestJob
from gateway.memory.proposals import Proposal
from gateway.memory.sync import CommittedMemory
from gateway.messages import Action, ConversationRef, InboundMessage, OutboundMessage
from gateway.people.access_records import AccessRecords, PeopleChange
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.queues import InboxRow
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import span
from gateway.schedules.firing import OccurrenceEnd
from gateway.tools.forms import OpenQuestion
from gateway.tools.journal import CallRow

_log = structlog.get_logger(__name__)

InboxEnd = Literal["done", "parked", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCommit:
    """What a turn changes.

    Attributes:
        lane: of the message that the turn answers, which must be held by `claim`; `inbox_seq` is its number there.
        end: what becomes of the row: `done`; `parked` (the person is told by one of the replies, and it is claimed
            again after `again_after_s`); `dead` (a dead letter, with `error`).
        waits_for: what a parked row waits for, in the words of `Parking`.
        session: to be stored as it is, and to be the active one of its key.
        supersedes: a turn whose messages give way to this one's.
        memory: updates for the journal, with their scope; applied to the memory after the commit.
        proposals: changes of documents and facts that wait for a person's yes.
        people: who is let in, or asks to be.
        ingest: what the trace memory is still to take from the turn.
        delivered: the ids of replies that are delivered by being committed, because their channel shows the log.
        owner_chat: an owner's account, and the direct chat that it used with this turn.
        is_stopped: the person had said stop, and so the turn ended with what it had.
        answered: the account, and the user that was answered, which it must still be where the database is shared.
        calls: of tools, which are not noted yet.
        approvals: calls of tools that wait for a person's yes.
        approval_id: of the yes by which the turn was to make a call; one that was not begun is withdrawn.
        occurrence: what came of what a schedule had due, where the turn was that.
        asks: what the person is to answer; in the place of what was open in this conversation.
        ends_question: what was open in this conversation is answered, or not open any more.
        secret: the message of the turn, where it is an answer for a server alone; its row keeps no words of it.
        bill: of the answer's call, which is settled with the turn; harmless where it is settled already.
    """

    lane: int
    inbox_seq: int
    claim: str
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
    is_stopped: bool = False
    answered: tuple[str, str] | None = None
    calls: tuple[CallRow, ...] = ()
    approvals: tuple[Approval, ...] = ()
    approval_id: int | None = None
    occurrence: OccurrenceEnd | None = None
    asks: OpenQuestion | None = None
    ends_question: bool = False
    secret: InboundMessage | None = None
    bill: Bill | None = None


class TurnStore(CommittedMemory, StepStore, Protocol):
    """Where turns are committed, and where an unfinished one leaves its steps."""

    async def commit_turn(self, commit: TurnCommit) -> bool:
        """Make all of it durable at once. The turn's saved steps go with it, except when it is parked.

        Returns:
            whether the conversation has another message to answer now.

        Raises:
            ClaimLost: the lane is not held by that claim any more; nothing was committed.
            PersonChanged: the account is another user's by now, or its person is being erased; nothing was committed.
            StoreUnavailable: nothing was committed.
        """

    async def load_steps(self, turn_id: str) -> str | None:
        """What `save_steps` kept last, None for a turn that starts."""


class Committer:
    """Ends turns: with one commit, and what the others are told of it."""

    def __init__(
        self,
        store: TurnStore,
        channels: Channels,
        outbox: Outbox,
        people: AccessRecords,
        *,
        has_more: Callable[[], None],
        has_failed: Callable[[], None],
    ) -> None:
        """Keeps what is given.

        Args:
            has_more: called when a conversation has another message.
            has_failed: called when what a schedule had due has failed, which may have paused it.
        """
        self._store = store
        self._channels = channels
        self._outbox = outbox
        self._people = people
        self._has_more = has_more
        self._has_failed = has_failed

    def end(
        self,
        row: InboxRow,
        *,
        replies: Sequence[str] = (),
        kind: str = "reply",
        codes: Sequence[str] = (),
        end: InboxEnd = "done",
        error: str | None = None,
    ) -> TurnCommit:
        """The end of the row, and replies of our own words; for what a turn changes besides, replace its fields."""
        return TurnCommit(
            lane=row.lane,
            inbox_seq=row.seq,
            claim=row.claim,
            turn_id=row.turn_id,
            end=end,
            error=error,
            replies=tuple(reply_to(row, self.in_form(text, row.message), kind, codes=codes) for text in replies),
            approval_id=row.approval_id,
            occurrence=_occurrence_end(row, end, error),
            ends_question=end == "dead",
        )

    def in_form(self, text: str, message: InboundMessage) -> str:
        """Our own words for the writer of a message, with commands as they are typed there."""
        capabilities = self._channels.capabilities(message.conversation.channel)
        return in_form(text, capabilities, is_direct=message.is_direct)

    def notices(self, notices: Sequence[OutboundMessage]) -> tuple[OutboundMessage, ...]:
        """Our own words in the direct chats of others, with commands as they are typed there."""
        capabilities = self._channels.capabilities
        return tuple(replace(one, text=in_form(one.text, capabilities(one.conversation.channel))) for one in notices)

    async def commit(self, commit: TurnCommit) -> None:
        """Make it durable, and let its replies be sent.

        Raises:
            ClaimLost, PersonChanged, StoreUnavailable: as `TurnStore.commit_turn` has them.
        """
        commit = replace(commit, delivered=self._outbox.delivered_by_commit(commit.replies))
        reach("turn.committing")
        with span("turn.commit", end=commit.end):
            has_more = await self._store.commit_turn(commit)
        if has_more:
            self._has_more()
        reach("turn.committed")
        if commit.occurrence is not None and commit.occurrence.outcome == "failed":
            self._has_failed()
        if commit.people is not None:
            self._people.changed()
        if commit.owner_chat is not None:
            self._people.chat_kept(*commit.owner_chat)
        _log.debug("turn_committed", end=commit.end, replies=len(commit.replies))
        for reply in commit.replies:
            if reply.id in commit.delivered:
                await self._outbox.announce(commit.turn_id, reply)
            else:
                self._outbox.wake(reply.conversation)


def _occurrence_end(row: InboxRow, end: InboxEnd, error: str | None) -> OccurrenceEnd | None:
    """What came of what a schedule had due, where its turn does not say more of it."""
    if row.schedule_id is None or end == "parked":
        return None
    return OccurrenceEnd(outcome="failed" if end == "dead" else "done", note=error or "")


def reply_to(
    row: InboxRow, text: str, kind: str, actions: Sequence[Action] = (), codes: Sequence[str] = ()
) -> OutboundMessage:
    """An answer to the message; its id is the same however often the turn is tried."""
    return OutboundMessage(
        id=f"{row.turn_id}.{kind}",
        conversation=row.message.conversation,
        text=text,
        reply_to=None if row.schedule_id is not None else row.message.id,
        actions=tuple(actions),
        codes=tuple(codes),
    )
