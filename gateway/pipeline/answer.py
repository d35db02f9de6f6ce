"""The agent's part of a turn: what it is given, how it is interrupted or parked, and what its answer changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from gateway.agent.loop import AgentLoop, AgentWork, Delegating, calling, calling_again
from gateway.agent.meter import Tab
from gateway.agent.model import ChatMessage
from gateway.agent.prompt import Setting, late_prompt, system_prompt
from gateway.agent.state import AgentState
from gateway.approvals.asking import Asker, Asking
from gateway.config.values import zone_of
from gateway.domain.heard import before_answer
from gateway.domain.provenance import own_words
from gateway.domain.sessions import Session
from gateway.errors import ModelRefused, ModelUnavailable
from gateway.memory.proposals import SettledMemory
from gateway.memory.recall import recalled_section, unsaid
from gateway.messages import Capabilities
from gateway.pipeline.attachments import Question
from gateway.pipeline.commands import STOPPED, gave_up
from gateway.pipeline.commit import Committer, reply_to
from gateway.pipeline.open_turn import Turn, TurnDependencies, TurnSettings
from gateway.pipeline.parking import expired
from gateway.pipeline.preview import Preview
from gateway.pipeline.reading import Reading, Unread
from gateway.pipeline.replies import Replies, unread_notice
from gateway.pipeline.skills import LOAD_SKILL, TurnSkills, skills_of
from gateway.pipeline.turn_control import TurnControl
from gateway.protocols import MemoryContext
from gateway.schedules.firing import OccurrenceEnd
from gateway.schedules.heartbeat import SCHEMA_TOKENS
from gateway.tools.contract import DELEGATE
from gateway.tools.finding import FIND_TOOLS, found_in
from gateway.tools.own import UPDATE_MEMORY
from gateway.tools.toolbox import Toolbox

if TYPE_CHECKING:  # loaded where there are skills
    from gateway.skills.offered import Offered

# What is parked until its time is over is looked at again no sooner.
SOONEST_EXPIRY_S = 1.0
# What the model is told of a channel that is not configured any more, so that the prompt can still be made.
_UNKNOWN_CHANNEL = Capabilities(max_text_chars=4_000)

_log = structlog.get_logger(__name__)


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
        preview = Preview(shows, reply_to(row, "", "reply"), state, parts.outbox, before=before_answer(asked.heard))
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
        if turn.is_heartbeat:
            history = ()
        toolbox, found, offered = await self._tools(turn)
        skills = await skills_of(offered, turn.session.id, history, parts.sessions)
        zone = await parts.zone_of(turn.user_id)
        system, late = await self._system(turn, memory, question, toolbox, skills, zone=zone)
        context = turn.tool_context(state, asked, memory, parts, self._capabilities(turn), zone=zone)
        return AgentWork(
            turn_id=turn.row.turn_id,
            model=turn.model_of(tab),
            system=system,
            late=late,
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
            returned=skills.returned,
            given=None if turn.answered is None else turn.answered.given,
            spender=turn.spender,
            thinking=personality.thinking,
            delegating=self._sub_agents(personality.model) if DELEGATE in toolbox.names else None,
        )

    def _sub_agents(self, model: str | None) -> Delegating:
        from gateway.agent.delegating import SubAgents  # noqa: PLC0415 (only where they are switched on)

        return SubAgents(meter=self._parts.models, model=model, schema_tokens=self._settings.schema_tokens)

    async def _system(
        self,
        turn: Turn,
        memory: MemoryContext | Unread | None,
        question: str,
        toolbox: Toolbox,
        skills: TurnSkills,
        *,
        zone: str,
    ) -> tuple[str, str]:
        """The prompt in front of the conversation, who answers, where, and what is remembered; and behind it."""
        parts, personality = self._parts, turn.personality
        setting = Setting(
            capabilities=self._capabilities(turn),
            is_direct=turn.message.is_direct,
            display_name=turn.message.sender.display_name,
            today=datetime.now(zone_of(zone)).date(),
        )
        if turn.scheduled is not None and turn.is_heartbeat:
            bare = system_prompt(personality.prompt, setting, memory=None, summary="", can_remember=False)
            return turn.scheduled.small_prompt(bare, memory, toolbox), ""
        remembered, is_chosen = await self._reading.section(memory, question)
        recall = parts.recall
        recalled = await recall.before_turn(turn.scope, question, turn.role) if recall is not None else ()
        system = system_prompt(
            personality.prompt,
            setting,
            memory=None if is_chosen else remembered,
            summary=turn.session.summary,
            can_remember=UPDATE_MEMORY.name in toolbox.names,
            servers=parts.instructions(toolbox.names),
            skills=skills.section,
            loaded=skills.loaded,
        )
        recalled_now = recalled_section(unsaid(recalled, remembered))
        planned = None if turn.scheduled is None else turn.scheduled.prompt
        return system, late_prompt(remembered if is_chosen else None, recalled_now, planned)

    def _capabilities(self, turn: Turn) -> Capabilities:
        return self._parts.channels.capabilities(turn.message.conversation.channel) or _UNKNOWN_CHANNEL

    async def _tools(self, turn: Turn) -> tuple[Toolbox, Sequence[str], Offered | None]:
        """The tools of the turn, the names of those that were found earlier in the session, and the skills."""
        offered = None if turn.is_heartbeat else await self._parts.skills(turn.personality.id)
        all_of_them = self._parts.toolbox().with_(() if offered is None else offered.tools)
        most_tokens = self._settings.schema_tokens
        most_tokens = min(most_tokens, SCHEMA_TOKENS) if turn.is_heartbeat else most_tokens
        toolbox = turn.toolbox(all_of_them).within(most_tokens)
        if LOAD_SKILL not in toolbox.names:
            offered = None
        if not toolbox.findable:
            return toolbox, (), offered
        return toolbox, found_in(await self._parts.sessions.results(turn.session.id, FIND_TOOLS.name)), offered

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
        limit = asyncio.timeout(self._settings.turn_timeout_s)
        ending: str | None = STOPPED
        try:
            with control.interruptible():
                async with limit:
                    await self._loop.run(work, state)
                ending = None
        except TimeoutError:
            if not limit.expired():  # a fault of a tool or a model, not our limit
                raise
            return gave_up(self._settings.turn_timeout_s)
        finally:
            control.is_decided = True
        return ending

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
        text = self._replies.text(turn, state, ending, asked.heard)
        if is_unread and text:
            text += unread_notice(memory)
        session = turn.session_after(asked, memory)
        question = turn.question(state, self._settings.approvals_expire_after_h)
        replies = await self._replies.at_end(turn, state, text, memory, question)
        if ending is None and self._parts.voice is not None:
            replies = (*replies, *await self._parts.voice.of(turn, state, asked))
        commit = replace(
            turn.ended(self._committer.end(turn.row)),
            replies=replies,
            asks=question,
            session=session,
            messages=turn.stored(state, asked, text, memory),
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
