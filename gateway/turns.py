"""A turn: one message in, the agent's work, its replies, one commit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

import structlog

from gateway.access import Entry
from gateway.agent.loop import AgentLoop, AgentState, AgentWork
from gateway.agent.model import ChatMessage, Spender
from gateway.agent.prompt import Setting, system_prompt
from gateway.agent.tools import UPDATE_MEMORY
from gateway.attachments import Asked, read_message
from gateway.commands import CommandCall, CommandResult, parse_command
from gateway.dispatcher import TurnControl
from gateway.errors import ModelRefused, ModelUnavailable, PersonalityError
from gateway.failpoints import reach
from gateway.inbox import InboxRow
from gateway.messages import Capabilities
from gateway.observe import note, span, stage, waited
from gateway.open_turn import OpenTurn
from gateway.pair_command import PAIR
from gateway.parking import expired
from gateway.preview import Preview
from gateway.recall import recalled_section
from gateway.roles import Role
from gateway.sessions import (
    SessionMessage,
    new_session,
    session_key,
)
from gateway.turn_commit import InboxEnd, TurnCommit
from gateway.turn_messages import BURIED, as_stored, gave_up, problem_of, reply_to
from gateway.turn_services import Services, TurnSettings
from gateway.untrusted import EARLIER, own_words

STOPPED = "_(stopped)_"
STOPPED_EARLY = "Stopped before I could answer."
# What is parked until its time is over is looked at again no sooner.
SOONEST_EXPIRY_S = 1.0
# What the model is told of a channel that is not configured any more, so that the prompt can still be made.
_UNKNOWN_CHANNEL = Capabilities(max_text_chars=4_000)

_log = structlog.get_logger(__name__)


class TurnRunner:
    """Runs turns from a claimed message to the commit; see `dispatcher.Turns`."""

    def __init__(self, services: Services, settings: TurnSettings, *, owner: str) -> None:
        self._services = services
        self._settings = settings
        self._owner = owner
        self._loop = AgentLoop(services.store)
        self._session_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def renewed(self, settings: TurnSettings, **services: Any) -> TurnRunner:
        """One that works otherwise; turns of both wait for one another as turns of one do.

        Args:
            settings: all of them.
            services: those of `Services` that are others.
        """
        other = TurnRunner(replace(self._services, **services), settings, owner=self._owner)
        other._session_locks = self._session_locks
        return other

    async def run(self, row: InboxRow, control: TurnControl) -> float | None:
        """Answer the message and commit; seconds until it is to be tried again when it was parked, else None."""
        if row.attempts == 1 and not row.is_told:  # not what it has waited for since
            waited("inbox.wait", row.turn_id, row.accepted_at, channel=row.message.conversation.channel)
        with stage("turn", row.turn_id, row.message.conversation, attempt=row.attempts):
            again_s = await self._let_in(row, control)
            note(outcome="done" if again_s is None else "parked")
        if again_s is None:
            self._services.parking.ended(row.message.conversation)
        return again_s

    async def _let_in(self, row: InboxRow, control: TurnControl) -> float | None:
        services = self._services
        entry = await services.entrance.access.entry(row.message)
        note(access=entry.verdict)
        if entry.verdict != "answer":
            await self._meet(row, control, entry)
            return None
        async with (
            services.presence.turn(entry.account, row.message.conversation, control.stop),
            services.people.present(entry.account, row.message.sender.display_name) as user_id,
        ):
            if entry.role == "owner" and row.message.is_direct:
                await services.entrance.people.keep_chat(user_id, row.message.conversation)
            key = session_key(row.message, user_id, self._settings.session_scope)
            lock = self._session_locks.setdefault(key, asyncio.Lock())
            async with lock:  # one session can be met in two conversations, with the scope `user`
                return await self._run(row, control, entry, user_id, key)

    async def bury(self, row: InboxRow, reason: str) -> None:
        """Commit the message as a dead letter and tell the person."""
        with stage("turn.bury", row.turn_id, row.message.conversation):
            await self._commit(self._end(row, replies=(BURIED,), kind="dead", end="dead", error=reason))
        self._services.parking.ended(row.message.conversation)

    async def _meet(self, row: InboxRow, control: TurnControl, entry: Entry) -> None:
        """Tell a stranger how to be let in, or what else there is to say; no turn of the agent."""
        control.is_decided = True
        async with self._services.entrance.pairing.lock:
            meeting = await self._services.entrance.pairing.meet(row.message, entry, row.turn_id)
            end = self._end(row, replies=() if meeting.text is None else (meeting.text,), kind=meeting.kind)
            replies = (*end.replies, *meeting.notices)
            await self._commit(replace(end, replies=replies, people=meeting.change))

    async def _run(self, row: InboxRow, control: TurnControl, entry: Entry, user_id: str, key: str) -> float | None:
        role = entry.role
        turn = await self._opened(row, role, user_id, key)
        if isinstance(turn, str) or control.is_stop_requested:
            await self._say(row, control, turn if isinstance(turn, str) else STOPPED_EARLY)
            return None
        asked = await read_message(row.message, self._services.adapter(row.message.conversation.channel))
        problem = problem_of(asked.text, self._settings.max_message_chars)
        if problem is not None or control.is_stop_requested:
            await self._say(row, control, problem or STOPPED_EARLY)
            return None
        command = parse_command(row.message)
        if command is None:
            return await self._answer(turn, control, asked, supersedes=None)
        call = CommandCall(
            arguments=command.arguments,
            message=row.message,
            turn_id=row.turn_id,
            account=entry.account,
            user_id=user_id,
            role=role,
            session=turn.session,
            personality=turn.personality,
            had_effect=control.had_effect,
        )
        control.is_decided = command.name != "retry"
        async with self._deciding(command.name):
            result = await self._services.commands.run(command.name, call)
            last = await self._last_question(turn) if result.ask_again else None
            if last is None:
                control.is_decided = True
                await self._commit_command(turn, result)
                return None
        again = Asked(text=last.text, sources=(EARLIER,) if last.is_tainted else ())
        return await self._answer(turn, control, again, supersedes=last.turn_id)

    async def _last_question(self, turn: OpenTurn) -> SessionMessage | None:
        return await self._services.history.last_question(turn.session, await self._services.people.ids(turn.user_id))

    def _deciding(self, command: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Nobody else is let in or asks to be, from a decision about it to the commit."""
        return self._services.entrance.pairing.lock if command == PAIR else contextlib.nullcontext()

    async def _opened(self, row: InboxRow, role: Role, user_id: str, key: str) -> OpenTurn | str:
        """The session and who answers in it; a text for the person where nobody can."""
        session = await self._services.sessions.active_session(key)
        if session is None:
            wanted = self._settings.personality_of_channel(row.message.conversation.channel)
            session = new_session(
                row.message,
                key=key,
                user_id=user_id,
                personality_id=wanted or self._settings.default_personality,
            )
        try:
            personality = self._services.personalities.get(session.personality_id)
        except PersonalityError as error:
            command = parse_command(row.message)
            if command is None or command.name not in ("personality", "help"):
                return f"Nobody can answer here: {error}. Choose another with `/personality name`."
            personality = self._services.personalities.get(self._settings.default_personality)
        return OpenTurn(row=row, user_id=user_id, session=session, personality=personality, role=role)

    # ---- the agent -------------------------------------------------------------------------------------------------

    async def _answer(
        self, turn: OpenTurn, control: TurnControl, asked: Asked, *, supersedes: str | None
    ) -> float | None:
        """Let the agent answer what was asked, and commit."""
        services, row = self._services, turn.row
        state = AgentState.load(await services.store.load_steps(row.turn_id) if row.has_steps else None)
        adapter = services.adapter(turn.message.conversation.channel)
        preview = Preview(adapter, reply_to(row, "", "reply"), lambda: state.text, services.caught_up)
        work = await self._work(turn, state, preview, asked, supersedes)
        try:
            async with preview:
                ending = STOPPED if control.is_stop_requested else await self._interruptible(work, state, control)
        except ModelUnavailable as error:
            await preview.withdraw()
            return await self._park(turn, error)
        except ModelRefused as error:
            await self._commit(self._end(row, replies=(f"The model does not answer this: {error}",)))
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
        recalled = await services.recall.before_turn(turn.scope, question) if services.recall is not None else ()
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
                memory=None if memory is None else services.render_memory(memory, question),
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
            reason = f"expired after {self._settings.parked_expire_after_h:g} hours: {error}"
            _log.error("parked_expired", turn_id=row.turn_id, reason=reason)
            await self._commit(self._end(row, replies=(text,), kind="expired", end="dead", error=reason))
            return None
        model = self._services.model(turn.personality.model).name
        waits_for, again_s = parking.park(row.message.conversation, model, error)
        again_s = min(again_s, max(left_s, SOONEST_EXPIRY_S))
        _log.warning("turn_parked", turn_id=row.turn_id, reason=str(error), again_s=again_s)
        notice = parking.notice(row, waits_for, error)
        parked = self._end(row, replies=() if notice is None else (notice,), kind="parked", end="parked")
        await self._commit(replace(parked, again_after_s=again_s, waits_for=waits_for, error=str(error)))
        return await parking.told(row.message.conversation, waits_for, error, again_s)

    # ---- the commit ------------------------------------------------------------------------------------------------

    async def _commit_answer(
        self, turn: OpenTurn, state: AgentState, *, asked: Asked, ending: str | None, supersedes: str | None
    ) -> None:
        memory = await turn.settle_memory(state, asked, self._services.proposals)
        text = "\n\n".join(part for part in (state.text, ending) if part) or "Done."
        session = turn.session_after(asked, memory)
        commit = replace(
            self._end(turn.row),
            replies=(reply_to(turn.row, text + memory.notice, "reply", memory.choices),),
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
        )
        await self._commit(commit)
        if self._services.recall is not None:
            self._services.recall.after_turn(turn.scope, state.text)
        if supersedes is not None:
            self._services.history.forget(session.id)
        if memory.applied:
            await self._services.memory.apply(turn.scope, memory.applied)
        self._services.history.answered(session, turn.personality.model)

    async def _say(self, row: InboxRow, control: TurnControl, text: str | None) -> None:
        """End the turn with a word of our own, or without one."""
        control.is_decided = True
        await self._commit(self._end(row, replies=() if text is None else (text,)))

    async def _commit_command(self, turn: OpenTurn, result: CommandResult) -> None:
        reply = replace(reply_to(turn.row, result.text, "reply", result.actions), attachments=result.attachments)
        commit = replace(self._end(turn.row), session=result.session, people=result.people)
        await self._commit(replace(commit, replies=(reply, *result.notices)))
        for conversation in result.woken:
            self._services.reopened(conversation)
        if result.then is not None:
            result.then()

    def _end(
        self,
        row: InboxRow,
        *,
        replies: Sequence[str] = (),
        kind: str = "reply",
        end: InboxEnd = "done",
        error: str | None = None,
    ) -> TurnCommit:
        return TurnCommit(
            inbox_seq=row.seq,
            owner=self._owner,
            turn_id=row.turn_id,
            end=end,
            error=error,
            replies=tuple(reply_to(row, text, kind) for text in replies),
        )

    async def _commit(self, commit: TurnCommit) -> None:
        reach("turn.committing")
        with span("turn.commit", end=commit.end):
            await self._services.store.commit_turn(commit)
        reach("turn.committed")
        if commit.people is not None:
            self._services.entrance.people.changed()
        _log.debug("turn_committed", end=commit.end, replies=len(commit.replies))
        for reply in commit.replies:
            self._services.woken(reply.conversation)
