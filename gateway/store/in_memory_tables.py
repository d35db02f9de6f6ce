"""The rows of the in-memory twin, and what its stores ask of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gateway.domain.sessions import Session, SessionMessage
from gateway.memory.ingest import IngestJob
from gateway.memory.proposals import Proposal
from gateway.messages import ConversationRef, InboundMessage, OutboundMessage, Receipt
from gateway.people.access_records import Rank, Request
from gateway.people.linking.links import Link
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.clock import LONGEST_WAIT_MS


@dataclass(slots=True, kw_only=True)
class Said:
    """A row of the inbox."""

    seq: int
    turn_id: str
    message: InboundMessage
    due_at: int
    state: str = "ready"
    attempts: int = 0
    owner: str | None = None
    lease_until: int = 0
    is_told: bool = False
    error: str | None = None
    is_refused: bool = False
    waits_for: str | None = None
    deaths: int = 0
    lone_deaths: int = 0
    waiting_since: int = 0
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def is_open(self) -> bool:
        """Whether it is unfinished."""
        return self.state not in {"done", "dead"}

    def give_back(self) -> None:
        """End the claim."""
        self.state = "parked" if self.is_told else "ready"
        self.owner = None


@dataclass(slots=True, kw_only=True)
class Answer:
    """A row of the outbox."""

    seq: int
    turn_id: str
    message: OutboundMessage
    due_at: int
    state: str = "ready"
    attempts: int = 0
    is_uncertain: bool = False
    waiting_since: int = 0
    failing_since: int | None = None
    is_put_off: bool = False
    error: str | None = None
    receipt: Receipt | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def is_open(self) -> bool:
        """Whether it is unfinished."""
        return self.state in {"ready", "sending"}


@dataclass(slots=True)
class Waiting:
    """A job of the ingest."""

    job: IngestJob
    due_at: int
    is_given_up: bool = False


@dataclass(slots=True)
class Tables:
    """Everything that is stored."""

    now_ms: Callable[[], int]
    seq: int = 0
    said: dict[int, Said] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    active: dict[str, str] = field(default_factory=dict)
    messages: list[SessionMessage] = field(default_factory=list)
    steps: dict[str, str] = field(default_factory=dict)
    tools: dict[tuple[str, str], str | None] = field(default_factory=dict)
    memory: dict[str, tuple[MemoryScope, tuple[MemoryUpdate, ...]]] = field(default_factory=dict)
    proposals: dict[int, Proposal] = field(default_factory=dict)
    last_proposal: int = 0
    written_facts: set[int] = field(default_factory=set)
    ingest: dict[str, Waiting] = field(default_factory=dict)
    turns_since: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, Rank] = field(default_factory=dict)
    admitted: set[tuple[str, str]] = field(default_factory=set)
    chats: dict[str, ConversationRef] = field(default_factory=dict)
    requests: dict[tuple[str, str], Request] = field(default_factory=dict)
    held: dict[int, tuple[str, str]] = field(default_factory=dict)
    owner_code: tuple[str, datetime] | None = None

    links: dict[str, Link] = field(default_factory=dict)

    def person_ids(self, user_id: str) -> list[str]:
        """The user id, and the ids of all that it has absorbed."""
        ids = [user_id]
        for one in ids:  # which grows
            ids += [link.absorbed for link in self.links.values() if link.survivor == one and link.undone_at is None]
        return ids

    def propose(self, proposal: Proposal) -> None:
        """Keep a proposal; one of the same turn, store and part is there already."""
        known = {(one.scope.turn_id, one.store, one.part) for one in self.proposals.values()}
        if (proposal.scope.turn_id, proposal.store, proposal.part) not in known:
            self.proposals[proposal.id] = proposal

    def survivors(self) -> dict[str, str]:
        """Who was absorbed by whom."""
        return {link.absorbed: link.survivor for link in self.links.values() if link.undone_at is None}

    def next_seq(self) -> int:
        """The next cursor, of both queues."""
        self.seq += 1
        return self.seq

    def open_said(self, conversation: ConversationRef) -> list[Said]:
        """Unfinished messages, oldest first."""
        return [row for row in self.said.values() if row.is_open and row.message.conversation == conversation]

    def open_answers(self, conversation: ConversationRef) -> list[Answer]:
        """Unsent replies, oldest first."""
        return [row for row in self.answers.values() if row.is_open and row.message.conversation == conversation]

    def answer(self, reply: OutboundMessage, turn_id: str, *, is_delivered: bool = False) -> None:
        """Queue a reply; one whose id is there already stays as it is."""
        if all(answer.message.id != reply.id for answer in self.answers.values()):
            seq, now_ms = self.next_seq(), self.now_ms()
            row = Answer(seq=seq, turn_id=turn_id, message=reply, due_at=now_ms, waiting_since=now_ms)
            if is_delivered:
                row.state, row.attempts, row.receipt = "sent", 1, Receipt(message_ids=(reply.id,))
            self.answers[seq] = row

    def keep_chat(self, account: str, conversation: ConversationRef) -> None:
        """Note which direct chat an owner used last."""
        self.chats.pop(account, None)
        self.chats[account] = conversation

    def due_ms(self, after_s: float) -> int:
        """The moment some seconds from now."""
        return self.now_ms() + round(after_s * 1000)

    def wait(self, row: Said | Answer, after_s: float) -> None:
        """Let the row be due in some seconds."""
        row.due_at, row.waiting_since = self.due_ms(after_s), self.now_ms()

    def correct_waits(self, rows: Iterable[Said | Answer]) -> None:
        """As `clock.correct_waits`."""
        for row in rows:
            ahead_ms = max(0, row.waiting_since - self.now_ms())
            row.due_at = min(row.due_at - ahead_ms, self.now_ms() + LONGEST_WAIT_MS)
            row.waiting_since -= ahead_ms

    def heads(self, rows: Iterable[tuple[ConversationRef, int]]) -> list[tuple[ConversationRef, float]]:
        """The first row of each conversation, with the seconds until its time."""
        first: dict[ConversationRef, int] = {}
        for conversation, due_at in rows:
            first.setdefault(conversation, due_at)
        return [(conversation, max(0, due_at - self.now_ms()) / 1000) for conversation, due_at in first.items()]
