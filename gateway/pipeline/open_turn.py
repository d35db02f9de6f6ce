"""An open turn: a message, whose it is, and who answers it; and what all turns work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from gateway.agent.meter import Meter, Tab
from gateway.agent.model import Model, Spender
from gateway.agent.state import AgentState
from gateway.approvals.approval import Approval, ApprovalStore, Decider
from gateway.approvals.asking import EXPIRE_AFTER_H
from gateway.approvals.whole import WholeCalls
from gateway.cluster.sessions import HeldSessions
from gateway.domain.channels import Channels
from gateway.domain.heard import Heard, said_in
from gateway.domain.personalities import Personalities, Personality
from gateway.domain.provenance import ANOTHER_SPEAKER, EARLIER
from gateway.domain.roles import Role, memory_of
from gateway.domain.sessions import LOCAL, Session, SessionMessage, SessionScope, SessionStore, with_title
from gateway.files.sent_files import KeepFile
from gateway.memory.fact_changes import read_proposed
from gateway.memory.ingest import IngestJob
from gateway.memory.prompt_section import MemorySection
from gateway.memory.proposals import ProposalStore, SettledMemory, settle_updates
from gateway.memory.recall import Recall
from gateway.memory.sync import MemorySync
from gateway.messages import Capabilities, ConversationRef, InboundMessage
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.pipeline.admission import Admission
from gateway.pipeline.attachments import Keeper, Question
from gateway.pipeline.clock import Clock
from gateway.pipeline.commands import ChatCommands
from gateway.pipeline.commit import TurnCommit, TurnStore
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.history import History, as_stored
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.parking import Parking
from gateway.pipeline.presence import Presence
from gateway.pipeline.queues import InboxRow
from gateway.pipeline.reading import Ahead, Unread
from gateway.pipeline.scheduled import Scheduled
from gateway.pipeline.server_questions import FRESH, Answered, QuestionStore
from gateway.pipeline.skills import FindSkills, no_skills
from gateway.pipeline.standing import Standing
from gateway.pipeline.voice_notes import VoiceNotes
from gateway.protocols import MemoryContext, MemoryScope
from gateway.sandbox.workspace import Workspace, Workspaces
from gateway.schedules.firing import OccurrenceStore
from gateway.schedules.schedule import MOST_STEPS
from gateway.tools.contract import Outgoing, ToolContext
from gateway.tools.documents import Documents
from gateway.tools.forms import OpenQuestion
from gateway.tools.own import UPDATE_MEMORY
from gateway.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """Limits and defaults of a turn; times in seconds.

    Attributes:
        schema_tokens: what descriptions of tools may take of a prompt, before those of packages have to be found.
        are_named_spared: no question for a call whose every destination stands in the person's own words.
        hide: takes secrets out of a reason.
        allowed_addresses: count as known, with all that begin with them.
    """

    default_personality: str = "assistant"
    personality_of_channel: Callable[[str], str | None] = lambda _channel: None
    session_scope: SessionScope = "conversation"
    steps_per_turn: int = 12
    tool_calls_per_turn: int = 32
    schema_tokens: int = 6_000
    turn_timeout_s: float = 600.0
    max_message_chars: int = 100_000
    parked_expire_after_h: float = 168.0
    approvals_expire_after_h: float = EXPIRE_AFTER_H
    are_named_spared: bool = False
    hide: Callable[[str], str] = str
    allowed_addresses: Sequence[str] = ()


class Hearing(Protocol):
    """Hears a recording; see `gateway.speech.hearing`."""

    async def __call__(self, data: bytes, spender: Spender) -> Heard:
        """What is said in it, or why that is not known; never raises for what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDependencies:
    """What a turn works with.

    Attributes:
        models: every model, behind the meter.
        memory_section: makes the part of the prompt that holds what is remembered.
        people: who is behind an account, links among them.
        recall: the trace memory; None where it is off.
        toolbox: the tools that there are now.
        questions: what servers ask people; None where there are no servers.
        zone_of: the IANA name of a person's time zone, as it was at most a minute ago.
        instructions: by server, what those say of themselves that have one of these tools.
        turn_ended: called when the agent has answered, or has not.
        workspaces: the files of people and groups; None where those are off.
        hearing: hears what people recorded; None where nothing does.
        voice: whose answers are said, too; None where nothing says them.
        asks_ahead: the store is a server, which is asked at once for what a turn will most likely read.
        skills: those of a personality.
        whole_calls: writes files for questions that are longer than a chat shows.
        keep_file: keeps a file that a person is sent, where every worker reaches it.
        schedules: what turns that nobody began do.
        standing: whether that may still be done.
        clock: is woken where a schedule may have been paused, so that its person is told.
        documents: reads PDFs, and makes pictures ready for models.
    """

    store: TurnStore
    sessions: SessionStore
    history: History
    memory: MemorySync
    memory_section: MemorySection
    proposals: ProposalStore
    approvals: ApprovalStore
    people: LinkedIdentities
    admission: Admission
    personalities: Personalities
    commands: ChatCommands
    toolbox: Callable[[], Toolbox]
    models: Meter
    parking: Parking
    presence: Presence
    held_sessions: HeldSessions
    channels: Channels
    dispatcher: Dispatcher
    outbox: Outbox
    whole_calls: WholeCalls
    keep_file: KeepFile
    schedules: OccurrenceStore
    standing: Standing
    clock: Clock
    zone_of: Callable[[str], Awaitable[str]]
    documents: Documents | None = None
    recall: Recall | None = None
    questions: Callable[[], QuestionStore | None] = lambda: None
    instructions: Callable[[Collection[str]], Mapping[str, str]] = lambda _names: {}
    turn_ended: Callable[[], None] = lambda: None
    workspaces: Workspaces | None = None
    hearing: Hearing | None = None
    voice: VoiceNotes | None = None
    asks_ahead: bool = False
    skills: FindSkills = no_skills


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message, whose it is, and who answers it in which session; `owner_chat` as in `TurnCommit`.

    Attributes:
        account: of who wrote it, `kind:id`.
        ahead: what is asked already of what it reads.
        is_proved: the platform proves who wrote it; it is not merely claimed.
        approved: the call that it makes, which has its yes.
        open_question: what a server asks in this chat.
        answered: the call that it makes again, with what the person has answered.
        scheduled: what it does for a schedule; None where the person is there.
    """

    row: InboxRow
    account: str
    user_id: str
    session: Session
    personality: Personality
    role: Role
    ahead: Ahead
    is_proved: bool
    owner_chat: tuple[str, ConversationRef] | None = None
    approved: Approval | None = None
    open_question: OpenQuestion | None = None
    answered: Answered | None = None
    scheduled: Scheduled | None = None

    @property
    def message(self) -> InboundMessage:
        """What was written."""
        return self.row.message

    @property
    def is_heartbeat(self) -> bool:
        """Whether it looks around by itself, with a small context of its own."""
        return self.scheduled is not None and self.scheduled.schedule.is_heartbeat

    @property
    def is_shown(self) -> bool:
        """Whether people see that it runs, and what it writes."""
        return self.scheduled is None or not self.scheduled.is_watch

    @property
    def spender(self) -> Spender:
        """On whose account models are called."""
        return Spender(user_id=self.user_id, personality_id=self.personality.id, turn_id=self.row.turn_id)

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

    @property
    def decider(self) -> Decider:
        """The person, as one who decides on what waits."""
        return Decider(
            user_ids=frozenset([self.user_id]),
            role=self.role,
            is_verified=self.is_proved,
            is_direct=self.message.is_direct,
        )

    def read(self, asked: Question) -> tuple[str, ...]:
        """What is not the person's own of what stands in front of the model; the same after a crash."""
        has_several = not self.message.is_direct or self.message.conversation.channel == LOCAL
        is_joined = has_several and self.session.user_id != self.user_id  # a key may speak in anybody's session
        before = [ANOTHER_SPEAKER] if is_joined else [EARLIER] if self.session.is_tainted else []
        return (*asked.sources, *before)

    def toolbox(self, tools: Toolbox) -> Toolbox:
        """Those that the personality may use; for a guest none that acts on the world."""
        allowed = tools.allowed(self.personality.tools)
        if self.role == "guest":
            offered = [tool for tool in allowed.tools if tool.effect != "act" and not tool.needs_member]
            allowed = allowed.only([tool.name for tool in offered])
        if self.role != "owner" or not self.message.is_direct:
            allowed = allowed.only([tool.name for tool in allowed.tools if not tool.needs_owner])
        if self.personality.memory_writes == "off":
            allowed = allowed.only([name for name in allowed.names if name != UPDATE_MEMORY.name])
        return allowed if self.scheduled is None else self.scheduled.toolbox(allowed)

    def model_of(self, tab: Tab) -> Model:
        """Who answers: the personality's model, and for a watch the one for small work."""
        choose = tab.helper if self.scheduled is not None and self.scheduled.is_watch else tab.model
        return choose(self.personality.model)

    def steps_limit(self, of_all: int) -> int:
        """Calls of the model, at most; fewer where nobody waits for them."""
        limit = self.personality.steps_per_turn or of_all
        return limit if self.scheduled is None else min(limit, MOST_STEPS)

    def workspace(self, workspaces: Workspaces | None) -> Workspace | None:
        """The files that its tools work on; None where those are off."""
        if workspaces is None:
            return None
        if self.message.is_direct:
            return workspaces.of_person(self.user_id)
        return workspaces.of_group(self.message.conversation.channel, self.message.conversation.conversation)

    def keeper(self, workspaces: Workspaces | None) -> Keeper | None:
        """Keeps the files of the message among them."""
        workspace = self.workspace(workspaces)
        folder = f"attachments/{self.message.sent_at:%Y-%m-%d}/{self.row.turn_id[-8:]}"
        return None if workspace is None else Keeper(workspace=workspace, folder=folder)

    def tool_context(
        self,
        state: AgentState,
        asked: Question,
        memory: MemoryContext | Unread | None,
        parts: TurnDependencies,
        capabilities: Capabilities,
        *,
        zone: str,
    ) -> ToolContext:
        """On whose behalf tools are called."""
        outgoing = None
        if parts.workspaces is not None:
            keep, limit_bytes = partial(parts.keep_file, self.user_id), capabilities.max_attachment_bytes
            outgoing = Outgoing(keep=keep, limit_bytes=limit_bytes, files=state.files)
        return ToolContext(
            scope=self.scope,
            memory=None if memory == "unread" else memory,
            is_unread=memory == "unread",
            updates=state.updates,
            role=self.role,
            writes=self.personality.memory_writes,
            read=self.read(asked),
            sources=state.sources,
            workspace=self.workspace(parts.workspaces),
            outgoing=outgoing,
            choosing=state.choosing,
            is_attended=self.scheduled is None,
            can_be_asked=self.scheduled is None and self.message.is_direct and self.is_proved and self.role != "guest",
            reports=state.reports,
            conversation=self.message.conversation,
            sender=self.message.sender,
            zone=zone,
            below=state.below,
            below_for_all=state.below_for_all,
            buttons=state.buttons,
            codes=state.codes,
        )

    async def settle_memory(self, state: AgentState, asked: Question, store: ProposalStore) -> SettledMemory:
        """What becomes of all that the turn wants to remember."""
        return await settle_updates(
            state.updates,
            read_proposed(state.messages),
            self.scope,
            store,
            writes=self.personality.memory_writes,
            role=self.role,
            sources=tuple(dict.fromkeys((*self.read(asked), *state.sources))),
        )

    def session_after(self, asked: Question, memory: SettledMemory) -> Session:
        """The session with this turn in it."""
        return replace(
            with_title(
                self.session,
                (self.message.text.strip() if self.answered is None else "") or said_in(asked.heard) or asked.text,
            ),
            updated_at=datetime.now(UTC),
            is_tainted=self.session.is_tainted or bool(memory.sources),
        )

    def stored(
        self, state: AgentState, asked: Question, text: str, memory: SettledMemory
    ) -> tuple[SessionMessage, ...]:
        """What the session keeps of the turn; `text` is what the person is answered."""
        return as_stored(
            state if self.scheduled is None else self.scheduled.kept(state, text),
            asked if self.scheduled is None else self.scheduled.kept_question(asked),
            self.row,
            session_id=self.session.id,
            personality_id=self.personality.id,
            user_id=self.user_id,
            sources=memory.sources,
        )

    def question(self, state: AgentState, expire_after_h: float) -> OpenQuestion | None:
        """What a server is to be told before a call goes on."""
        if state.wanted is None:
            return None
        now = datetime.now(UTC)
        is_open_for = timedelta(hours=expire_after_h) if state.wanted.within_s is None else FRESH
        return OpenQuestion(
            lane=self.row.lane,
            user_id=self.user_id,
            turn_id=self.row.turn_id,
            wanted=state.wanted,
            asked_at=now,
            expires_at=now + is_open_for,
        )

    def ended(self, commit: TurnCommit) -> TurnCommit:
        """The same where the turn has taken an answer for a server: that question is over, and its answer forgotten."""
        return commit if self.answered is None else replace(commit, ends_question=True, secret=self.message)

    def ingest_job(self, recall: Recall | None, memory: SettledMemory) -> IngestJob | None:
        """What the trace memory is to take from the turn; where a person's yes is needed, only to propose it."""
        writes = self.personality.memory_writes
        if recall is None or writes == "off":
            return None
        is_reviewed = bool(memory.sources) or writes == "review"
        return recall.job(self.scope, self.message.sender.display_name, memory.sources if is_reviewed else None)
