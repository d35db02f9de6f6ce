"""Show the answer while it is being written. A courtesy: nothing here is durable, and no failure of it matters."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Coroutine, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeGuard

import structlog

from gateway.agent.state import AgentState
from gateway.domain.channels import Shows
from gateway.messages import OutboundMessage
from gateway.pipeline.outbox import Outbox
from gateway.protocols import SupportsPreview, SupportsTyping

WITHDRAW_TIMEOUT_S = 10.0
FIRST_PREVIEW_S = 1.5
_SENTENCE = re.compile(r"[.!?…]\s|[。！？\n]")  # noqa: RUF001 (those of other scripts)

_log = structlog.get_logger(__name__)


class Preview:
    """While the `async with` block runs, the channel shows the text as far as it has come.

    When the block is left, nothing more is shown, so the final message cannot be overtaken.
    """

    def __init__(
        self,
        adapter: Shows | None,
        message: OutboundMessage,
        state: AgentState,
        outbox: Outbox,
        before: str = "",
    ) -> None:
        """What is shown, and where.

        Args:
            adapter: None while the channel is connected nowhere.
            message: that will be sent in the end; its text is left out.
            state: has what there is of its text by now.
            outbox: sends the earlier replies first; a preview would stand in front of them for good.
            before: what the answer begins with, in our own words.
        """
        self._adapter = adapter
        self._outbox = outbox
        self._message = message
        self._state = state
        self._has_grown = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._shown = ""
        self._before = before

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
            self._tasks = [asyncio.create_task(work, name="preview") for work in self._shows(self._adapter)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _shows(self, adapter: Shows) -> Iterator[Coroutine[Any, Any, None]]:
        """What is done meanwhile, at the same time."""
        capabilities = adapter.capabilities
        if _shows_typing(adapter):
            yield self._show_typing(adapter, capabilities.typing_s)
        if capabilities.preview_interval_s is not None and _shows_previews(adapter):
            yield self._show_text(adapter, capabilities.preview_interval_s, capabilities.first_preview_chars)

    async def _show_typing(self, adapter: SupportsTyping, seen_s: float) -> None:
        """Again before it is forgotten, as long as nothing is shown that grows."""
        shown = ""
        while True:
            if self._shown == shown:
                await _dropped(adapter.show_typing(self._message.conversation), "typing")
            shown = self._shown
            await asyncio.sleep(0.8 * seen_s)

    async def _show_text(self, adapter: SupportsPreview, interval_s: float, first_chars: int) -> None:
        await self._outbox.caught_up(self._message.conversation)
        await self._begun(first_chars)
        while True:
            await self._has_grown.wait()
            self._has_grown.clear()
            text = self._state.shown and self._before + self._state.shown
            if text != self._shown:
                self._shown = text  # before it is: an attempt that is cut off may have arrived
                await _dropped(adapter.preview(replace(self._message, text=text)), "preview")
                await asyncio.sleep(interval_s)

    async def _begun(self, chars: int) -> None:
        """Wait until there is something to begin with."""
        await self._has_grown.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_PREVIEW_S):
                while len(self._state.shown) < chars and _SENTENCE.search(self._state.shown) is None:
                    self._has_grown.clear()
                    await self._has_grown.wait()
        self._has_grown.set()


# Asked with every turn: for a class the answer is remembered, an instance is looked through each time (Python 3.11).
def _shows_typing(adapter: Shows) -> TypeGuard[SupportsTyping]:
    return issubclass(type(adapter), SupportsTyping)


def _shows_previews(adapter: Shows) -> TypeGuard[SupportsPreview]:
    return issubclass(type(adapter), SupportsPreview)


async def _dropped(attempt: Awaitable[None], what: str) -> None:
    """Await it, and let a failure be one line in the log."""
    try:
        await attempt
    except Exception as error:  # noqa: BLE001 (whatever a platform does with a courtesy, the answer goes on)
        _log.debug("courtesy_failed", what=what, error=repr(error))
