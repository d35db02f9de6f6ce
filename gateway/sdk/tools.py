"""`client.tools`: what tools did."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.sdk.models.schema import Page
from gateway.sdk.models.tools import ToolUse
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing


class Tools(Namespace[S]):
    """Calls of tools. Scope: `tools:read`."""

    @listing
    def calls(self, *, user: str | None = None, limit: int | None = None) -> AsyncIterator[ToolUse]:
        """Calls, the newest first; `NotFoundError` where there is no such user."""
        return self.sender.items(Request("GET", "/tools/calls", Page[ToolUse], {}, {"user": user}), limit)
