"""The webhook as a channel: receives signed POST requests, and posts signed answers."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from adapters.webhook.client import WebhookClient
from adapters.webhook.convert import to_reply
from adapters.webhook.inbound import WebhookEndpoint
from adapters.webhook.signature import Signer
from gateway.messages import Capabilities, OutboundMessage, Receipt
from gateway.protocols import Accept


class WebhookAdapter:
    """One endpoint, and one address for answers."""

    kind = "webhook"
    http_access: Literal["public"] = "public"  # the signature proves the sender

    def __init__(
        self,
        name: str,
        endpoint: WebhookEndpoint,
        client: WebhookClient,
        signer: Signer,
        capabilities: Capabilities,
    ) -> None:
        self.name = name
        self.capabilities = capabilities  # an idempotent send: receivers drop a `webhook-id` that they have
        self.http_path = f"/hooks/{name}"
        self.http_app = self._endpoint = endpoint
        self._client = client
        self._signer = signer
        self._clock = time.time  # for the signatures of answers
        self._closed = asyncio.Event()

    async def connect(self) -> None:
        """Prepare to post; nothing is sent, since each request may have an effect on the other side."""
        self._closed.clear()
        await self._client.open()

    async def run(self, accept: Accept) -> None:
        """Accept messages until cancelled, or closed."""
        await self.receive(accept)

    async def receive(self, accept: Accept) -> None:
        """The same: what comes needs no connection."""
        self._endpoint.open(accept)
        try:
            await self._closed.wait()
        finally:
            self._endpoint.close()

    async def send(self, message: OutboundMessage) -> Receipt:
        """Post the answer, signed with the current time; raises as `WebhookClient.post`."""
        webhook_id, body = to_reply(message)
        await self._client.post(self._signer.headers(webhook_id, body, now_s=self._clock()), body)
        return Receipt(message_ids=(webhook_id,))

    async def close(self) -> None:
        """Accept nothing more, and close the connections."""
        self._closed.set()
        self._endpoint.close()
        await self._client.close()
