"""The agent's part of a turn: what it is given, how it is interrupted or parked, and what its answer changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from gateway.agent.loop import AgentLoop, AgentState, AgentWork, calling, calling_again
from gateway.agent.meter import Meter, Tab
from gateway.agent.model import ChatMessage, Spender
from gateway.agent.prompt import Setting, system_prompt
from gateway.approvals.approval import Approval, ApprovalStore, Decider
from gateway.approvals.asking import EXPIRE_AFTER_H, Asker, Asking
from gateway.approvals.whole import WholeCalls
from gateway.cluster.sessions import HeldSessions
from gateway.config.values import zone_of
from gateway.domain.channels import Channels
from gateway.domain.personalities import Personalities, Personality
from gateway.domain.provenance import ANOTHER_SPEAKER, EARLIER, own_words
from gateway.domain.roles import Role, memory_of
from gateway.domain.sessions import LOCAL, Session, SessionScope, SessionStore, with_title
from gateway.errors import ModelRefused, ModelUnavailable
from gateway.files.sent_files import KeepFile
from gateway.memory.fact_changes import read_proposed
from gateway.memory.ingest import IngestJob
from gateway.memory.prompt_section import MemorySection
from gateway.memory.proposals import ProposalStore, SettledMemory, settle_updates
from gateway.memory.recall import Recall, recalled_section, unsaid
from gateway.memory.sync import MemorySync
from gateway.messages import Capabilities, ConversationRef, InboundMessage
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.pipeline.admission import Admission
from gateway.pipeline.attachments import Question
from gateway.pipeline.clock import Clock
from gateway.pipeline.commands import STOPPED, ChatCommands, gave_up
from gateway.pipeline.commit import Committer, TurnCommit, TurnStore, reply_to
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.history import History, as_stored
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.parking import Parking, expired
from gateway.pipeline.presence import Presence
from gateway.pipeline.preview import Preview
from gateway.pipeline.queues import InboxRow
from gateway.pipeline.reading import Ahead, Reading, Unread
from gateway.pipeline.replies import Replies, unread_notice
from gateway.pipeline.scheduled import Scheduled
from gateway.pipeline.server_questions import FRESH, Answered, QuestionStore
from gateway.pipeline.standing import Standing
from gateway.pipeline.turn_control import TurnControl
from gateway.protocols import MemoryContext, MemoryScope
from gateway.sandbox.workspace import Workspace, Workspaces
from gateway.schedules.firing import OccurrenceEnd, OccurrenceStore
from gateway.schedules.schedule import MOST_STEPS
from gateway.tools.contract import Outgoing, ToolContext
from gateway.tools.documents import Documents
from gateway.tools.finding import FIND_TOOLS, found_in
from gateway.tools.forms import OpenQuestion
from gateway.tools.own import UPDATE_MEMORY
from gateway.tools.toolbox import Toolbox

# What is parked until its time is over is looked at again no sooner.
SOONEST_EXPIRY_S = 1.0
# What the model is told of a channel that is not configured any more, so that the prompt can still be made.
_UNKNOWN_CHANNEL = Capabilities(max_text_chars=4_000)

_log = structlog.get_logger(__name__)


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
        asks_ahead: the store is a server, which is asked at once for what a turn will most likely read.
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
    asks_ahead: bool = False


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
    def is_shown(self) -> bool:
        """Whether people see that it runs, and what it writes."""
        return self.scheduled is None or not self.scheduled.is_watch

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
            with_title(self.session, (self.message.text.strip() if self.answered is None else "") or asked.text),
            updated_at=datetime.now(UTC),
            is_tainted=self.session.is_tainted or bool(memory.sources),
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


class Answering:
    """Lets the agent answer in open turns."""

    def __init__(self, parts: TurnDependencies, settings: TurnSettings, committer: Committer, reading: Reading) -> None:
        self._parts = parts
        self._reading = reading
        self._settings = settings
        self._committer = committer
        self._replies = Replies(committer, parts.whole_calls, parts.admission.pairing)
        self._loop = AgentLoop(parts.store)

    async def answer(
        self, turn: Turn, control: TurnControl, asked: Question, *, supersedes: str | None
    ) -> float | None:
        """Let the agent answer what was asked, and commit; seconds until it is tried again when it was parked.

        Args:
            supersedes: the turn whose messages give way to this one's.
        """
        try:
            async with Tab(self._parts.models) as tab:
                return await self._answer(turn, control, asked, tab, supersedes)
        finally:
            self._parts.turn_ended()

    async def _answer(
        self, turn: Turn, control: TurnControl, asked: Question, tab: Tab, supersedes: str | None
    ) -> float | None:
        parts, row = self._parts, turn.row
        state = AgentState.load(await parts.store.load_steps(row.turn_id) if row.has_steps else None)
        if turn.approved is not None and not state.messages:
            state.messages.append(calling(turn.approved))
        if turn.answered is not None and not state.messages:
            question = turn.answered.question
            state.messages.append(calling_again(question.wanted, question.turn_id))
        shows = parts.channels.showing(turn.message.conversation.channel) if turn.is_shown else None
        preview = Preview(shows, reply_to(row, "", "reply"), state, parts.outbox)
        work = await self._work(turn, state, preview, asked, supersedes, tab=tab, on_stop=control.stop)
        try:
            async with preview:
                ending = STOPPED if control.is_stop_requested else await self._interruptible(work, state, control)
        except ModelUnavailable as error:
            await preview.withdraw()
            return await self._park(turn, error)
        except ModelRefused as error:
            text = self._settings.hide(f"The model does not answer this: {error}")
            end = turn.ended(self._committer.end(row, replies=(text,) if turn.is_shown else ()))
            failed = None if turn.scheduled is None else OccurrenceEnd(outcome="failed", note=text)
            await self._committer.commit(replace(end, occurrence=failed))
            return None
        except asyncio.CancelledError:
            await preview.withdraw()
            raise
        if ending is not None:
            state.stop(is_by_person=ending == STOPPED)
        is_unread = work.context.is_unread
        await self._commit_answer(
            turn, state, asked=asked, tab=tab, ending=ending, supersedes=supersedes, is_unread=is_unread
        )
        if ending is None:
            await parts.parking.answered(turn.message.conversation, work.model.name)
        return None

    async def _work(
        self,
        turn: Turn,
        state: AgentState,
        preview: Preview,
        asked: Question,
        supersedes: str | None,
        *,
        tab: Tab,
        on_stop: Callable[[], object],
    ) -> AgentWork:
        parts, personality, message = self._parts, turn.personality, turn.message
        question = own_words(asked.text)
        memory, history = await self._reading.memory_and_history(
            turn.ahead, message, replace(turn.scope, question=question), turn.session, supersedes
        )
        toolbox, found = await self._tools(turn)
        capabilities = parts.channels.capabilities(message.conversation.channel) or _UNKNOWN_CHANNEL
        zone = await parts.zone_of(turn.user_id)
        context = turn.tool_context(state, asked, memory, parts, capabilities, zone=zone)
        return AgentWork(
            turn_id=turn.row.turn_id,
            model=tab.model(personality.model),
            system=await self._system(turn, memory, question, toolbox, capabilities, zone=zone),
            history=(*history, ChatMessage(role="user", text=asked.text, images=asked.images)),
            toolbox=toolbox,
            context=replace(context, findable=toolbox.findable, documents=parts.documents, hide=self._settings.hide),
            steps_limit=turn.steps_limit(self._settings.steps_per_turn),
            calls_limit=self._settings.tool_calls_per_turn,
            max_output_tokens=personality.output_tokens,
            on_text=preview.grow,
            on_stop=on_stop,
            asking=self._asking(turn, asked, history),
            approval_id=None if turn.approved is None else turn.approved.id,
            pin=None if turn.approved is None else turn.approved.pin,
            found=found,
            given=None if turn.answered is None else turn.answered.given,
            spender=Spender(user_id=turn.user_id, personality_id=personality.id, turn_id=turn.row.turn_id),
        )

    async def _system(
        self,
        turn: Turn,
        memory: MemoryContext | Unread | None,
        question: str,
        toolbox: Toolbox,
        capabilities: Capabilities,
        *,
        zone: str,
    ) -> str:
        """The prompt in front of the conversation: who answers, where, and what is remembered."""
        parts, personality = self._parts, turn.personality
        remembered = await self._reading.section(memory, question)
        recall = parts.recall
        recalled = await recall.before_turn(turn.scope, question, turn.role) if recall is not None else ()
        setting = Setting(
            capabilities=capabilities,
            is_direct=turn.message.is_direct,
            display_name=turn.message.sender.display_name,
            today=datetime.now(zone_of(zone)).date(),
        )
        prompt = system_prompt(
            personality.prompt,
            setting,
            memory=remembered,
            summary=turn.session.summary,
            can_remember=UPDATE_MEMORY.name in toolbox.names,
            servers=parts.instructions(toolbox.names),
            recalled=recalled_section(unsaid(recalled, remembered)),
        )
        return prompt if turn.scheduled is None else f"{prompt}\n\n{turn.scheduled.prompt}"

    async def _tools(self, turn: Turn) -> tuple[Toolbox, Sequence[str]]:
        """The tools of the turn, and the names of those that were found earlier in the session."""
        toolbox = turn.toolbox(self._parts.toolbox()).within(self._settings.schema_tokens)
        if not toolbox.findable:
            return toolbox, ()
        return toolbox, found_in(await self._parts.sessions.results(turn.session.id, FIND_TOOLS.name))

    def _asking(self, turn: Turn, asked: Question, history: Sequence[ChatMessage]) -> Asking:
        """Who decides which calls of the turn wait for a yes."""
        scheduled = turn.scheduled
        said = [one.text for one in history if one.role == "user"]
        words = [own_words(asked.text)] if scheduled is None else scheduled.own_words
        asker = Asker(
            turn_id=turn.row.turn_id,
            user_id=turn.user_id,
            person_ids=self._parts.people.ids,
            personality_id=turn.personality.id,
            session_id=turn.session.id,
            conversation=turn.message.conversation,
            is_attended=scheduled is None,
            schedule_id=None if scheduled is None else scheduled.schedule.id,
            own_words=[*words, *map(own_words, said)],
            are_named_spared=self._settings.are_named_spared,
            allowed=self._settings.allowed_addresses,
        )
        expire_after_h = self._settings.approvals_expire_after_h
        if scheduled is not None:
            expire_after_h = scheduled.asks_for_h(expire_after_h)
        return Asking(self._parts.approvals, self._parts.proposals.reserve, asker, expire_after_h=expire_after_h)

    async def _interruptible(self, work: AgentWork, state: AgentState, control: TurnControl) -> str | None:
        """Run the loop to its end, or until the person stops it or its time is over; then a word on why it ended."""
        control.is_interruptible = True
        limit = asyncio.timeout(self._settings.turn_timeout_s)
        try:
            async with limit:
                await self._loop.run(work, state)
        except TimeoutError:
            if not limit.expired():  # a fault of a tool or a model, not our limit
                raise
            return gave_up(self._settings.turn_timeout_s)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not control.is_stop_requested or task is None:
                raise
            task.uncancel()
            return STOPPED
        finally:
            control.is_interruptible = False
            control.is_decided = True
        return None

    async def _park(self, turn: Turn, error: ModelUnavailable) -> float | None:
        """Keep the message for later, and tell the person, once; seconds until it is tried again.

        None where it has waited too long already, and is given up as a dead letter.
        """
        row, parking = turn.row, self._parts.parking
        if turn.scheduled is not None and turn.scheduled.is_watch:
            skipped = turn.scheduled.without_model(error)
            skipped = replace(skipped, note=self._settings.hide(skipped.note))
            await self._committer.commit(replace(self._committer.end(row), occurrence=skipped))
            return None
        left_s = self._settings.parked_expire_after_h * 3600 - (datetime.now(UTC) - row.accepted_at).total_seconds()
        if row.is_told and left_s <= 0:
            after_h = self._settings.parked_expire_after_h
            text = expired(after_h) if turn.scheduled is None else turn.scheduled.expired(after_h)
            reason = self._settings.hide(f"expired after {self._settings.parked_expire_after_h:g} hours: {error}")
            _log.error("parked_expired", turn_id=row.turn_id, reason=reason)
            dead = self._committer.end(row, replies=(text,), kind="expired", end="dead", error=reason)
            await self._committer.commit(turn.ended(dead))
            return None
        model = self._parts.models.model(turn.personality.model).name
        waits_for, again_s = parking.park(row.message.conversation, model, error)
        again_s = min(again_s, max(left_s, SOONEST_EXPIRY_S))
        _log.warning("turn_parked", turn_id=row.turn_id, reason=str(error), again_s=again_s)
        notice = parking.notice(row, waits_for, error)
        if notice is not None:
            notice = self._settings.hide(notice if turn.scheduled is None else turn.scheduled.waits(error))
        parked = self._committer.end(row, replies=() if notice is None else (notice,), kind="parked", end="parked")
        reason = self._settings.hide(str(error))
        parked = replace(parked, again_after_s=again_s, waits_for=waits_for, error=reason, owner_chat=turn.owner_chat)
        await self._committer.commit(parked)
        return await parking.announced(row.message.conversation, waits_for, error, again_s)

    async def _commit_answer(
        self,
        turn: Turn,
        state: AgentState,
        *,
        asked: Question,
        tab: Tab,
        ending: str | None,
        supersedes: str | None,
        is_unread: bool,
    ) -> None:
        memory = await turn.settle_memory(state, asked, self._parts.proposals)
        text = self._replies.text(turn, state, ending)
        if is_unread and text:
            text += unread_notice(memory)
        session = turn.session_after(asked, memory)
        question = turn.question(state, self._settings.approvals_expire_after_h)
        commit = replace(
            turn.ended(self._committer.end(turn.row)),
            replies=await self._replies.at_end(turn, state, text, memory, question),
            asks=question,
            session=session,
            messages=as_stored(
                state if turn.scheduled is None else turn.scheduled.kept(state, text),
                asked,
                turn.row,
                session_id=session.id,
                personality_id=turn.personality.id,
                user_id=turn.user_id,
                sources=memory.sources,
            ),
            supersedes=supersedes,
            memory=(turn.scope, memory.applied) if memory.applied else None,
            proposals=memory.proposals,
            ingest=turn.ingest_job(self._parts.recall, memory),
            owner_chat=turn.owner_chat,
            is_stopped=ending == STOPPED,
            answered=(turn.account, turn.user_id),
            calls=tuple(state.calls),
            approvals=tuple(state.approvals),
            bill=tab.bill,
        )
        if turn.scheduled is not None:
            commit = turn.scheduled.committed(commit, state, ending)
        await self._committer.commit(commit)
        tab.paid()
        if supersedes is not None:
            self._parts.history.forget(session.id)
        await self._follow_up(turn, state, session, memory)

    async def _follow_up(self, turn: Turn, state: AgentState, session: Session, memory: SettledMemory) -> None:
        """What comes behind the commit, and is done again where the process dies before it."""
        if self._parts.recall is not None:
            self._parts.recall.after_turn(turn.scope, state.text, turn.role)
        if memory.applied:
            await self._parts.memory.apply(turn.scope, memory.applied)
        self._parts.history.answered(session, turn.personality.model)
