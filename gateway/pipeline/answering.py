"""The agent's part of a turn: what it is given, how it is interrupted or parked, and what its answer changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from gateway.agent.loop import AgentLoop, AgentState, AgentWork
from gateway.agent.model import ChatMessage, Spender
from gateway.agent.prompt import Setting, system_prompt
from gateway.agent.tools import UPDATE_MEMORY
from gateway.domain.provenance import own_words
from gateway.errors import ModelRefused, ModelUnavailable
from gateway.memory.recall import recalled_section
from gateway.messages import Capabilities
from gateway.pipeline.attachments import Asked
from gateway.pipeline.dispatcher import TurnControl
from gateway.pipeline.open_turn import OpenTurn
from gateway.pipeline.parking import expired
from gateway.pipeline.preview import Preview
from gateway.pipeline.turn_ending import TurnEnding
from gateway.pipeline.turn_messages import STOPPED, as_stored, gave_up, reply_to, stopped
from gateway.pipeline.turn_services import Services, TurnSettings
from gateway.runtime.observe import span

# What is parked until its time is over is looked at again no sooner.
SOONEST_EXPIRY_S = 1.0
# What the model is told of a channel that is not configured any more, so that the prompt can still be made.
_UNKNOWN_CHANNEL = Capabilities(max_text_chars=4_000)

_log = structlog.get_logger(__name__)


class Answering:
    """Lets the agent answer in open turns."""

    def __init__(self, services: Services, settings: TurnSettings, ending: TurnEnding) -> None:
        self._services = services
        self._settings = settings
        self._ending = ending
        self._loop = AgentLoop(services.store)

    async def answer(
        self, turn: OpenTurn, control: TurnControl, asked: Asked, *, supersedes: str | None
    ) -> float | None:
        """Let the agent answer what was asked, and commit; seconds until it is tried again when it was parked.

        Args:
            supersedes: the turn whose messages give way to this one's.
        """
        services, row = self._services, turn.row
        state = AgentState.load(await services.store.load_steps(row.turn_id) if row.has_steps else None)
        adapter = services.adapter(turn.message.conversation.channel)
        preview = Preview(adapter, reply_to(row, "", "reply"), lambda: state.text, services.outbox.caught_up)
        work = await self._work(turn, state, preview, asked, supersedes)
        try:
            async with preview:
                ending = STOPPED if control.is_stop_requested else await self._interruptible(work, state, control)
        except ModelUnavailable as error:
            await preview.withdraw()
            return await self._park(turn, error)
        except ModelRefused as error:
            text = self._settings.hide(f"The model does not answer this: {error}")
            await self._ending.commit(self._ending.of(row, replies=(text,)))
            return None
        except asyncio.CancelledError:
            await preview.withdraw()
            raise
        if ending is not None:
            state.stop()
        await self._commit_answer(turn, state, asked=asked, ending=ending, supersedes=supersedes)
        if ending is None:
            await services.parking.answered(turn.message.conversation, work.model.name)
        return None

    async def _work(
        self, turn: OpenTurn, state: AgentState, preview: Preview, asked: Asked, supersedes: str | None
    ) -> AgentWork:
        services, personality, message = self._services, turn.personality, turn.message
        with span("memory.prefetch"):
            memory = await services.memory.prefetch(turn.scope)
        question = own_words(asked.text)
        recall = services.recall
        recalled = await recall.before_turn(turn.scope, question, turn.role) if recall is not None else ()
        history = await services.history.window(turn.session, reader=turn.user_id, leave_out=supersedes)
        toolbox = turn.toolbox(services.toolbox)
        adapter = services.adapter(message.conversation.channel)
        setting = Setting(
            capabilities=_UNKNOWN_CHANNEL if adapter is None else adapter.capabilities,
            is_direct=message.is_direct,
            display_name=message.sender.display_name,
            today=datetime.now(UTC).date(),
        )
        return AgentWork(
            turn_id=turn.row.turn_id,
            model=services.model(personality.model),
            system=system_prompt(
                personality.prompt,
                setting,
                memory=None if memory is None else await services.render_memory(memory, question),
                summary=turn.session.summary,
                can_remember=UPDATE_MEMORY.name in toolbox.names,
                recalled=recalled_section(recalled),
            ),
            history=(*history, ChatMessage(role="user", text=asked.text, images=asked.images)),
            toolbox=toolbox,
            context=turn.tool_context(state, asked, memory),
            steps_limit=personality.steps_per_turn or self._settings.steps_per_turn,
            max_output_tokens=personality.output_tokens,
            on_text=preview.grow,
            spender=Spender(user_id=turn.user_id, personality_id=personality.id, turn_id=turn.row.turn_id),
        )

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

    async def _park(self, turn: OpenTurn, error: ModelUnavailable) -> float | None:
        """Keep the message for later, and tell the person, once; seconds until it is tried again.

        None where it has waited too long already, and is given up as a dead letter.
        """
        row, parking = turn.row, self._services.parking
        left_s = self._settings.parked_expire_after_h * 3600 - (datetime.now(UTC) - row.accepted_at).total_seconds()
        if row.is_told and left_s <= 0:
            text = expired(self._settings.parked_expire_after_h)
            reason = self._settings.hide(f"expired after {self._settings.parked_expire_after_h:g} hours: {error}")
            _log.error("parked_expired", turn_id=row.turn_id, reason=reason)
            await self._ending.commit(self._ending.of(row, replies=(text,), kind="expired", end="dead", error=reason))
            return None
        model = self._services.model(turn.personality.model).name
        waits_for, again_s = parking.park(row.message.conversation, model, error)
        again_s = min(again_s, max(left_s, SOONEST_EXPIRY_S))
        _log.warning("turn_parked", turn_id=row.turn_id, reason=str(error), again_s=again_s)
        notice = parking.notice(row, waits_for, error)
        notice = notice and self._settings.hide(notice)
        parked = self._ending.of(row, replies=() if notice is None else (notice,), kind="parked", end="parked")
        reason = self._settings.hide(str(error))
        parked = replace(parked, again_after_s=again_s, waits_for=waits_for, error=reason, owner_chat=turn.owner_chat)
        await self._ending.commit(parked)
        return await parking.told(row.message.conversation, waits_for, error, again_s)

    async def _commit_answer(
        self, turn: OpenTurn, state: AgentState, *, asked: Asked, ending: str | None, supersedes: str | None
    ) -> None:
        memory = await turn.settle_memory(state, asked, self._services.proposals)
        if ending == STOPPED:
            text = state.text.strip() or stopped(turn.message)
        else:
            text = (state.text + self._ending.said(f"\n\n{ending or ''}", turn.message)).strip() or "Done."
        text = (text + self._ending.said(memory.notice, turn.message)).strip()
        session = turn.session_after(asked, memory)
        commit = replace(
            self._ending.of(turn.row),
            replies=(reply_to(turn.row, text, "reply", memory.choices),),
            session=session,
            messages=as_stored(
                state,
                session_id=session.id,
                turn_id=turn.row.turn_id,
                personality_id=turn.personality.id,
                user_id=turn.user_id,
                author=turn.message.sender.display_name,
                asked=asked,
                sources=memory.sources,
                asked_at=turn.message.sent_at,
            ),
            supersedes=supersedes,
            memory=(turn.scope, memory.applied) if memory.applied else None,
            proposals=memory.proposals,
            ingest=turn.ingest_job(self._services.recall, memory),
            owner_chat=turn.owner_chat,
        )
        await self._ending.commit(commit)
        if self._services.recall is not None:
            self._services.recall.after_turn(turn.scope, state.text, turn.role)
        if supersedes is not None:
            self._services.history.forget(session.id)
        if memory.applied:
            await self._services.memory.apply(turn.scope, memory.applied)
        self._services.history.answered(session, turn.personality.model)
