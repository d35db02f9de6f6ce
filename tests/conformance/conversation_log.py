"""A conversation log in memory, for tests of adapters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from gateway.messages import ConversationRef, InboundMessage, OutboundMessage
from gateway.protocols import LogEntry


class FakeLog:
    """Follows `gateway.protocols.ConversationLog`; `add_in` and `add_out` stand for the gateway's commits.

    Attributes:
        error: raised by the next reads, while it is set.
        reads: how many there were.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[ConversationRef, LogEntry]] = []
        self.error: Exception | None = None
        self.reads = 0

    async def read(
        self, conversation: ConversationRef, *, after: int = 0, limit: int = 200, newest: bool = False
    ) -> Sequence[LogEntry]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        found = [entry for where, entry in self._entries if where == conversation and entry.cursor > after]
        return found[-limit:] if newest else found[:limit]

    async def place_before(self, conversation: ConversationRef, *, newest: int) -> int:
        """Behind which cursor the newest so many entries are; 0 where there are no more."""
        if self.error is not None:
            raise self.error
        mine = [entry.cursor for where, entry in self._entries if where == conversation]
        return mine[-newest - 1] if len(mine) > newest else 0

    def add_in(self, message: InboundMessage) -> None:
        """Keep a person's message, once."""
        if any(entry.direction == "in" and entry.id == message.id for _, entry in self._entries):
            return
        self._add(
            message.conversation,
            LogEntry(
                cursor=0,
                direction="in",
                id=message.id,
                text=message.text,
                display_name=message.sender.display_name,
                at=message.sent_at,
                state="ready",
            ),
        )

    def add_out(self, message: OutboundMessage, *, state: str = "sending") -> None:
        """Keep an answer, once."""
        if any(entry.direction == "out" and entry.id == message.id for _, entry in self._entries):
            return
        self._add(
            message.conversation,
            LogEntry(
                cursor=0,
                direction="out",
                id=message.id,
                text=message.text,
                display_name="assistant",
                at=datetime.now(UTC),
                state=state,
                reply_to=message.reply_to,
                actions=message.actions,
            ),
        )

    def _add(self, conversation: ConversationRef, entry: LogEntry) -> None:
        self._entries.append((conversation, replace(entry, cursor=len(self._entries) + 1)))
