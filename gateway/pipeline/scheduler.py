"""A fair queue: it serves many conversations at once, and each of them one thing at a time.

Conversations of one owner (a person) take turns among themselves. Owners take turns, too: a person with a thousand
messages, in one conversation or in a thousand, delays another by one of them at most. The work stays in the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import structlog

from gateway.messages import ConversationRef

IDLE = None
AGAIN = 0.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Owner:
    """Whose work it is; `is_queued`: the owner stands in the queue."""

    conversations: deque[ConversationRef] = field(default_factory=deque)
    served: int = 0
    is_queued: bool = False


class FairQueue:
    """Workers that call `serve(conversation)` for every conversation that was woken, while `run` runs.

    `serve` does one piece of work and says when there is more: `IDLE` (None) when it is woken again, `AGAIN` (0) at
    once, or a number of seconds. It must not raise; if it does all the same, the conversation is tried again later.
    """

    def __init__(
        self,
        serve: Callable[[ConversationRef], Awaitable[float | None]],
        *,
        workers: int,
        after_fault_s: float,
        workers_of: Callable[[Any], int],
    ) -> None:
        """`workers_of` says how many workers an owner may have."""
        self._serve = serve
        self._workers = workers
        self._after_fault_s = after_fault_s
        self._workers_of = workers_of
        self._queue: asyncio.Queue[Hashable] = asyncio.Queue()  # of owners
        self._owners: dict[Hashable, _Owner] = {}
        self._owner_of: dict[ConversationRef, Hashable] = {}  # while the conversation waits, is served or has a timer
        self._queued: set[ConversationRef] = set()
        self._served: set[ConversationRef] = set()
        self._woken_while_served: set[ConversationRef] = set()
        self._timers: dict[ConversationRef, asyncio.TimerHandle] = {}
        self._has_ended = asyncio.Event()
        self._is_ending = False

    @property
    def waiting(self) -> int:
        """Conversations that have work now and no worker yet."""
        return len(self._queued)

    def belongs(self, conversation: ConversationRef, owner: Hashable) -> None:
        """Say whose work is next in the conversation; holds from the next time that it waits. Else it counts alone."""
        self._owner_of[conversation] = owner

    def wake(self, conversation: ConversationRef, owner: Hashable | None = None) -> None:
        """Say that the conversation has work. Cheap, and harmless when it has none.

        Args:
            owner: whose work it is, where the conversation had none; what is in it already stays whose it is.
        """
        if owner is not None:
            self._owner_of.setdefault(conversation, owner)
        timer = self._timers.pop(conversation, None)
        if timer is not None:
            timer.cancel()
        if conversation in self._served:
            self._woken_while_served.add(conversation)
        elif conversation not in self._queued:
            self._queued.add(conversation)
            name = self._owner_of.setdefault(conversation, conversation)
            self._owners.setdefault(name, _Owner()).conversations.append(conversation)
            self._call(name)

    def wake_in(self, conversation: ConversationRef, delay_s: float) -> None:
        """Wake the conversation later; a `wake` before that takes its place."""
        earlier = self._timers.pop(conversation, None)
        if earlier is not None:
            earlier.cancel()
        self._timers[conversation] = asyncio.get_running_loop().call_later(delay_s, self.wake, conversation)

    async def idle(self) -> None:
        """Wait until no conversation has work now; those that wait for a time to come do not count."""
        while self._queued or self._served:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def rested(self, conversation: ConversationRef) -> None:
        """Wait until a conversation has no work, neither now nor at a time to come."""
        while conversation in self._queued or conversation in self._served or conversation in self._timers:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def run(self) -> None:
        """Serve until cancelled; what is being served then is cancelled too."""
        self._is_ending = False
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._workers):
                    workers.create_task(self._work())
                try:
                    await asyncio.Event().wait()
                finally:
                    self._is_ending = True
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _call(self, name: Hashable) -> None:
        """Put the owner into the queue, at its end, if it has work and may have another worker."""
        owner = self._owners[name]
        if owner.conversations and not owner.is_queued and owner.served < min(self._workers, self._workers_of(name)):
            owner.is_queued = True
            self._queue.put_nowait(name)
        elif not owner.conversations and not owner.served:
            del self._owners[name]

    async def _work(self) -> None:
        while not self._is_ending:  # also where what was served has kept its cancellation to itself
            name = await self._queue.get()
            owner = self._owners[name]
            owner.is_queued = False
            conversation = owner.conversations.popleft()
            owner.served += 1
            self._call(name)
            self._queued.discard(conversation)
            self._served.add(conversation)
            more: float | None = self._after_fault_s
            try:
                more = await self._serve(conversation)
            except asyncio.CancelledError:
                if self._is_ending:
                    raise
                _log.exception("queue_fault", conversation=str(conversation))
            except Exception:  # noqa: BLE001 (a fault of ours must not end the worker, nor the conversation)
                _log.exception("queue_fault", conversation=str(conversation))
            finally:
                owner.served -= 1
                self._call(name)
                self._served.discard(conversation)
                if conversation in self._woken_while_served:
                    self._woken_while_served.discard(conversation)
                    more = AGAIN
                self._next(conversation, more)
                self._has_ended.set()

    def _next(self, conversation: ConversationRef, more: float | None) -> None:
        if more is None:
            self._owner_of.pop(conversation, None)
        elif more <= 0:
            self.wake(conversation)
        else:
            self.wake_in(conversation, more)
