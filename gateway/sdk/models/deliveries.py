"""What goes in and out: messages that wait, run or failed, and replies on their way."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gateway.sdk.models.schema import Id, Wire

Queue = Literal["inbox", "outbox"]
DeliveryState = Literal["waiting", "running", "sending", "parked", "dead"]


class Delivery(Wire):
    """One row of a queue.

    Attributes:
        seq: its id; no row of either queue has another's.
        state: `waiting` to be tried, `running` or `sending` now, `parked` until a model answers or a budget has room,
            `dead` when it is tried no more; `done`, `sent` or `dropped` when it is over.
        due_in_s: seconds until it is tried; 0 when it is due or over.
        is_uncertain: the platform may have a reply of which we have no receipt.
        error: why the last attempt failed, or what an operator did.
    """

    queue: Queue
    seq: Id
    turn_id: str
    channel: str
    conversation: str
    thread: str | None
    text: str
    state: str
    attempts: int
    due_in_s: float
    is_uncertain: bool
    error: str | None
    begun_at: datetime
    ended_at: datetime | None
