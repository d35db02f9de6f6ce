"""Tools that rest: a tool that keeps breaking is not called for a while, so that turns do not wait for it again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from gateway.tools.contract import Called

MOST_FAULTS = 5
WITHIN_S = 600.0
RESTS_S = 300.0


class Resting:
    """Which tools rest, in this process. What a model did wrong with its call is no fault of the tool."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._faults: dict[str, deque[float]] = {}
        self._until_s: dict[str, float] = {}

    def refusal(self, tool: str) -> Called | None:
        """What the model is told of a call to a tool that rests; None for one that does not."""
        left_s = self._until_s.get(tool, 0.0) - self._now_s()
        if left_s <= 0:
            self._until_s.pop(tool, None)
            return None
        text = (
            f"Error: this was not done. {tool} broke {MOST_FAULTS} times within {WITHIN_S / 60:.0f} minutes, and rests "
            f"for {left_s:.0f} s more."
        )
        return Called(outcome="refused", text=text)

    def note(self, tool: str, called: Called) -> bool:
        """Count what a call came to; True: the tool rests from now on."""
        if not called.is_fault:
            return False
        now_s = self._now_s()
        faults = self._faults.setdefault(tool, deque(maxlen=MOST_FAULTS))
        faults.append(now_s)
        if len(faults) < MOST_FAULTS or now_s - faults[0] > WITHIN_S:
            return False
        faults.clear()
        self._until_s[tool] = now_s + RESTS_S
        return True
