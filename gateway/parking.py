"""Parking: when no model can be reached, messages wait, in order, and are answered when it is back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.backoff import delay_s
from gateway.errors import ModelUnavailable
from gateway.messages import ConversationRef, InboundMessage

FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 60.0


class Parking:
    """Knows which conversations wait for which model, and how long it has been silent."""

    def __init__(
        self, expedite: Callable[[ConversationRef], Awaitable[None]], is_operator: Callable[[InboundMessage], bool]
    ) -> None:
        """Nothing waits at first.

        Args:
            expedite: lets what waits in a conversation be tried at once.
            is_operator: whether the writer runs this gateway, and may be told the reason.
        """
        self._expedite = expedite
        self._is_operator = is_operator
        self._failures: dict[str, int] = {}
        self._parked: dict[str, dict[ConversationRef, None]] = {}

    @property
    def parked(self) -> int:
        """Conversations that wait for a model."""
        return sum(len(conversations) for conversations in self._parked.values())

    def park(self, conversation: ConversationRef, model: str, error: ModelUnavailable) -> float:
        """Note that the model failed the conversation; seconds until it is to be tried again."""
        self._failures[model] = failures = self._failures.get(model, 0) + 1
        self._parked.setdefault(model, {})[conversation] = None
        after_s = delay_s(failures, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)
        return max(after_s, error.retry_after_s or 0.0)

    async def answered(self, conversation: ConversationRef, model: str) -> None:
        """The model answers: whoever waits for it is tried at once, the longest wait first."""
        self._failures.pop(model, None)
        waiting = self._parked.pop(model, None)
        for other in waiting or ():
            if other != conversation:
                await self._expedite(other)

    def notice(self, message: InboundMessage, error: ModelUnavailable) -> str:
        """What the person is told, once; the reason only to the one who can mend it."""
        text = (
            "I cannot reach my model right now. Your message is kept, and I will answer it as soon as the model is "
            "back. `/stop` drops it, `/retry` tries at once."
        )
        return f"{text}\n\nThe reason, for you who runs this gateway: {error}" if self._is_operator(message) else text
