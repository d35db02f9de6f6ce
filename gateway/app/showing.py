"""Shows on the channels that are held here what turns of other workers want shown: answers as they grow, and typing.

As with a turn of this worker, a reply that is sent is not overtaken: what is being shown in its conversation ends
first, and of its id nothing is shown afterwards.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any

import structlog

from gateway.domain.channels import Channels
from gateway.messages import ConversationRef, OutboundMessage
from gateway.pipeline.outbox import Outbox
from gateway.protocols import SupportsPreview, SupportsTyping

_MOST_SENT = 1_000

_log = structlog.get_logger(__name__)


class Showing:
    """One for a worker."""

    def __init__(self, channels: Channels, outbox: Outbox) -> None:
        self._channels = channels
        self._outbox = outbox
        self._wanted: dict[ConversationRef, OutboundMessage] = {}
        self._tasks: dict[ConversationRef, asyncio.Task[None]] = {}
        self._typing: set[asyncio.Task[None]] = set()
        self._sent: OrderedDict[str, None] = OrderedDict()

    def preview(self, message: OutboundMessage) -> None:
        """Show an answer so far, when what was shown before it has been; of several that wait, the newest."""
        if message.id not in self._sent:
            conversation = message.conversation
            self._wanted[conversation] = message
            if conversation not in self._tasks or self._tasks[conversation].done():
                task = self._tasks[conversation] = asyncio.create_task(self._show(conversation), name="preview")
                task.add_done_callback(lambda done: self._ended(conversation, done))

    def typing(self, conversation: ConversationRef) -> None:
        """Show once that an answer is on its way."""
        adapter = self._channels.if_up(conversation.channel)
        if adapter is not None and isinstance(adapter, SupportsTyping):
            task = asyncio.create_task(_dropped(adapter.show_typing(conversation)), name="typing")
            self._typing.add(task)
            task.add_done_callback(self._typing.discard)

    async def settle(self, message: OutboundMessage) -> None:
        """A reply is about to be sent."""
        self._sent[message.id] = None
        if len(self._sent) > _MOST_SENT:
            self._sent.popitem(last=False)
        self._wanted.pop(message.conversation, None)
        task = self._tasks.pop(message.conversation, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def close(self) -> None:
        """Show nothing more."""
        for task in (*self._tasks.values(), *self._typing):
            task.cancel()

    async def _show(self, conversation: ConversationRef) -> None:
        await self._outbox.caught_up(conversation)
        while (message := self._wanted.pop(conversation, None)) is not None:
            adapter = self._channels.if_up(conversation.channel)
            if adapter is not None and isinstance(adapter, SupportsPreview):
                await _dropped(adapter.preview(message))
                await asyncio.sleep(adapter.capabilities.preview_interval_s or 0.0)

    def _ended(self, conversation: ConversationRef, task: asyncio.Task[None]) -> None:
        if self._tasks.get(conversation) is task:
            del self._tasks[conversation]


async def _dropped(attempt: Coroutine[Any, Any, None]) -> None:
    """Await it, and let a failure be one line in the log."""
    try:
        await attempt
    except Exception as error:  # noqa: BLE001 (whatever a platform does with a courtesy, the worker goes on)
        _log.debug("courtesy_failed", error=repr(error))
