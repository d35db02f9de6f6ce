"""A turn whose person and session are known, and what becomes of what it wants to remember."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gateway.agent.loop import AgentState
from gateway.agent.tools import UPDATE_MEMORY, Toolbox, ToolContext
from gateway.domain.personalities import Personality
from gateway.domain.provenance import ANOTHER_SPEAKER, EARLIER
from gateway.domain.roles import Role, memory_of
from gateway.domain.sessions import PROGRAMS, Session, with_title
from gateway.memory.fact_changes import read_proposed
from gateway.memory.ingest import IngestJob
from gateway.memory.proposals import Proposal, ProposalStore, Reviewer, choices, notice, sort_updates
from gateway.memory.recall import Recall
from gateway.messages import Action, ConversationRef, InboundMessage
from gateway.pipeline.attachments import Asked
from gateway.pipeline.inbox import InboxRow
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """A message, whose it is, and who answers it in which session; `owner_chat` as in `TurnCommit`."""

    row: InboxRow
    user_id: str
    session: Session
    personality: Personality
    role: Role
    owner_chat: tuple[str, ConversationRef] | None = None

    @property
    def message(self) -> InboundMessage:
        """What was written."""
        return self.row.message

    @property
    def scope(self) -> MemoryScope:
        """Whose memory the turn reads and writes."""
        return MemoryScope(
            personality_id=self.personality.id,
            user_id=self.user_id if self.message.is_direct else None,  # others read the answer: only what is shared
            session_id=self.session.id,
            turn_id=self.row.turn_id,
            place=memory_of(self.role, self.personality.memory_scope),
            channel=self.message.conversation.channel,
            author_id=self.user_id,
        )

    def read(self, asked: Asked) -> tuple[str, ...]:
        """What is not the person's own of what stands in front of the model; the same after a crash."""
        has_several = not self.message.is_direct or self.message.conversation.channel == PROGRAMS
        is_joined = has_several and self.session.user_id != self.user_id  # a key may speak in anybody's session
        before = [ANOTHER_SPEAKER] if is_joined else [EARLIER] if self.session.is_tainted else []
        return (*asked.sources, *before)

    def toolbox(self, tools: Toolbox) -> Toolbox:
        """Those that the personality may use."""
        allowed = tools.allowed(self.personality.tools)
        if self.personality.memory_writes == "off":
            return allowed.only([name for name in allowed.names if name != UPDATE_MEMORY.name])
        return allowed

    def tool_context(self, state: AgentState, asked: Asked, memory: MemoryContext | None) -> ToolContext:
        """On whose behalf tools are called."""
        return ToolContext(
            scope=self.scope,
            memory=memory,
            updates=state.updates,
            role=self.role,
            writes=self.personality.memory_writes,
            read=self.read(asked),
            sources=state.sources,
        )

    async def settle_memory(self, state: AgentState, asked: Asked, store: ProposalStore) -> SettledMemory:
        """Sort what the turn wants to remember; proposals get their numbers, and one for each document."""
        sources = tuple(dict.fromkeys((*self.read(asked), *state.sources)))
        writes, is_direct = self.personality.memory_writes, self.message.is_direct
        updates = sort_updates(state.updates, self.scope, writes=writes, role=self.role, sources=sources)
        wanted = [
            *(
                Proposal(id=0, scope=self.scope, store=of, updates=mine)
                for of, mine in updates.waiting_by_store.items()
            ),
            *(
                Proposal(id=0, scope=self.scope, store="traces", fact=fact, part=f"tool {part}")
                for part, fact in enumerate(read_proposed(state.messages), start=1)
            ),
        ]
        first = await store.reserve(len(wanted)) if wanted else 0
        proposals = tuple(replace(one, id=number, sources=sources) for number, one in enumerate(wanted, start=first))
        reviewer = Reviewer(user_id=self.user_id, role=self.role)
        return SettledMemory(
            applied=updates.applied,
            proposals=proposals,
            sources=sources,
            notice=notice(proposals, reviewer, is_direct=is_direct),
            choices=choices(proposals, reviewer) if is_direct else (),
        )

    def session_after(self, asked: Asked, memory: SettledMemory) -> Session:
        """The session with this turn in it."""
        return replace(
            with_title(self.session, self.message.text.strip() or asked.text),
            updated_at=datetime.now(UTC),
            is_tainted=self.session.is_tainted or bool(memory.sources),
        )

    def ingest_job(self, recall: Recall | None, memory: SettledMemory) -> IngestJob | None:
        """What a memory is to take from the turn by itself; where a person's yes is needed, only to propose it."""
        writes = self.personality.memory_writes
        if recall is None or writes == "off":
            return None
        is_reviewed = bool(memory.sources) or writes == "review"
        return recall.job(self.scope, self.message.sender.display_name, memory.sources if is_reviewed else None)
