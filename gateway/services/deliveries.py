"""The queues: what waits or failed on the way in and on the way out, to be tried again or dropped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.messages import ConversationRef, OutboundMessage
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.outbox import Outbox
from gateway.sdk.models import deliveries as wire
from gateway.sdk.models.sessions import Session
from gateway.services.caller import Caller, NotAllowed, NotFound, Refused
from gateway.store.deliveries import SqlDeliveries
from gateway.store.payloads import storable, to_ms

Change = Literal["retry", "drop"]
AT_ONCE = 200
"""So many rows of a list are read before the next ones are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryCounts:
    """Of one queue: what is not finished, and what was given up."""

    open: int
    dead: int


def place_in_list(row: wire.Delivery) -> tuple[int, str]:
    """Where a row stands in `DeliveryService.list`, as its `before` takes it."""
    return to_ms(row.begun_at), row.id


class DeliveryService:
    """The operator's: rows hold what people wrote. Callers who see one person only meet `NotAllowed`, but in `send`."""

    def __init__(self, rows: SqlDeliveries, dispatcher: Dispatcher, outbox: Outbox) -> None:
        self._rows = rows
        self._dispatcher = dispatcher
        self._outbox = outbox

    async def list(
        self,
        caller: Caller,
        queue: wire.Queue,
        *,
        state: wire.DeliveryState | None = None,
        channel: str | None = None,
        limit: int,
        before: tuple[int, str] | None = None,
    ) -> Sequence[wire.Delivery]:
        """Dead letters and what is not finished, newest first.

        Args:
            before: the time of a row in ms, and its id: only rows behind it.
        """
        caller.refuse_others(None)
        return await self._rows.unsettled(queue, state=state, channel=channel, limit=limit, before=before)

    async def counts(self, caller: Caller, queue: wire.Queue) -> DeliveryCounts:
        """How many rows are not finished, and how many were given up."""
        caller.refuse_others(None)
        unfinished, dead = await self._rows.counts(queue)
        return DeliveryCounts(open=unfinished, dead=dead)

    async def get(self, caller: Caller, queue: wire.Queue, row_id: str) -> wire.Delivery:
        """One row, also one that is over.

        Raises:
            NotFound: that queue has no such row.
        """
        caller.refuse_others(None)
        row = await self._rows.find(queue, row_id)
        if row is None:
            raise NotFound(f"the {queue} has no message with the id {row_id}")
        return row

    async def retry(self, caller: Caller, queue: wire.Queue, row_id: str) -> wire.Delivery:
        """Try a dead letter again, from the start.

        Raises:
            Refused: it is no dead letter.
            NotFound: as `get`.
        """
        return await self._change(caller, queue, row_id, "retry")

    async def drop(self, caller: Caller, queue: wire.Queue, row_id: str) -> wire.Delivery:
        """Finish what waits or is dead without a delivery. The row stays, so that its event never comes in again.

        Raises:
            Refused: it is being worked on, or is over.
            NotFound: as `get`.
        """
        return await self._change(caller, queue, row_id, "drop")

    async def retry_all(self, caller: Caller, queue: wire.Queue, *, channel: str | None = None) -> int:
        """Try all dead letters again, of one channel or of all; how many."""
        return await self._change_all(caller, queue, "retry", state="dead", channel=channel)

    async def drop_all(
        self, caller: Caller, queue: wire.Queue, *, state: wire.DeliveryState, channel: str | None = None
    ) -> int:
        """Finish all rows of a state without a delivery, as `drop` does; how many. What is worked on is left."""
        return await self._change_all(caller, queue, "drop", state=state, channel=channel)

    async def _change_all(
        self, caller: Caller, queue: wire.Queue, what: Change, *, state: wire.DeliveryState, channel: str | None
    ) -> int:
        """Each row is a commit of its own and is met once, also one that dies again meanwhile."""
        changed, before = 0, None
        change = self._rows.retry if what == "retry" else self._rows.drop
        while rows := await self.list(caller, queue, state=state, channel=channel, limit=AT_ONCE, before=before):
            before = place_in_list(rows[-1])
            places = [place for row in rows if (place := await change(queue, row.id)) is not None]
            changed += len(places)
            for place in set(places):
                self._wake(queue, place)
        return changed

    async def send(self, caller: Caller, session: Session, text: str, *, seed: str) -> str:
        """Send a message to the conversation of a session that the caller may see; its id in the outbox.

        Args:
            seed: the same for a repetition, which then sends nothing twice.

        Raises:
            NotAllowed: the caller sees one person only, and others read along there.
            Refused: its channel is not configured any more, or the seed was used for another message.
        """
        place = ConversationRef(channel=session.channel, conversation=session.conversation, thread=session.thread)
        if caller.user_id is not None and not await self._rows.is_direct(place):
            raise NotAllowed("others may read along in this conversation, and this key writes to one person only")
        if not self._outbox.reaches(place.channel):
            raise Refused(f"the channel {place.channel} is not configured any more, so nothing can be sent there")
        digest = hashlib.sha256(f"{caller.key_id} {caller.user_id} {seed}".encode()).hexdigest()
        text = storable(text)
        message = OutboundMessage(id=f"program_{digest[:32]}", conversation=place, text=text)
        kept = await self._outbox.post(message)
        if (kept.conversation, kept.text) != (place, text):
            raise Refused("this key was used for another message; take a new one")
        return message.id

    async def _change(self, caller: Caller, queue: wire.Queue, row_id: str, what: Change) -> wire.Delivery:
        row = await self.get(caller, queue, row_id)
        place = await (self._rows.retry if what == "retry" else self._rows.drop)(queue, row_id)
        if place is None:
            only = "dead letters are tried again" if what == "retry" else "what waits or is dead can be dropped"
            raise Refused(f"message {row_id} is {row.state}; only {only}")
        self._wake(queue, place)
        return await self.get(caller, queue, row_id)

    def _wake(self, queue: wire.Queue, place: ConversationRef) -> None:
        if queue == "outbox":
            self._outbox.wake(place)
        else:
            self._dispatcher.look()
