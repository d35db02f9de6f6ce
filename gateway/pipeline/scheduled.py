"""A turn that nobody waits for: what it says, and what becomes of its schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gateway.agent.model import ChatMessage
from gateway.agent.prompt import estimated_tokens
from gateway.agent.state import AgentState
from gateway.domain.provenance import as_data, own_words
from gateway.domain.visible import as_name
from gateway.errors import BudgetExhausted, ModelUnavailable
from gateway.memory.prompt_section import HEADINGS_CHARS, render_memory
from gateway.messages import InboundMessage
from gateway.pipeline import commands
from gateway.pipeline.attachments import Question
from gateway.pipeline.commit import TurnCommit
from gateway.pipeline.reading import Unread
from gateway.protocols import MemoryContext
from gateway.schedules.firing import OccurrenceEnd
from gateway.schedules.heartbeat import CONTEXT_TOKENS
from gateway.schedules.missed import due_words, is_on_time
from gateway.schedules.rule import Called, Once, next_after
from gateway.schedules.schedule import OF_SCHEDULING, PLANNED_AFTER_READING, REPORT, Occurrence, Schedule
from gateway.tools.contract import DELEGATE
from gateway.tools.toolbox import BYTES_PER_TOKEN, Toolbox

STOPPED = OccurrenceEnd(outcome="skipped", note="stopped by a person")
_DO = (
    "## What this is\n\nThe last message was due at this time; the person wrote it earlier, and is not there now. Do "
    "what it says, and answer with what came of it. It is no wish for a reminder: its time is now."
)
_CALLED = (
    "## What this is\n\nA service has called. The last message is what the person wrote down for that; behind it "
    "stands, as data, what the service sent. The person is not there now. Do what the message says with it, and answer "
    "with what came of it."
)
_LOOK = (
    "## What this is\n\nYou look around by yourself, from time to time; nobody has written. The last message is what "
    "the owner wants you to look at. Look with your tools; you see nothing of earlier messages here."
)
_QUIET = (
    "Nothing that you write is sent. If, and only if, there is something that the person should hear of, "
    f"call `{REPORT}` with it; else end without a word."
)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What a turn does for a schedule.

    Attributes:
        message: the text of what stands in the configuration as it was then, and what a service sent that called.
        began_at: when this try of it began.
    """

    schedule: Schedule
    occurrence: Occurrence
    message: InboundMessage
    began_at: datetime

    @property
    def is_watch(self) -> bool:
        """It is silent unless it reports something."""
        return self.schedule.mode == "watch"

    @property
    def question(self) -> Question:
        """Its text as the person's words, with whatever stood in front of the turn that made it."""
        text = self.message.text if self.schedule.is_configured else self.schedule.text
        sent = [as_data(each.origin, text=each.text) for each in self.message.quotes]
        sources = (*self.schedule.sources, *(each.origin for each in self.message.quotes))
        return Question(text="\n".join([text, *sent]), sources=sources)

    @property
    def own_words(self) -> Sequence[str]:
        """The text where it is the person's alone; else others may have worded it."""
        return () if self.schedule.sources else [own_words(self.schedule.text)]

    @property
    def prompt(self) -> str:
        """What the model is told of such a turn."""
        what = _CALLED if isinstance(self.schedule.rule, Called) else _LOOK if self.schedule.is_heartbeat else _DO
        return f"{what}\n\n{_QUIET}" if self.is_watch else what

    def small_prompt(self, prompt: str, memory: MemoryContext | Unread | None, toolbox: Toolbox) -> str:
        """That of a heartbeat: of what is remembered there is as much as the small context has room for."""
        whole = f"{prompt}\n\n{self.prompt}"
        if memory is None or memory == "unread":
            return whole
        used = estimated_tokens(whole) + estimated_tokens(self.question.text)
        left = CONTEXT_TOKENS - used - sum(tool.spec.size_bytes for tool in toolbox.tools) // BYTES_PER_TOKEN
        for chars in (left * 4, left):  # of ASCII four are a token, of most others one
            section = render_memory(memory, chars) if chars > HEADINGS_CHARS else None
            if section is None or estimated_tokens(section) <= left:
                return whole if section is None else f"{prompt}\n\n{section}\n\n{self.prompt}"
        return whole

    def toolbox(self, allowed: Toolbox) -> Toolbox:
        """None that plans something; and where the turn is silent else, the one by which it says something."""
        chosen = [tool for tool in allowed.tools if tool.name not in OF_SCHEDULING]
        if self.schedule.is_heartbeat:
            chosen = [tool for tool in chosen if tool.effect == "read" and tool.name != DELEGATE]
        if self.is_watch:
            from gateway.schedules.tools import REPORT_TOOL  # noqa: PLC0415 (only a watch needs it)

            chosen = sorted([*chosen, REPORT_TOOL], key=lambda tool: tool.name)
        return Toolbox(chosen)

    def asks_for_h(self, longest_h: float) -> float:
        """How long a question of it waits: until it is due again, at most."""
        rule, next_at = self.schedule.rule, self.schedule.next_at
        if next_at is not None and next_at <= self.began_at:  # it has waited itself, and the clock comes to it soon
            next_at = next_after(rule, self.schedule.zone, self.began_at)
        if next_at is None or isinstance(rule, Once):
            return longest_h
        return min(longest_h, (next_at - self.began_at).total_seconds() / 3600)

    # ---- what is said -----------------------------------------------------------------------------------------------

    @property
    def late(self) -> str:
        """What stands below what comes late; empty for what is on time, and for what a person has run."""
        due_at = self.occurrence.due_at
        if self.occurrence.is_by_hand or is_on_time(due_at, self.began_at):
            return ""
        what = "This was called" if isinstance(self.schedule.rule, Called) else "This was due"
        return f"\n\n_{what} {due_words(due_at, self.began_at, self.schedule.zone)}._"

    @property
    def done(self) -> str:
        """What is said of a turn that ended without a word."""
        return f"Done: {as_name(self.schedule.text)}"

    def reported(self, state: AgentState) -> str:
        """What a watch says; empty where it has nothing to say."""
        has_more = bool(state.asks or state.uncertain or state.choosing or state.files)
        return "\n\n".join(state.reports) or (f"About {as_name(self.schedule.text)}:" if has_more else "")

    def kept_question(self, asked: Question) -> Question:
        """What its session keeps of it: words that others may have chosen are not the person's in later turns."""
        if not self.schedule.sources:
            return asked
        return replace(asked, text=f"This was due:\n{as_data(PLANNED_AFTER_READING, text=self.schedule.text)}")

    def kept(self, state: AgentState, text: str) -> AgentState:
        """What its session keeps: of a watch what its person was told, and not how it was found."""
        return AgentState(messages=[ChatMessage(role="assistant", text=text)]) if self.is_watch else state

    def waits(self, error: ModelUnavailable) -> str:
        """What its person is told while there is no model for it."""
        why = "a budget of today is used up" if isinstance(error, BudgetExhausted) else "I cannot reach my model"
        return (
            f"{self._what} and waits, because {why}. I will do it as soon as I can. "
            "`/stop` drops it, `/retry` tries at once."
        )

    def expired(self, after_h: float) -> str:
        """What its person is told when it has waited too long."""
        return f"{self._what} and was not done: what I need for it was not to be had within {after_h:g} hours."

    @property
    def _what(self) -> str:
        when = due_words(self.occurrence.due_at, self.began_at, self.schedule.zone)
        return f"{as_name(self.schedule.text)} was due {when}"

    @property
    def gave_up(self) -> str:
        """What its person is told when it failed again and again; empty for a watch, which is counted only."""
        if self.is_watch:
            return ""
        return (
            f"{self._what}. Something went wrong here, again and again, so it was not done. It is kept for the "
            "owner of this gateway to look at."
        )

    # ---- what came of it --------------------------------------------------------------------------------------------

    def committed(self, commit: TurnCommit, state: AgentState, ending: str | None) -> TurnCommit:
        """The commit of its answer with what came of it. A watch with nothing to say leaves nothing in the session.

        Args:
            ending: why it was broken off.
        """
        answer, *others = commit.replies
        is_silent = self.is_watch and answer.is_empty
        if is_silent:
            commit = replace(commit, replies=tuple(others), session=None, messages=())
        ingest = None if self.is_watch else commit.ingest
        return replace(commit, ingest=ingest, occurrence=self._end(state, ending, is_silent=is_silent))

    def _end(self, state: AgentState, ending: str | None, *, is_silent: bool) -> OccurrenceEnd:
        if ending == commands.STOPPED:
            return STOPPED
        if ending is not None:
            return OccurrenceEnd(outcome="failed", note=ending)
        waits = "; ".join(f"number {one.id} waits for a yes" for one in state.asks)
        return OccurrenceEnd(outcome="silent" if is_silent else "done", note=waits or self.late.strip().strip("_."))

    def without_model(self, error: ModelUnavailable) -> OccurrenceEnd:
        """For a watch: what it would have seen later is no news any more."""
        return OccurrenceEnd(outcome="skipped", note=f"there was no model for it: {error}")
