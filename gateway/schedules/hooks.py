"""A call of a hook: what is made of it, and what its store can do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from gateway.domain.visible import without_hidden
from gateway.messages import InboundMessage, QuotedText
from gateway.schedules.firing import SCHEDULED, message_of
from gateway.schedules.schedule import Schedule

MOST_WAITING = 20
"""Calls of one hook that wait for their turns; further ones are refused until some have ended."""
MAX_SHOWN_CHARS = 40_000
"""Of what a service sent; the model is told that there was more."""
Taken = Literal["new", "known", "full", "paused"]
"""What became of a call: `known`: it was taken before; `full`: too many wait; `paused`: its schedule is not active."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A call that proved itself.

    Attributes:
        delivery: its id, the same when it is sent again.
        text: what was sent.
    """

    delivery: str
    text: str
    at: datetime

    def turn_id(self, schedule: Schedule) -> str:
        """The same for each repetition, so that no table takes it twice, whoever the hook tells by then."""
        named = f"{schedule.key}/{self.delivery}"
        return f"t_{hashlib.sha256(named.encode()).hexdigest()[:32]}"

    def message(self, schedule: Schedule, hook: str, most_chars: int) -> InboundMessage:
        """The text of the configuration as words of the person, and behind it what was sent as words of others.

        Args:
            most_chars: of a message, by `limits.max_message_chars`; what was sent gets two fifths of it.
        """
        name = f"{SCHEDULED}{schedule.id}/call/{self.delivery}"
        sent = QuotedText(origin=f"call of the hook {hook}", text=_cut(self.text, most_chars))
        message = message_of(schedule, self.at)
        return replace(message, id=name, event_id=name, quotes=(sent,) if self.text.strip() else ())


class HookStore(Protocol):
    """The rows of what stands in the configuration, and calls; see `store/hooks.py`."""

    async def configured(self) -> Sequence[Schedule]:
        """All that stand in the configuration, or stood there."""

    async def take(
        self, schedule: Schedule, message: InboundMessage, turn_id: str, *, most: int = MOST_WAITING
    ) -> Taken:
        """Commit a call, once for its turn id."""


def _cut(text: str, most_chars: int) -> str:
    """What fits into a message, whatever JSON makes of it."""
    most = min(MAX_SHOWN_CHARS, most_chars * 2 // 5)
    shown = without_hidden(text.replace("\r\n", "\n").replace("\r", "\n"))
    return shown if len(shown) <= most else f"{shown[:most]}\n[{len(shown) - most} more characters were sent]"
