"""The queues: what waits or failed on the way in and on the way out, to be tried again or dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.outbox import Outbox
from gateway.sdk.models import deliveries as wire
from gateway.services.caller import Caller, NotFound, Refused
from gateway.store.deliveries import Delivery, SqliteDeliveries

Change = Literal["retry", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryCounts:
    """Of one queue: what is not finished, and what was given up."""

    open: int
    dead: int


class DeliveryService:
    """The operator's: rows hold what people wrote. Callers who see one person only meet `NotAllowed`."""

    def __init__(self, rows: SqliteDeliveries, dispatcher: Dispatcher, outbox: Outbox) -> None:
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
        before: int | None = None,
    ) -> Sequence[wire.Delivery]:
        """Dead letters and what is not finished, newest first.

        Args:
            before: only rows with a smaller `seq`.
        """
        caller.refuse_others(None)
        stored = "ready" if state == "waiting" else state
        rows = await self._rows.unsettled(queue, state=stored, channel=channel, limit=limit, before=before)
        return [_shown(row) for row in rows]

    async def counts(self, caller: Caller, queue: wire.Queue) -> DeliveryCounts:
        """How many rows are not finished, and how many were given up."""
        caller.refuse_others(None)
        rows = await self._rows.counts(queue)
        dead = sum(count for (_, state), count in rows.items() if state == "dead")
        return DeliveryCounts(open=sum(rows.values()) - dead, dead=dead)

    async def get(self, caller: Caller, queue: wire.Queue, seq: int) -> wire.Delivery:
        """One row, also one that is over.

        Raises:
            NotFound: that queue has no such row.
        """
        caller.refuse_others(None)
        row = await self._rows.find(queue, seq)
        if row is None:
            raise NotFound(f"the {queue} has no message with the id {seq}")
        return _shown(row)

    async def retry(self, caller: Caller, queue: wire.Queue, seq: int) -> wire.Delivery:
        """Try a dead letter again, from the start.

        Raises:
            Refused: it is no dead letter.
            NotFound: as `get`.
        """
        return await self._change(caller, queue, seq, "retry")

    async def drop(self, caller: Caller, queue: wire.Queue, seq: int) -> wire.Delivery:
        """Finish what waits or is dead without a delivery. The row stays, so that its event never comes in again.

        Raises:
            Refused: it is being worked on, or is over.
            NotFound: as `get`.
        """
        return await self._change(caller, queue, seq, "drop")

    async def _change(self, caller: Caller, queue: wire.Queue, seq: int, what: Change) -> wire.Delivery:
        row = await self.get(caller, queue, seq)
        place = await (self._rows.retry if what == "retry" else self._rows.drop)(queue, seq)
        if place is None:
            only = "dead letters are tried again" if what == "retry" else "what waits or is dead can be dropped"
            raise Refused(f"message {seq} is {row.state}; only {only}")
        (self._outbox if queue == "outbox" else self._dispatcher).wake(place)
        return await self.get(caller, queue, seq)


def _shown(row: Delivery) -> wire.Delivery:
    return wire.Delivery(
        queue=row.queue,
        seq=row.seq,
        id=row.id,
        turn_id=row.turn_id,
        channel=row.conversation.channel,
        conversation=row.conversation.conversation,
        thread=row.conversation.thread,
        text=row.text,
        state="waiting" if row.state == "ready" else row.state,
        attempts=row.attempts,
        due_in_s=row.due_in_s,
        is_uncertain=row.is_uncertain,
        error=row.error,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
    )
