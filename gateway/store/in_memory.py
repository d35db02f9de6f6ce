"""The stores without a disk: the twin that tests run on, held to the same conformance suite as the real ones.

Nothing here waits, so every method is one step and a commit is atomic by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from gateway.domain.sessions import Session, SessionHit, SessionMessage
from gateway.errors import ClaimLost
from gateway.memory.tokenizer import Matcher, parse
from gateway.messages import ConversationRef, InboundMessage, OutboundMessage, Receipt
from gateway.pipeline.inbox import SUSPECT_DEATHS, InboxRow, NotDue, Parked, Refused, Room, Suspect
from gateway.pipeline.outbox import OutboxRow
from gateway.pipeline.turn_commit import TurnCommit
from gateway.protocols import LogEntry, MemoryScope, MemoryUpdate
from gateway.store.clock import steady_ms
from gateway.store.in_memory_ingest import InMemoryIngestJobs
from gateway.store.in_memory_links import InMemoryLinks
from gateway.store.in_memory_people import InMemoryPeople, apply_change
from gateway.store.in_memory_proposals import InMemoryProposals
from gateway.store.in_memory_tables import Answer, Said, Tables, Waiting
from gateway.store.in_memory_usage import InMemoryUsage
from gateway.store.search import bm25


class _Inbox:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def add(self, message: InboundMessage, turn_id: str, room: Room | None = None) -> int | Refused | None:
        channel = message.conversation.channel
        for row in self._tables.said.values():
            there = row.message.conversation
            is_event = row.message.event_id == message.event_id and there.channel == channel
            is_place = (there.channel, there.conversation) == (channel, message.conversation.conversation)
            if is_event or (is_place and row.message.id == message.id):
                return None
        now_ms = self._tables.now_ms()
        oldest = None if room is None else self._oldest_of_full_queue(message, room)
        is_told = oldest is not None and self._is_told_of_limit(message, oldest)
        seq = self._tables.next_seq()
        row = Said(seq=seq, turn_id=turn_id, message=message, due_at=now_ms, waiting_since=now_ms)
        self._tables.said[seq] = row
        if room is None or oldest is None:
            return seq
        row.state, row.error, row.is_refused = "done", "refused: the sender's queue was full", True
        if room.notice is None or is_told:
            return Refused(is_told=False)
        row.is_told = True
        self._tables.answer(room.notice, turn_id)
        return Refused(is_told=True)

    def _of_sender(self, message: InboundMessage) -> list[Said]:
        whose = (message.conversation.channel, message.sender.user)
        rows = self._tables.said.values()
        return [row for row in rows if (row.message.conversation.channel, row.message.sender.user) == whose]

    def _oldest_of_full_queue(self, message: InboundMessage, room: Room) -> int | None:
        waiting = [row.seq for row in self._of_sender(message) if row.is_open]
        return min(waiting) if len(waiting) >= room.messages else None

    def _is_told_of_limit(self, message: InboundMessage, oldest: int) -> bool:
        here = (row for row in self._of_sender(message) if row.message.conversation == message.conversation)
        return any(row.is_refused and row.is_told and row.seq > oldest for row in here)

    async def claim(
        self, conversation: ConversationRef, *, owner: str, lease_s: float, is_alone: bool = False
    ) -> InboxRow | NotDue | Suspect | None:
        rows, now_ms = self._tables.open_said(conversation), self._tables.now_ms()
        if not rows:
            return None
        head = rows[0]
        if head.state == "running":
            if head.owner == owner or head.lease_until > now_ms:
                return None
        elif head.due_at > now_ms:
            return NotDue(due_in_s=(head.due_at - now_ms) / 1000)
        if head.deaths >= SUSPECT_DEATHS and not is_alone:
            return Suspect()
        head.state, head.owner, head.lease_until = "running", owner, self._tables.due_ms(lease_s)
        head.attempts += 1
        return InboxRow(
            seq=head.seq,
            turn_id=head.turn_id,
            message=head.message,
            attempts=head.attempts,
            is_told=head.is_told,
            has_steps=head.turn_id in self._tables.steps,
            has_more=len(rows) > 1,
            next_sender=rows[1].message.sender.user if len(rows) > 1 else None,
            accepted_at=head.at,
            lone_deaths=head.lone_deaths,
        )

    async def renew(self, owner: str, lease_s: float) -> None:
        for row in self._tables.said.values():
            if row.state == "running" and row.owner == owner:
                row.lease_until = self._tables.due_ms(lease_s)

    async def release(self, seq: int, *, owner: str, after_s: float, error: str | None, is_counted: bool) -> None:
        row = self._tables.said[seq]
        if row.state == "running" and row.owner == owner:
            row.give_back()
            self._tables.wait(row, after_s)
            row.error = error
            row.attempts -= 0 if is_counted else 1

    async def make_due(self, conversation: ConversationRef) -> None:
        for row in self._tables.open_said(conversation):
            row.due_at = min(row.due_at, self._tables.now_ms())
            row.waiting_since = min(row.waiting_since, self._tables.now_ms())

    async def reclaim(self, owner: str, after_s: Callable[[int], float] = lambda _deaths: 0.0) -> int:
        self._tables.correct_waits(self._tables.said.values())
        held = [row for row in self._tables.said.values() if row.state == "running" and row.owner != owner]
        for row in held:
            row.give_back()
            row.attempts -= 1
            row.deaths += 1
            if len(held) == 1:
                row.lone_deaths += 1
                self._tables.wait(row, after_s(row.lone_deaths))
        return len(held)

    async def waiting(self) -> Sequence[tuple[ConversationRef, float]]:
        rows = (row for row in self._tables.said.values() if row.is_open)
        return self._tables.heads(
            (row.message.conversation, row.lease_until if row.state == "running" else row.due_at) for row in rows
        )

    async def speakers(self) -> Mapping[ConversationRef, str]:
        speakers: dict[ConversationRef, str] = {}
        for row in self._tables.said.values():
            if row.is_open:
                speakers.setdefault(row.message.conversation, row.message.sender.user)
        return speakers

    async def parked(self) -> Sequence[Parked]:
        rows = (row for row in self._tables.said.values() if row.is_open and row.is_told)
        return [Parked(conversation=row.message.conversation, waits_for=row.waits_for) for row in rows]


class _Outbox:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def claim_reply(self, conversation: ConversationRef, *, is_durable: bool) -> OutboxRow | NotDue | None:
        del is_durable  # nothing is
        rows, now_ms = self._tables.open_answers(conversation), self._tables.now_ms()
        if not rows or rows[0].state == "sending":
            return None
        head = rows[0]
        if head.due_at > now_ms:
            return NotDue(due_in_s=(head.due_at - now_ms) / 1000)
        head.state = "sending"
        head.attempts += 1
        if head.failing_since is not None:
            head.failing_since += now_ms - head.due_at
        head.due_at = head.waiting_since = now_ms
        return OutboxRow(
            seq=head.seq,
            turn_id=head.turn_id,
            message=head.message,
            attempts=head.attempts,
            is_uncertain=head.is_uncertain,
            has_more=len(rows) > 1,
            failing_s=None if head.failing_since is None else max(0, now_ms - head.failing_since) / 1000,
        )

    async def record_sent(self, seq: int, receipt: Receipt, notice: OutboundMessage | None = None) -> None:
        row = self._tables.answers[seq]
        if notice is not None:
            self._tables.answer(notice, row.turn_id)
        row.state, row.receipt, row.error, row.is_uncertain = "sent", receipt, None, False

    async def record_retry(
        self,
        seq: int,
        *,
        after_s: float,
        error: str,
        is_uncertain: bool,
        is_counted: bool = True,
        is_put_off: bool = False,
    ) -> None:
        row = self._tables.answers[seq]
        if row.state == "sending":
            row.is_put_off = is_put_off
            self._tables.wait(row, after_s)
            row.state, row.error = "ready", error
            row.is_uncertain = is_uncertain
            if not is_counted:
                row.attempts -= 1
                row.failing_since = self._tables.now_ms() if row.failing_since is None else row.failing_since

    async def make_reply_due(self, conversation: ConversationRef) -> None:
        for row in self._tables.open_answers(conversation):
            row.due_at = min(row.due_at, self._tables.now_ms())
            row.waiting_since = min(row.waiting_since, self._tables.now_ms())

    async def record_dead(self, seq: int, error: str, notice: OutboundMessage | None = None) -> None:
        row = self._tables.answers[seq]
        if notice is not None:
            self._tables.answer(notice, row.turn_id)
        if row.is_open:
            row.state, row.error = "dead", error

    async def recover_replies(self) -> int:
        self._tables.correct_waits(self._tables.answers.values())
        uncertain = [row for row in self._tables.answers.values() if row.state == "sending"]
        for row in uncertain:
            row.state, row.is_uncertain = "ready", True
        return len(uncertain)

    async def unsent(self) -> Sequence[tuple[ConversationRef, float]]:
        rows = (row for row in self._tables.answers.values() if row.is_open)
        return self._tables.heads((row.message.conversation, row.due_at) for row in rows)

    async def put_off(self) -> Sequence[ConversationRef]:
        rows = (row for row in self._tables.answers.values() if row.is_open and row.is_put_off)
        return list(dict.fromkeys(row.message.conversation for row in rows))


class _Sessions:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def active_session(self, key: str) -> Session | None:
        session_id = self._tables.active.get(key)
        return None if session_id is None else self._tables.sessions[session_id]

    async def session(self, session_id: str) -> Session | None:
        return self._tables.sessions.get(session_id)

    async def list_sessions(
        self, *, user_id: str | None = None, limit: int = 50, before: Session | None = None
    ) -> Sequence[Session]:
        numbers = {name: number for number, name in enumerate(self._tables.sessions)}
        places = {name: (session.updated_at, numbers[name]) for name, session in self._tables.sessions.items()}
        edge = None if before is None else (before.updated_at, numbers.get(before.id, -1))
        chosen = [
            session
            for session in self._tables.sessions.values()
            if self._is_of(user_id, session.user_id) and (edge is None or places[session.id] < edge)
        ]
        return sorted(chosen, key=lambda session: places[session.id], reverse=True)[:limit]

    async def messages(self, session_id: str, *, limit: int | None = None) -> Sequence[SessionMessage]:
        found = [message for message in self._tables.messages if message.session_id == session_id]
        return found if limit is None else found[max(0, len(found) - limit) :]

    async def window(self, session_id: str, *, after: int, max_chars: int) -> Sequence[SessionMessage]:
        shown: list[SessionMessage] = []
        left_chars = max_chars
        for _, group in groupby(reversed(self._shown(session_id, after)), key=lambda message: message.turn_id):
            turn = list(group)
            left_chars -= sum(len(message.text) for message in turn)
            if left_chars < 0:
                break
            shown += turn
        return shown[::-1]

    async def older_than(self, session_id: str, *, after: int, before: int) -> Sequence[SessionMessage]:
        return [message for message in self._shown(session_id, after) if message.id < before]

    async def save_summary(self, session_id: str, *, summary: str, until: int) -> None:
        session = self._tables.sessions.get(session_id)
        if session is not None and until >= session.summary_until:
            self._tables.sessions[session_id] = replace(session, summary=summary, summary_until=until)

    async def search_messages(self, query: str, *, user_id: str | None, limit: int = 20) -> Sequence[SessionHit]:
        terms = parse(query)
        matcher = Matcher(terms)
        found = [
            message
            for message in self._tables.messages
            if message.role in {"user", "assistant"} and self._is_of(user_id, message.user_id)
            if terms and matcher.is_in(message.text)
        ]
        scored = zip(bm25(matcher, [message.text for message in found]), found, strict=True)
        best = sorted(scored, key=lambda pair: (pair[0], pair[1].id), reverse=True)[: max(0, limit)]
        return [
            SessionHit(
                message_id=message.id,
                session_id=message.session_id,
                role=message.role,
                personality_id=message.personality_id,
                snippet=matcher.snippet(message.text),
                score=score,
                created_at=message.created_at,
                is_tainted=message.is_tainted,
            )
            for score, message in best
        ]

    def _is_of(self, user_id: str | None, writer: str) -> bool:
        return user_id is None or writer in self._tables.person_ids(user_id)

    def _shown(self, session_id: str, after: int) -> list[SessionMessage]:
        return [
            message
            for message in self._tables.messages
            if message.session_id == session_id and message.id > after and not message.is_superseded
        ]


class _Turns:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def commit_turn(self, commit: TurnCommit) -> None:
        tables = self._tables
        row = tables.said.get(commit.inbox_seq)
        if row is None or row.state != "running" or row.owner != commit.owner:
            raise ClaimLost(f"turn {commit.turn_id} is no longer claimed by {commit.owner}")
        row.state, row.owner, row.error = commit.end, None, commit.error
        if commit.end == "parked":
            tables.wait(row, commit.again_after_s)
            row.is_told, row.waits_for = True, commit.waits_for
            row.attempts -= 1
            row.deaths = 0
        else:
            tables.steps.pop(commit.turn_id, None)
            tables.tools = {key: result for key, result in tables.tools.items() if key[0] != commit.turn_id}
        self._keep_messages(commit)
        for reply in commit.replies:
            tables.answer(reply, commit.turn_id, is_delivered=reply.id in commit.delivered)
        if commit.memory is not None:
            tables.memory.setdefault(commit.memory[0].turn_id, commit.memory)
        for proposal in commit.proposals:
            tables.propose(proposal)
        if commit.people is not None:
            apply_change(tables, commit.people, inbox_seq=commit.inbox_seq)
        if commit.owner_chat is not None:
            tables.keep_chat(*commit.owner_chat)
        if commit.ingest is not None:
            tables.ingest.setdefault(commit.turn_id, Waiting(commit.ingest, tables.now_ms()))

    def _keep_messages(self, commit: TurnCommit) -> None:
        tables, session = self._tables, commit.session
        if session is not None:
            stored = tables.sessions.get(session.id)
            if stored is not None and stored.summary_until > session.summary_until:
                session = replace(session, summary=stored.summary, summary_until=stored.summary_until)
            session = replace(session, is_tainted=session.is_tainted or (stored is not None and stored.is_tainted))
            tables.sessions[session.id] = session
            tables.active[session.key] = session.id
        tables.messages = [
            replace(message, is_superseded=True) if message.turn_id == commit.supersedes else message
            for message in tables.messages
        ]
        for message in commit.messages:
            tables.messages.append(replace(message, id=len(tables.messages) + 1))

    async def save_steps(self, turn_id: str, steps: str, *, is_durable: bool) -> None:
        del is_durable  # nothing is
        self._tables.steps[turn_id] = steps

    async def load_steps(self, turn_id: str) -> str | None:
        return self._tables.steps.get(turn_id)

    async def begin_tool(self, turn_id: str, call_id: str, name: str) -> None:
        del name
        self._tables.tools.setdefault((turn_id, call_id), None)

    async def end_tool(self, turn_id: str, call_id: str, result: str) -> None:
        self._tables.tools[turn_id, call_id] = result

    async def tool_outcome(self, turn_id: str, call_id: str) -> tuple[bool, str | None]:
        key = (turn_id, call_id)
        return key in self._tables.tools, self._tables.tools.get(key)

    async def unsettled_memory(
        self, *, after: str | None = None, limit: int | None = None
    ) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        turn_ids = list(self._tables.memory)
        start = turn_ids.index(after) + 1 if after in self._tables.memory else 0
        noted = (self._tables.memory[turn_id] for turn_id in turn_ids[start:])
        return [(scope, list(updates)) for scope, updates in noted if updates][:limit]

    async def settle_memory(self, turn_id: str, outcomes: Sequence[str]) -> None:
        noted = self._tables.memory.get(turn_id)
        if noted is not None and len(outcomes) >= len(noted[1]):
            self._tables.memory[turn_id] = (noted[0], ())


class _Log:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def read(
        self, conversation: ConversationRef, *, after: int = 0, limit: int = 200, newest: bool = False
    ) -> Sequence[LogEntry]:
        rows: list[Said | Answer] = [*self._tables.said.values(), *self._tables.answers.values()]
        found = [row for row in rows if row.seq > after and row.message.conversation == conversation]
        found.sort(key=lambda row: row.seq)
        chosen = found[max(0, len(found) - limit) :] if newest else found[: max(0, limit)]
        return [_entry(row) for row in chosen]


def _entry(row: Said | Answer) -> LogEntry:
    return LogEntry(
        cursor=row.seq,
        direction="in" if isinstance(row, Said) else "out",
        id=row.message.id,
        text=row.message.text,
        display_name=row.message.sender.display_name if isinstance(row, Said) else "",
        at=row.at,
        state=row.state,
        reply_to=row.message.reply_to,
        actions=() if isinstance(row, Said) else row.message.actions,
    )


class InMemoryStore:
    """Every store of the gateway, in dictionaries; gone with the object."""

    def __init__(self, *, now_ms: Callable[[], int] = steady_ms) -> None:
        tables = Tables(now_ms)
        self.inbox = _Inbox(tables)
        self.outbox = _Outbox(tables)
        self.sessions = _Sessions(tables)
        self.turns = _Turns(tables)
        self.usage = InMemoryUsage(tables.person_ids, tables.survivors)
        self.log = _Log(tables)
        self.proposals = InMemoryProposals(tables)
        self.people = InMemoryPeople(tables)
        self.links = InMemoryLinks(tables)
        self.ingest = InMemoryIngestJobs(tables)

    async def close(self) -> None:
        """Forget nothing: a store that is closed and used again stands for one that was opened again."""
