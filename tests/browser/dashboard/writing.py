"""A message of the web channel, through a whole gateway."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from gateway.app.gateway import Gateway
from gateway.messages import ConversationRef, InboundMessage, QuotedText, Sender
from tests.gateway.way.conftest import settled

OPERATOR = "operator"


async def write(
    gateway: Gateway, text: str, *, conversation: str = "main", sender: str = OPERATOR, quoted: str = ""
) -> None:
    """A message of the web channel, perhaps with a mail in it; and wait until it is answered and remembered."""
    event_id = secrets.token_hex(8)
    message = InboundMessage(
        id=f"web:{event_id}",
        event_id=event_id,
        conversation=ConversationRef(channel="web", conversation=conversation),
        sender=Sender(channel="web", user=sender, display_name="Ada", is_verified=True),
        text=text,
        sent_at=datetime.now(UTC),
        quotes=(QuotedText(origin="quoted mail", text=quoted),) if quoted else (),
    )
    await gateway.supervisor._accept_from("web")(message)
    await settled(gateway)
