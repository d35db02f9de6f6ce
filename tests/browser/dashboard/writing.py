"""A message of the operator, through a whole gateway."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from gateway.app.gateway import Gateway
from gateway.messages import InboundMessage, QuotedText, Sender
from gateway.pipeline.local_channel import CHANNEL, OPERATOR_ACCOUNT, named_place
from tests.gateway.way.conftest import settled

MAIN = named_place(OPERATOR_ACCOUNT, "main")


async def write(gateway: Gateway, text: str, *, conversation: str = "main", quoted: str = "") -> None:
    """A message of the operator, perhaps with a mail in it; and wait until it is answered and remembered."""
    event_id = secrets.token_hex(8)
    message = InboundMessage(
        id=event_id,
        event_id=event_id,
        conversation=named_place(OPERATOR_ACCOUNT, conversation),
        sender=Sender(channel=CHANNEL, user=OPERATOR_ACCOUNT, display_name="Operator", is_verified=True),
        text=text,
        sent_at=datetime.now(UTC),
        quotes=(QuotedText(origin="quoted mail", text=quoted),) if quoted else (),
    )
    await gateway.inbox.accept(message)
    await settled(gateway)
