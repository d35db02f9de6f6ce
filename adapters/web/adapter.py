"""The web channel as the gateway sees it.

The durable queues are the conversation's log, and the page reads that log; so `send` has nothing to deliver but the
word that there is news, and sending twice shows one message.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from adapters.web.client import ChatPages
from adapters.web.stream import Audience
from gateway.errors import AdapterNotReady
from gateway.messages import Capabilities, ConversationRef, InboundMessage, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

OPERATOR_ACCOUNT = "operator"


class WebAdapter:
    """One chat page; a channel with previews and a sign that an answer is on its way."""

    def __init__(self, services: AdapterServices, *, display_name: str, max_text_chars: int) -> None:
        self._services = services
        self._audience = Audience()
        self._accept: Accept | None = None
        self._taking: set[asyncio.Future[None]] = set()
        self._closed = asyncio.Event()
        self._pages = ChatPages(
            services,
            self._audience,
            account=OPERATOR_ACCOUNT,
            display_name=display_name,
            max_text_chars=max_text_chars,
            take=self._take,
            is_running=lambda: self._accept is not None,
        )
        self._capabilities = Capabilities(
            max_text_chars=max_text_chars,
            markup="markdown",
            is_idempotent_send=True,
            preview_interval_s=0.05,
            shows_log=True,
        )

    @property
    def name(self) -> str:
        """The channel's name in the configuration."""
        return self._services.name

    @property
    def kind(self) -> str:
        """The platform."""
        return "web"

    @property
    def capabilities(self) -> Capabilities:
        """Markdown, previews, and sends that may be repeated."""
        return self._capabilities

    @property
    def operator_account(self) -> str:
        """Whoever is logged in."""
        return OPERATOR_ACCOUNT

    @property
    def http_path(self) -> str:
        """The page is the gateway's front door."""
        return "/"

    @property
    def http_access(self) -> Literal["operator", "public"]:
        """Behind the login."""
        return "operator"

    @property
    def http_app(self) -> Any:
        """The page and what it calls."""
        return self._pages.app

    async def connect(self) -> None:
        """There is nothing to reach: pages come to us."""
        self._closed.clear()

    async def run(self, accept: Accept) -> None:
        """Take messages until cancelled, or closed."""
        self._accept = accept
        try:
            await self._closed.wait()
        finally:
            self._end()

    async def send(self, message: OutboundMessage) -> Receipt:
        """Tell the open pages that the log has something new."""
        for stream in self._audience.of(message.conversation):
            stream.notify()
        return Receipt(message_ids=(message.id,))

    async def preview(self, message: OutboundMessage) -> None:
        """Show the answer so far to the open pages."""
        for stream in self._audience.of(message.conversation):
            stream.show_preview(message)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show the open pages that an answer is on its way."""
        for stream in self._audience.of(conversation):
            stream.show_typing()

    async def close(self) -> None:
        """End the open streams, and tell those who are sending to send again."""
        self._closed.set()
        self._end()

    def _end(self) -> None:
        self._accept = None
        self._audience.end()
        for taking in self._taking:
            taking.cancel()

    async def _take(self, message: InboundMessage) -> None:
        """`accept`, as long as the channel runs.

        Raises:
            AdapterNotReady: the channel ended first; the page sends the message again.
        """
        if self._accept is None:
            raise AdapterNotReady("the channel is stopping")
        taking = asyncio.ensure_future(self._accept(message))
        self._taking.add(taking)
        try:
            await asyncio.wait({taking})
        finally:
            self._taking.discard(taking)
            taking.cancel()
        if taking.cancelled():
            raise AdapterNotReady("the channel is stopping")
        taking.result()
