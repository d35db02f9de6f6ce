"""How a running turn is ended from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.pipeline.queues import InboxRow


@dataclass(slots=True)
class TurnControl:
    """How a running turn is stopped from outside.

    Attributes:
        row: what it answers.
        is_stop_requested: the person said stop; the turn ends with what it has.
        had_effect: this turn's message is a `/stop` or a `/retry`, and it had its effect when it arrived.
        is_interruptible: set by the turn while it may be cancelled for that; a commit is not interrupted.
        is_decided: set by the turn once a stop changes nothing any more: it is being committed.
        is_lost: the conversation is another worker's by now, so the turn is cancelled and gives nothing back.
    """

    row: InboxRow | None = None
    is_stop_requested: bool = False
    had_effect: bool = False
    is_interruptible: bool = False
    is_decided: bool = False
    is_lost: bool = False
    task: asyncio.Task[float | None] | None = field(default=None, repr=False)

    def stop(self) -> bool:
        """Ask the turn to end with what it has; whether it will."""
        if self.is_decided:
            return False
        if self.is_interruptible and not self.is_stop_requested and self.task is not None:
            self.task.cancel("stopped by the person")
        self.is_stop_requested = True
        return True

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around what a stop cancels; it then ends early, and without an error."""
        self.is_interruptible = True
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self.is_stop_requested or task is None:
                raise
            task.uncancel()
        finally:
            self.is_interruptible = False

    def lose(self) -> None:
        """The claim is gone, so nothing of the turn can be committed."""
        if not self.is_decided and self.task is not None:
            self.is_lost = True
            self.task.cancel("the claim was lost")
