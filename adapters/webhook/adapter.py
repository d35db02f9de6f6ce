"""The webhook channel as the gateway sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

from adapters.webhook.client import WebhookClient
from adapters.webhook.convert import to_reply
from adapters.webhook.inbound import WebhookEndpoint
from adapters.webhook.signature import Signer
from gateway.messages import Capabilities, OutboundMessage, Receipt
from gateway.protocols import Accept


class WebhookAdapter:
    """Is called with what people write, and calls with what the agent answers.

    Args:
        clock: seconds since 1970, for the signatures of what goes out.
    """

    def __init__(
        self,
        name: str,
        endpoint: WebhookEndpoint,
        client: WebhookClient,
        signer: Signer,
        capabilities: Capabilities,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._client = client
        self._signer = signer
        self._capabilities = capabilities
        self._clock = clock
        self._closed = asyncio.Event()

    @property
    def name(self) -> str:
        """The channel's name in the configuration."""
        return self._name

    @property
    def kind(self) -> str:
        """The platform."""
        return "webhook"

    @property
    def capabilities(self) -> Capabilities:
        """A reply may be sent twice: its `webhook-id` stays, and receivers drop what they have."""
        return self._capabilities

    @property
    def http_path(self) -> str:
        """An address of its own for each channel."""
        return f"/hooks/{self._name}"

    @property
    def http_access(self) -> Literal["operator", "public"]:
        """The signature shows who calls."""
        return "public"

    @property
    def http_app(self) -> Any:
        """Takes what is posted."""
        return self._endpoint

    async def connect(self) -> None:
        """Make ready to post; the other side is not asked anything, since each request there may have an effect."""
        self._closed.clear()
        await self._client.open()

    async def run(self, accept: Accept) -> None:
        """Take messages until cancelled, or closed."""
        self._endpoint.open(accept)
        try:
            await self._closed.wait()
        finally:
            self._endpoint.shut()

    async def send(self, message: OutboundMessage) -> Receipt:
        """Post it, signed for this moment; raises as `WebhookClient.post`."""
        webhook_id, body = to_reply(message)
        await self._client.post(self._signer.headers(webhook_id, body, now_s=self._clock()), body)
        return Receipt(message_ids=(webhook_id,))

    async def close(self) -> None:
        """Take nothing more, and hang up."""
        self._closed.set()
        self._endpoint.shut()
        await self._client.close()
