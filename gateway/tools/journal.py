"""What is kept of each call: who made it, what it was to do, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from gateway.tools.contract import Effect, Outcome

MAX_ARGUMENTS_CHARS = 20_000

CallState = Literal["begun", "waiting", "done", "failed", "refused", "uncertain"]
"""`waiting`: for a person's yes or answer; the call that is made after it is another row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """Which call it is: of which turn, and by the model's own id."""

    turn_id: str
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One call of a tool.

    Attributes:
        user_id: on whose behalf.
        arguments: JSON text as the model wrote it.
        ended_at: None while it runs, and where nobody knows what became of it.
        approval_id: of the yes that it was made by, or that it waits for.
    """

    key: CallKey
    user_id: str
    personality_id: str
    session_id: str
    tool: str
    effect: Effect
    arguments: str
    state: CallState
    began_at: datetime
    ended_at: datetime | None = None
    approval_id: int | None = None

    @property
    def took_s(self) -> float | None:
        """From its beginning to its end."""
        return None if self.ended_at is None else (self.ended_at - self.began_at).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCall:
    """What the journal has of a call: that it was begun, and what it came to; None: it was interrupted.

    Attributes:
        sources: whose words of others are in the result, as in `Called`.
    """

    outcome: Outcome | None
    result: str | None
    sources: tuple[str, ...] = ()


class ToolJournal(Protocol):
    """The journal of what acts. Each method may raise StoreUnavailable."""

    async def begin_call(self, row: CallRow) -> bool:
        """Note, durably, that a tool is about to act; its approval, if it has one, is begun with the same commit.

        Returns:
            False: that approval is not granted (any more), or the call was begun already, such as by a worker that has
                lost the turn without knowing. It may not be made.

        Raises:
            ClaimLost: the turn has ended elsewhere.
        """

    async def end_call(self, key: CallKey, outcome: Outcome, result: str, sources: Sequence[str] = ()) -> None:
        """Note, durably, what it came to; of one that waits for an answer, `result` is what it wants to know."""

    async def kept_call(self, key: CallKey) -> KeptCall | None:
        """What is known of it; None: it was not begun."""


class ToolLog(Protocol):
    """All calls, for people."""

    async def calls(
        self, *, user_ids: Collection[str] | None = None, before: int | None = None, limit: int = 50
    ) -> Sequence[tuple[int, CallRow]]:
        """The latest first, each with its number.

        Args:
            user_ids: on whose behalf; None for all.
            before: a number.
        """
