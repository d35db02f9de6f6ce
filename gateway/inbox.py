"""Accept: the one door through which a message enters. After it has returned, the message cannot be lost."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog

from gateway.messages import ConversationRef, InboundMessage
from gateway.observe import note, stage

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """A message that is claimed for its turn.

    Attributes:
        turn_id: chosen at accept, so that it is the same however often the turn is tried.
        attempts: claims so far, this one included; a parked message's waits do not count.
        is_told: the person was told already that the message waits.
        has_steps: an earlier try left steps from which the turn goes on; see `TurnStore.load_steps`.
        has_more: its conversation has another message behind it.
        accepted_at: by the wall clock.
    """

    seq: int
    turn_id: str
    message: InboundMessage
    attempts: int
    is_told: bool
    has_steps: bool
    has_more: bool
    accepted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDue:
    """The head of the queue waits for a time to come."""

    due_in_s: float


class InboxStore(Protocol):
    """The durable queue of what people wrote, one row per message for ever."""

    async def add(self, message: InboundMessage, turn_id: str) -> int | None:
        """Commit the message; its sequence number, or None when the event or the message is there already."""

    async def claim(self, conversation: ConversationRef, *, owner: str, lease_s: float) -> InboxRow | NotDue | None:
        """Take the conversation's oldest unfinished message, if nobody holds it and its time has come."""

    async def renew(self, owner: str, lease_s: float) -> None:
        """Put off the end of all leases of the owner."""

    async def release(self, seq: int, *, owner: str, after_s: float, error: str | None, is_counted: bool) -> None:
        """Give the message back, to be claimed again after some seconds; `is_counted` False takes the attempt back."""

    async def make_due(self, conversation: ConversationRef) -> None:
        """Let what waits in the conversation be claimed now."""

    async def reclaim(self, owner: str) -> int:
        """Give back what other owners hold; for a start, when the others are known to be dead."""

    async def waiting(self) -> Sequence[tuple[ConversationRef, float]]:
        """Every conversation with an unfinished message, and the seconds until its head is due."""


class Inbox:
    """Commits what adapters hand over, and says so to the dispatcher."""

    def __init__(self, store: InboxStore, on_accepted: Callable[[InboundMessage], Awaitable[None]]) -> None:
        self._store = store
        self._on_accepted = on_accepted

    async def accept(self, message: InboundMessage) -> None:
        """Commit the message, once for ever; only then may the adapter acknowledge it.

        A caller that is cancelled does not take the message back: it may be committed by then, and must get its turn.

        Raises:
            StoreUnavailable: the disk is full or broken; nothing was kept.
        """
        await asyncio.shield(asyncio.create_task(self._keep(_storable(message))))

    async def _keep(self, message: InboundMessage) -> None:
        turn_id = f"t_{secrets.token_hex(8)}"
        with stage("inbox.accept", turn_id, message.conversation):
            is_new = await self._store.add(message, turn_id=turn_id) is not None
            note(is_new=is_new)
            if is_new:
                _log.debug("message_accepted", text=message.text)
        if is_new:
            await self._on_accepted(message)


def _storable(message: InboundMessage) -> InboundMessage:
    """Drop what no database, terminal or model takes: NULs, and surrogates without a partner."""
    return replace(
        message,
        text=_clean(message.text),
        sender=replace(message.sender, display_name=_clean(message.sender.display_name)),
        command=None if message.command is None else _clean(message.command),
        sent_at=_aware(message.sent_at),
    )


def _clean(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        # a pair of surrogates becomes the character that it means, a lone one the replacement character
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("sent_at must be an aware time")
    return moment
