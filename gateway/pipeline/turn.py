"""A turn: one message in; who wrote it, what it asks for, and who answers it.

`Turn` itself, and what all turns work with, stands in `open_turn.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

from gateway.agent.state import AgentState
from gateway.approvals.approval import Approval
from gateway.domain.codes import without_codes
from gateway.domain.command_text import parse_command
from gateway.domain.heard import Heard
from gateway.domain.provenance import EARLIER
from gateway.domain.sessions import SessionMessage, conversation_key, new_session, session_key
from gateway.domain.visible import as_name
from gateway.errors import PersonalityError
from gateway.messages import ConversationRef
from gateway.people.access import Entry
from gateway.people.access_records import ClaimOwner
from gateway.pipeline.answer import Answering
from gateway.pipeline.attachments import Keeper, Question, has_pictures, read_message
from gateway.pipeline.commands import CHOOSE, PAIR, CommandCall, CommandResult, stopped
from gateway.pipeline.commit import Committer, reply_to
from gateway.pipeline.open_turn import Turn, TurnDependencies, TurnSettings
from gateway.pipeline.queues import InboxRow
from gateway.pipeline.reading import Ahead, Reading
from gateway.pipeline.recordings import heard_in, recordings_in
from gateway.pipeline.scheduled import STOPPED, Scheduled
from gateway.pipeline.server_questions import Answered, AskedOn, question_buttons, question_text, taken
from gateway.pipeline.turn_control import TurnControl
from gateway.protocols import ChannelAdapter
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import note, stage, waited
from gateway.schedules.firing import OccurrenceEnd
from gateway.tools.forms import OpenQuestion

# Pictures stay in memory until their turn is over, up to 40 MB of them.
TURNS_WITH_PICTURES = 16
# Recordings stay in memory while they are heard, each up to 25 MB.
TURNS_LISTENING = 8
# Files are in memory while they are kept and read, each up to 25 MB.
TURNS_FETCHING = 8
ENDING = frozenset({"new", "stop"})
"""Commands after which the question of a server is not open any more."""
SAID_YES = "(The person said yes. The call is made now, exactly as it was shown.)"


class TurnRunner:
    """Runs turns from a claimed message to the commit, for the dispatcher."""

    def __init__(self, parts: TurnDependencies, settings: TurnSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._committer = Committer(
            parts.store,
            parts.channels,
            parts.outbox,
            parts.admission.people,
            has_more=parts.dispatcher.look,
            has_failed=parts.clock.wake,
        )
        self._reading = Reading(
            parts.sessions,
            parts.personalities,
            parts.memory,
            parts.history,
            parts.memory_section,
            asks_ahead=parts.asks_ahead,
        )
        self._answering = Answering(parts, settings, self._committer, self._reading)
        self._session_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._with_pictures = asyncio.Semaphore(TURNS_WITH_PICTURES)
        self._listening = asyncio.Semaphore(TURNS_LISTENING)
        self._fetching = asyncio.Semaphore(TURNS_FETCHING)

    def renewed(self, settings: TurnSettings) -> TurnRunner:
        """One with other settings; turns of both wait for one another as turns of one do."""
        other = TurnRunner(self._parts, settings)
        other._session_locks, other._with_pictures = self._session_locks, self._with_pictures
        other._listening, other._fetching = self._listening, self._fetching
        return other

    async def run(self, row: InboxRow, control: TurnControl) -> float | None:
        """Answer the message and commit; seconds until it is to be tried again when it was parked, else None."""
        if row.attempts == 1 and not row.is_told:  # not what it has waited for since
            waited("inbox.wait", row.turn_id, row.accepted_at, channel=row.message.conversation.channel)
        with stage("turn", row.turn_id, row.message.conversation, attempt=row.attempts):
            question = await self._open_question(row)
            # What may be an answer for a server is no question to the memory.
            asked = row.message if question is None else replace(row.message, text="")
            with self._reading.begin(asked, row.turn_id, self._settings.session_scope) as ahead:
                again_s = await self._admit(row, control, ahead, question)
            note(outcome="done" if again_s is None else "parked")
        if again_s is None:
            self._parts.parking.ended(row.message.conversation)
        return again_s

    async def _open_question(self, row: InboxRow) -> OpenQuestion | None:
        """What a server asks in this direct chat; None where nothing is open."""
        questions = self._parts.questions()
        if questions is None or not row.message.is_direct or row.schedule_id is not None:
            return None
        question = await questions.question(row.lane)
        return None if question is None or row.accepted_at >= question.expires_at else question

    async def _admit(
        self, row: InboxRow, control: TurnControl, ahead: Ahead, question: OpenQuestion | None
    ) -> float | None:
        parts = self._parts
        is_due = row.schedule_id is not None  # its text is no command
        entry = await parts.admission.access.entry(replace(row.message, text="") if is_due else row.message)
        note(access=entry.verdict)
        scheduled = await self._scheduled(row, control, entry) if is_due else None
        if is_due and scheduled is None:
            return None
        if entry.verdict != "answer":
            await self._answer_unadmitted(row, control, entry)
            return None
        async with (
            parts.presence.turn(entry.account, row.message.conversation, control.stop) as has_waited,
            parts.people.present(entry.account, row.message.sender.display_name, entry.user_id) as user_id,
        ):
            key = session_key(row.message, user_id, self._settings.session_scope)
            lock = self._session_locks.setdefault(key, asyncio.Lock())
            pictures = self._with_pictures if has_pictures(row.message) else contextlib.nullcontext()
            if has_waited or lock.locked() or (has_pictures(row.message) and self._with_pictures.locked()):
                ahead.forget()
            # One session can be met in two conversations, with the scope `user`.
            is_met = key != conversation_key(row.message.conversation)
            held = self._parts.held_sessions.held(key) if is_met else contextlib.nullcontext()
            async with lock, held, pictures:
                turn = await self._open(row, entry, user_id, key, ahead, scheduled=scheduled)
                if question is not None and isinstance(turn, Turn):
                    turn = replace(turn, open_question=question)
                return await self._run(row, control, entry, turn)

    async def _scheduled(self, row: InboxRow, control: TurnControl, entry: Entry) -> Scheduled | None:
        """What a turn does that nobody began; None where that may not be done any more, and so the turn has ended."""
        parts = self._parts
        found = await parts.schedules.occurrence(row.turn_id)
        if found is None:
            control.is_decided = True
            await self._committer.commit(self._committer.end(row))
            return None
        schedule, occurrence = found
        await parts.standing.refresh()
        obstacle = await parts.standing.of_person(schedule, entry) or parts.standing.of_personality(schedule)
        if obstacle is None:
            now = parts.clock.now()
            return Scheduled(schedule=schedule, occurrence=occurrence, message=row.message, began_at=now)
        control.is_decided = True
        end = OccurrenceEnd(outcome="failed", note=obstacle.why, pauses=obstacle.why, tell=obstacle.tell)
        await self._committer.commit(replace(self._committer.end(row), occurrence=end))
        return None

    async def dead_letter(self, row: InboxRow, reason: str) -> None:
        """Commit the message as a dead letter and tell the person."""
        with stage("turn.dead_letter", row.turn_id, row.message.conversation):
            found = None if row.schedule_id is None else await self._parts.schedules.occurrence(row.turn_id)
            is_answer = await self._open_question(row) is not None
            text = dead_letter_notice("" if is_answer else without_codes(row.message))
            if row.schedule_id is not None:
                now = self._parts.clock.now()
                text = "" if found is None else Scheduled(*found, message=row.message, began_at=now).gave_up
            dead = self._committer.end(row, replies=(text,) if text else (), kind="dead", end="dead", error=reason)
            await self._committer.commit(replace(dead, secret=row.message if is_answer else None))
        self._parts.parking.ended(row.message.conversation)

    async def _answer_unadmitted(self, row: InboxRow, control: TurnControl, entry: Entry) -> None:
        """Tell a stranger how to be let in, or what else there is to say; no turn of the agent."""
        control.is_decided = True
        async with self._parts.admission.pairing.lock:
            meeting = await self._parts.admission.handle_unadmitted(row.message, entry, row.turn_id)
            texts = () if meeting.text is None else (meeting.text,)
            end = self._committer.end(row, replies=texts, kind=meeting.kind, codes=meeting.codes)
            replies = (*end.replies, *self._committer.notices(meeting.notices))
            await self._committer.commit(replace(end, replies=replies, people=meeting.change))
        if isinstance(meeting.change, ClaimOwner):
            await self._parts.admission.claimed(row.message, entry.account)

    async def _run(self, row: InboxRow, control: TurnControl, entry: Entry, turn: Turn | str) -> float | None:
        if not isinstance(turn, str) and row.approval_id is not None:
            turn = await self._approved(turn, row.approval_id)
        if isinstance(turn, str) or control.is_stop_requested:
            await self._end_with_text(row, control, turn if isinstance(turn, str) else stopped(row.message))
            return None
        if turn.scheduled is not None:
            return await self._answering.answer(turn, control, turn.scheduled.question, supersedes=None)
        if turn.approved is not None:
            return await self._answering.answer(turn, control, Question(text=SAID_YES), supersedes=None)
        for_server = await self._for_server(turn)
        if for_server is not None:
            return await self._pass_on(turn, control, for_server)
        return await self._read(turn, control, entry)

    async def _read(self, turn: Turn, control: TurnControl, entry: Entry) -> float | None:
        """Do what the message says: a command, or a question to the agent."""
        parts, row = self._parts, turn.row
        channel = parts.channels.if_up(row.message.conversation.channel)
        command = parse_command(row.message)
        keeper = turn.keeper(parts.workspaces)
        heard: Sequence[Heard] = ()
        question = Question(text="")
        has_files = len(recordings_in(row.message)) < len(row.message.attachments)
        with control.interruptible():
            if command is None and recordings_in(row.message):
                turn, heard = await self._heard(turn, channel, keeper)
            async with self._fetching if has_files else contextlib.nullcontext():
                question = await read_message(row.message, channel, parts.documents, heard=heard, keeper=keeper)
        problem = refusal_of(question.text, self._settings.max_message_chars)
        if problem is not None or control.is_stop_requested:
            await self._end_with_text(row, control, problem or stopped(row.message))
            return None
        if command is None:
            return await self._answering.answer(turn, control, question, supersedes=None)
        call = CommandCall(
            arguments=command.arguments,
            message=row.message,
            turn_id=row.turn_id,
            account=entry.account,
            user_id=turn.user_id,
            role=entry.role,
            session=turn.session,
            personality=turn.personality,
            is_proved=turn.is_proved,
            had_effect=control.had_effect,
        )
        control.is_decided = command.name not in ("retry", CHOOSE)
        # No other request to be let in is handled between a decision about one and its commit.
        async with parts.admission.pairing.lock if command.name == PAIR else contextlib.nullcontext():
            result = await parts.commands.run(command.name, call)
            again = await self._asked_by(turn, result)
            if again is None:
                control.is_decided = True
                await self._commit_command(turn, result, ends_question=command.name in ENDING)
                return None
        question, supersedes = again
        return await self._answering.answer(turn, control, question, supersedes=supersedes)

    async def _heard(
        self, turn: Turn, channel: ChannelAdapter | None, keeper: Keeper | None
    ) -> tuple[Turn, Sequence[Heard]]:
        """What the person has recorded. It is kept with the steps of the turn, so that it is not paid for twice."""
        parts, row = self._parts, turn.row
        state = AgentState.load(await parts.store.load_steps(row.turn_id) if row.has_steps else None)
        if state.heard and (state.messages or not any(one.is_passing for one in state.heard)):
            return turn, state.heard
        async with self._listening:
            hear = parts.hearing
            asked = None if hear is None else partial(hear, spender=turn.spender)
            state.heard = await heard_in(row.message, channel, asked, keeper, state.heard)
        if hear is not None:
            await parts.store.save_steps(row.turn_id, state.dump(), is_durable=True)
            reach("speech.heard")
            turn = replace(turn, row=replace(row, has_steps=True))
        return turn, state.heard

    async def _asked_by(self, turn: Turn, result: CommandResult) -> tuple[Question, str | None] | None:
        """What the agent is to answer after a command, and the turn whose answer gives way to it; None: nothing."""
        if result.chosen is not None:
            chosen = await self._parts.history.chosen(turn.session, *result.chosen)
            return None if chosen is None else (chosen, None)
        last = await self._last_question(turn) if result.ask_again else None
        if last is None:
            return None
        return Question(text=last.text, sources=(EARLIER,) if last.is_tainted else ()), last.turn_id

    async def _for_server(self, turn: Turn) -> Answered | AskedOn | None:
        """What the message is to the question of a server that is open here; None: it is no answer to any."""
        question = turn.open_question
        if question is None:
            return None
        is_theirs = question.user_id in (turn.user_id, *await self._parts.people.ids(turn.user_id))
        return taken(question, turn.row) if is_theirs and turn.is_proved else None

    async def _pass_on(self, turn: Turn, control: TurnControl, answer: Answered | AskedOn) -> float | None:
        """Make the call again with the answer, or ask on; seconds until it is tried again when it was parked."""
        if isinstance(answer, AskedOn):
            control.is_decided = True
            question = answer.question
            text = "\n\n".join(filter(None, [answer.text, question_text(question)]))
            reply = reply_to(turn.row, self._committer.in_form(text, turn.message), "reply", question_buttons(question))
            end = replace(self._committer.end(turn.row), replies=(reply,), asks=question, secret=turn.message)
            await self._committer.commit(end)
            return None
        wanted = answer.question.wanted
        tool = turn.toolbox(self._parts.toolbox()).find(wanted.tool)
        if tool is None or tool.pin != wanted.pin or turn.role == "guest":
            control.is_decided = True
            text = f"Your answer went nowhere: `{wanted.tool}` is not what it was when the server asked."
            end = self._committer.end(turn.row, replies=(text,))
            await self._committer.commit(replace(end, ends_question=True, secret=turn.message))
            return None
        turn = replace(turn, answered=answer)
        return await self._answering.answer(turn, control, Question(text=answer.said), supersedes=None)

    async def _approved(self, turn: Turn, approval_id: int) -> Turn | str:
        """The turn with the call that has its yes; a text for the person where it cannot be made any more."""
        approvals = self._parts.approvals
        approval = await approvals.approval(approval_id)
        if approval is None:
            return f"Number {approval_id} was not done: it is gone."
        was_begun = approval.state in ("begun", "done", "failed", "uncertain")  # by this turn, before it was cut off
        if was_begun or approval.state == "granted":
            turn = self._as_asked(turn, approval)
            why_not = await self._why_not(turn, approval)
            if why_not is None:
                return replace(turn, approved=approval)
            if not was_begun:
                await approvals.withdraw(approval_id)
                return f"Number {approval_id} was not done: {why_not}."
        return f"Number {approval_id} is {'uncertain' if approval.state == 'begun' else approval.state}."

    def _as_asked(self, turn: Turn, approval: Approval) -> Turn:
        """The turn as the personality of the schedule whose turn asked, whichever answers here now."""
        if approval.schedule_id is None:
            return turn
        with contextlib.suppress(PersonalityError):  # it is gone: the other one may not make the call
            return replace(turn, personality=self._parts.personalities.get(approval.personality_id))
        return turn

    async def _why_not(self, turn: Turn, approval: Approval) -> str | None:
        """Why a call that has its yes may not be made any more; None where it may."""
        tool = turn.toolbox(self._parts.toolbox()).find(approval.tool)
        ids = (turn.user_id, *await self._parts.people.ids(turn.user_id))
        is_demoted = approval.decided_by in ids and approval.approver == "owner" and turn.role != "owner"
        other = f"it was asked for by {approval.personality_id}, and {turn.personality.id} answers here now"
        reasons = (
            (approval.user_id not in ids, "it was asked for on behalf of a person whose account this is no more"),
            (turn.role == "guest", "you are a guest now"),
            (turn.personality.id != approval.personality_id, other),
            (tool is None, "there is no such tool here any more"),
            (tool is not None and tool.pin != approval.pin, "the tool has changed since"),
            (is_demoted, "you are not an owner any more"),
        )
        return next((why for is_so, why in reasons if is_so), None)

    async def _last_question(self, turn: Turn) -> SessionMessage | None:
        person = await self._parts.people.ids(turn.user_id)
        return await self._parts.history.last_question(turn.session, person)

    async def _open(
        self, row: InboxRow, entry: Entry, user_id: str, key: str, ahead: Ahead, *, scheduled: Scheduled | None
    ) -> Turn | str:
        """The session and who answers in it; a text for the person where none can."""
        session = await self._reading.session(ahead, key)
        if session is None:
            usual = self._settings.personality_of_channel(row.message.conversation.channel)
            session = new_session(
                row.message,
                key=key,
                user_id=user_id,
                personality_id=usual or self._settings.default_personality,
            )
        wanted = session.personality_id if scheduled is None else scheduled.schedule.personality_id
        try:
            personality = self._parts.personalities.get(wanted)
        except PersonalityError as error:
            command = parse_command(row.message)
            if command is None or command.name not in ("personality", "help"):
                return f"No personality can answer here: {error}. Choose another with `/personality name`."
            personality = self._parts.personalities.get(self._settings.default_personality)
        return Turn(
            row=row,
            account=entry.account,
            user_id=user_id,
            session=session,
            personality=personality,
            role=entry.role,
            ahead=ahead,
            is_proved=self._parts.channels.vouches_for(row.message),
            owner_chat=await self._owner_chat(row, entry) if scheduled is None else None,
            scheduled=scheduled,
        )

    async def _owner_chat(self, row: InboxRow, entry: Entry) -> tuple[str, ConversationRef] | None:
        """The direct chat in which an owner is to be asked from now on; None where it stays the same."""
        chat = (entry.account, row.message.conversation)
        is_theirs = entry.role == "owner" and row.message.is_direct
        return chat if is_theirs and await self._parts.admission.people.has_moved(*chat) else None

    async def _end_with_text(self, row: InboxRow, control: TurnControl, text: str) -> None:
        """End the turn with a word of our own."""
        control.is_decided = True
        end = self._committer.end(row, replies=(text,))
        if row.schedule_id is not None and control.is_stop_requested:
            end = replace(end, replies=(), occurrence=STOPPED)
        await self._committer.commit(replace(end, is_stopped=control.is_stop_requested))

    async def _commit_command(self, turn: Turn, result: CommandResult, *, ends_question: bool) -> None:
        text = self._committer.in_form(result.text, turn.message)
        reply = replace(reply_to(turn.row, text, "reply", result.actions, result.codes), attachments=result.attachments)
        commit = replace(
            self._committer.end(turn.row),
            ends_question=ends_question,
            session=result.session,
            messages=result.messages,
            answered=(turn.account, turn.user_id) if result.messages else None,
            people=result.people,
            owner_chat=turn.owner_chat,
            replies=(reply, *self._committer.notices(result.notices)),
        )
        await self._committer.commit(commit)
        if result.woken:
            self._parts.dispatcher.look()
        if result.then is not None:
            result.then()


def dead_letter_notice(text: str) -> str:
    """What the person is told of a message that failed again and again."""
    beginning = f" {as_name(text)}" if text.strip() else ""  # since not every platform shows which one is answered
    return (
        f"Something went wrong here, again and again, while I tried to answer your message{beginning}. "
        "It is kept for the owner of this gateway to look at. Please go on with another one."
    )


def refusal_of(asked: str, limit_chars: int) -> str | None:
    """Why the message cannot be answered, for its writer; None where it can."""
    if not asked:
        return "Your message came without any text."
    if len(asked) > limit_chars:
        return (
            f"Your message has {len(asked)} characters; I read at most {limit_chars}. "
            "Please send the part that matters."
        )
    return None
