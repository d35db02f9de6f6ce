"""Show the answer while it is being written. A courtesy: nothing here is durable, and no failure of it matters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

import structlog

from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import ChannelAdapter, SupportsPreview, SupportsTyping

WITHDRAW_TIMEOUT_S = 10.0

_log = structlog.get_logger(__name__)


class Preview:
    """While the `async with` block runs, the channel shows the text as far as it has come.

    When the block is left, nothing more is shown, so the final message cannot be overtaken.
    """

    def __init__(
        self,
        adapter: ChannelAdapter | None,
        message: OutboundMessage,
        text: Callable[[], str],
        caught_up: Callable[[ConversationRef], Awaitable[None]],
    ) -> None:
        """Nothing is shown yet.

        Args:
            adapter: None while the channel is not connected.
            message: that will be sent in the end; its text is left out.
            text: what there is of it by now.
            caught_up: waits until earlier replies are out, for a preview would stand in front of them for good.
        """
        self._adapter = adapter
        self._caught_up = caught_up
        self._message = message
        self._text = text
        self._has_grown = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._shown = ""

    def grow(self) -> None:
        """Say that the text has changed."""
        self._has_grown.set()

    async def withdraw(self) -> None:
        """Take back what was shown, where no message will replace it; the turn waits for that, but not for ever."""
        adapter = self._adapter
        if self._shown and adapter is not None and isinstance(adapter, SupportsPreview):
            await _dropped(asyncio.wait_for(adapter.preview(self._message), WITHDRAW_TIMEOUT_S), "preview")

    async def __aenter__(self) -> Self:
        if self._adapter is not None:
            self._task = asyncio.create_task(self._show(self._adapter), name="preview")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _show(self, adapter: ChannelAdapter) -> None:
        if isinstance(adapter, SupportsTyping):
            await _dropped(adapter.show_typing(self._message.conversation), "typing")
        interval_s = adapter.capabilities.preview_interval_s
        if interval_s is None or not isinstance(adapter, SupportsPreview):
            return
        await self._caught_up(self._message.conversation)
        while True:
            await self._has_grown.wait()
            self._has_grown.clear()
            text = self._text()
            if text != self._shown:
                self._shown = text  # before it is: an attempt that is cut off may have arrived
                await _dropped(adapter.preview(replace(self._message, text=text)), "preview")
                await asyncio.sleep(interval_s)


async def _dropped(attempt: Awaitable[None], what: str) -> None:
    """Await it, and let a failure be one line in the log."""
    try:
        await attempt
    except Exception as error:  # noqa: BLE001 (whatever a platform does with a courtesy, the answer goes on)
        _log.debug("courtesy_failed", what=what, error=repr(error))
