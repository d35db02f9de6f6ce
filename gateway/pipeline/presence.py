"""Who is being answered: so that a person's last turn has ended before they are erased, and none begins meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.messages import ConversationRef

Name = str | ConversationRef
"""An account, `kind:id`, or a conversation without its thread."""


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    names: frozenset[Name]
    account: str
    stop: Callable[[], object]


class Presence:
    """Turns, by who asks and where."""

    def __init__(self) -> None:
        self._turns: set[_Turn] = set()
        self._closed: Counter[Name] = Counter()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def turn(
        self, account: str, conversation: ConversationRef, stop: Callable[[], object]
    ) -> AsyncGenerator[bool]:
        """Around a turn; begins when nothing that is the account's or the conversation's is being erased.

        Gives whether it may have waited for that: then what was read before is old.

        Args:
            account: `kind:id`.
            conversation: where it is answered.
            stop: asks the turn to end with what it has.
        """
        turn = _Turn(names=frozenset([account, without_thread(conversation)]), account=account, stop=stop)
        may_wait = bool(self._closed)
        if may_wait:
            async with self._changed:
                await self._changed.wait_for(lambda: not any(self._closed[name] for name in turn.names))
        self._turns.add(turn)
        try:
            yield may_wait
        finally:
            self._turns.discard(turn)
            if self._closed:
                async with self._changed:
                    self._changed.notify_all()

    @asynccontextmanager
    async def absence(
        self, accounts: Collection[str], conversations: Collection[ConversationRef] = ()
    ) -> AsyncGenerator[None]:
        """Wait until no turn of these runs, and let none begin before this is left.

        Turns of the accounts are asked to end; those of others in the conversations may finish.
        """
        names: frozenset[Name] = frozenset([*accounts, *map(without_thread, conversations)])
        self._closed.update(names)
        try:
            for turn in list(self._turns):
                if turn.account in accounts:
                    turn.stop()
            async with self._changed:
                await self._changed.wait_for(lambda: not any(turn.names & names for turn in self._turns))
            yield
        finally:
            self._closed.subtract(names)
            self._closed = +self._closed
            async with self._changed:
                self._changed.notify_all()


def without_thread(conversation: ConversationRef) -> ConversationRef:
    """The conversation as a whole."""
    return ConversationRef(channel=conversation.channel, conversation=conversation.conversation)
