"""The queues: messages that wait, run or failed, and replies to be sent."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from gateway.sdk.models.schema import ApiModel

Queue = Literal["inbox", "outbox"]
DeliveryState = Literal["waiting", "running", "sending", "parked", "dead"]


class ChangedDeliveries(ApiModel):
    """How many rows of a queue were changed."""

    amount: int = Field(description="Number of rows; what is worked on just then is left out.")


class Delivery(ApiModel):
    """One row of a queue."""

    queue: Queue = Field(description="`inbox` for messages that came in, `outbox` for replies.")
    id: str = Field(description="Id of the row: of the turn that answers a message, or of the reply.")
    turn_id: str = Field(description="Turn that it belongs to.")
    channel: str = Field(description="Channel that it came from or goes to.", examples=["web"])
    conversation: str = Field(description="Conversation on that channel; opaque.")
    thread: str | None = Field(description="Thread in the conversation; opaque.")
    text: str = Field(description="Text of the message, with codes of pairing and linking hidden.")
    state: str = Field(
        description="`waiting` to be tried, `running` or `sending` now, `parked` until a model answers or a budget has "
        "room, `dead` when it is tried no more; `done`, `sent` or `dropped` when it is finished.",
        examples=["dead"],
    )
    attempts: int = Field(description="How often it was tried.")
    due_in_s: float = Field(description="Seconds until it is tried; 0 when it is due or finished.")
    is_uncertain: bool = Field(description="The platform may have the reply, although no receipt came.")
    error: str | None = Field(description="Why the last attempt failed, or what an operator did.")
    begun_at: datetime = Field(description="When it was accepted, or committed by its turn.")
    ended_at: datetime | None = Field(description="When it was finished.")
