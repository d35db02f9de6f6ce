"""Parking: no model, or no budget left: messages wait, in order, and are answered when there is one again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

import structlog

from gateway.errors import BudgetExhausted, ModelUnavailable, StoreError
from gateway.messages import ConversationRef
from gateway.people.operators import Operators
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.queues import InboxRow, Parked
from gateway.runtime.backoff import delay_s

FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 60.0
# Conversations that are expedited together.
AT_ONCE = 256
_BUDGET = "budget"

_log = structlog.get_logger(__name__)
_SECONDS_PER_HOUR = 3600
_SECONDS_PER_DAY = 86_400


class Parking:
    """Knows which conversations wait for what, who was told so, and how long a model has been silent.

    What is waited for is `model NAME` or `budget SCOPE`, and is stored with the message, so that it is known
    after a restart.
    """

    def __init__(self, dispatcher: Dispatcher, operators: Operators) -> None:
        self._dispatcher = dispatcher
        self._operators = operators
        self._failures: dict[str, int] = {}
        self._parked: dict[str, dict[ConversationRef, None]] = {}
        self._told: dict[str, dict[ConversationRef, float]] = {}  # until when; see `announced`
        self._budgets_changed_s = 0.0
        self.everybody: Callable[[], Awaitable[Sequence[Parked]]] | None = None
        """Where there are other workers: all that is parked, by whichever of them."""
        self.on_wait: Callable[[str], None] = lambda _waits_for: None
        self.on_answer: Callable[[str], None] = lambda _waits_for: None
        """Told of the first that waits for something, and when it is there, so that other workers know."""

    @property
    def parked(self) -> int:
        """Conversations that wait for a model or for a budget."""
        return sum(len(conversations) for conversations in self._parked.values())

    async def recover(self, parked: Sequence[Parked]) -> None:
        """Take up what an earlier process left. Budgets may have been raised since, so who waits for one is tried."""
        for row in parked:
            waits_for = row.waits_for or "model"
            self._parked.setdefault(waits_for, {})[row.conversation] = None
            self._note_told(row.conversation, waits_for, _SECONDS_PER_DAY)
        await self.budgets_changed()

    def park(self, conversation: ConversationRef, model: str, error: ModelUnavailable) -> tuple[str, float]:
        """Note that the conversation has to wait; for what, and how many seconds until it is to be tried again."""
        self.ended(conversation)
        if isinstance(error, BudgetExhausted):
            waits_for, again_s = f"{_BUDGET} {error.budget}", error.retry_after_s or 0.0
            if error.denied_s < self._budgets_changed_s:
                again_s = 0.0
        else:
            waits_for = f"model {model}"
            self._failures[waits_for] = failures = self._failures.get(waits_for, 0) + 1
            after_s = delay_s(failures, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)
            again_s = max(after_s, error.retry_after_s or 0.0)
        if waits_for not in self._parked:
            self.on_wait(waits_for)
        self._parked.setdefault(waits_for, {})[conversation] = None
        return waits_for, again_s

    def others_wait(self, waits_for: str) -> None:
        """Another worker has parked something: it is to be woken when this one finds what it waits for."""
        self._parked.setdefault(waits_for, {})

    def others_are_answered(self, waits_for: str) -> None:
        """Another worker has what this waits for, and has woken all that does."""
        for known in (self._failures, self._told, self._parked):
            known.pop(waits_for, None)

    def ended(self, conversation: ConversationRef) -> None:
        """Nothing waits there any more: it was answered, stopped or given up."""
        for waits_for in [name for name, conversations in self._parked.items() if conversation in conversations]:
            del self._parked[waits_for][conversation]
            if not self._parked[waits_for]:
                del self._parked[waits_for]

    async def answered(self, conversation: ConversationRef, model: str) -> None:
        """The model answers: conversations that wait for it are tried at once, the longest wait first."""
        waits_for = f"model {model}"
        self._failures.pop(waits_for, None)
        self._told.pop(waits_for, None)
        for told in self._told.values():
            told.pop(conversation, None)
        if (own := self._parked.pop(waits_for, None)) is not None:
            self.on_answer(waits_for)
            await self._retry_all(await self._waiting(waits_for, own), but=conversation)

    async def budgets_changed(self) -> None:
        """Budgets have changed: conversations that wait for one are tried at once, the longest wait first."""
        self._budgets_changed_s = time.monotonic()
        own: dict[ConversationRef, None] = {}
        for waits_for in [name for name in self._parked if name.startswith(_BUDGET)]:
            own |= self._parked.pop(waits_for)
        await self._retry_all(await self._waiting(_BUDGET, own))

    async def _waiting(self, what: str, own: Collection[ConversationRef]) -> Collection[ConversationRef]:
        """Those that wait for what begins so, `own` among them; the longest wait first."""
        if self.everybody is None:
            return own
        try:
            parked = await self.everybody()
        except StoreError as error:
            _log.error("parked_unread", error=str(error))
            return own
        return [row.conversation for row in parked if (row.waits_for or "").startswith(what)]

    async def _retry_all(self, waiting: Collection[ConversationRef], *, but: ConversationRef | None = None) -> None:
        """At once, so that they share commits: the turn that was answered does not wait for all of them."""
        others = [conversation for conversation in waiting if conversation != but]
        for start in range(0, len(others), AT_ONCE):
            await asyncio.gather(*map(self._dispatcher.retry_now, others[start : start + AT_ONCE]))

    async def announced(
        self, conversation: ConversationRef, waits_for: str, error: ModelUnavailable, again_s: float
    ) -> float:
        """The message waits, and the person knows; seconds until it is to be tried again.

        That is at once where what it waits for came while this was being committed. People are told again of a
        budget on a new day, of a model once it had answered.
        """
        left_s = error.day_turns_in_s if isinstance(error, BudgetExhausted) else math.inf
        self._note_told(conversation, waits_for, left_s)
        if conversation in self._parked.get(waits_for, ()):
            return again_s
        await self._dispatcher.retry_now(conversation)
        return 0.0

    def _note_told(self, conversation: ConversationRef, waits_for: str, for_s: float) -> None:
        now_s = time.monotonic()
        told = self._told.setdefault(waits_for, {})
        told.pop(conversation, None)
        while told and told[oldest := next(iter(told))] <= now_s:
            del told[oldest]
        told[conversation] = now_s + for_s

    # ---- what the person is told -----------------------------------------------------------------------------------

    def notice(self, row: InboxRow, waits_for: str, error: ModelUnavailable) -> str | None:
        """What the person is to be told, the reason only to operators; None where the person knows already.

        Once for each conversation and outage: `announced` says that it was committed.
        """
        if row.is_told or self._told.get(waits_for, {}).get(row.message.conversation, 0.0) > time.monotonic():
            return None
        if isinstance(error, BudgetExhausted):
            whose = {
                "user": "You have used up what you may spend here in a day.",
                "personality": "The personality that answers here has used up its budget for today.",
            }.get(error.budget, "What this gateway may spend in a day is used up.")
            text = (
                f"{whose} Your message is kept, and I will answer it when the next day begins, in "
                f"{_in_words(error.day_turns_in_s)}. `/stop` drops it, `/usage` shows what was used."
            )
        else:
            text = (
                "I cannot reach my model right now. Your message is kept, and I will answer it as soon as the model "
                "is back. `/stop` drops it, `/retry` tries at once."
            )
        is_operator = self._operators.wrote(row.message)
        return f"{text}\n\nThe reason, for you who runs this gateway: {error}" if is_operator else text


def expired(after_h: float) -> str:
    """What the person is told of a message that waited too long."""
    return (
        f"I could not answer this message within {after_h:g} hours, because what I need for it was not to be had, so "
        "I do not try any longer. Please send it again if it still matters."
    )


def _in_words(seconds: float) -> str:
    minutes = int(seconds // 60) + 1
    return f"{minutes} minutes" if seconds < _SECONDS_PER_HOUR else f"about {round(seconds / _SECONDS_PER_HOUR)} hours"
