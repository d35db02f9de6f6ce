"""The door of the dashboard: behind it nothing is loaded before the first request."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from gateway.web.auth import OperatorAuth

if TYPE_CHECKING:
    from gateway.app import Gateway
    from gateway.web.dashboard.app import Dashboard
    from gateway.web.dashboard.sources import Sources

FindSources = Callable[[], "Sources"]


class DashboardDoor:
    """Mounted at `/dashboard`.

    Args:
        key: a secret of the gateway, for the tokens of forms and the notes.
        sources: finds what the pages read; called once.
    """

    def __init__(self, auth: OperatorAuth, key: bytes, sources: FindSources) -> None:
        self._auth = auth
        self._key = key
        self._sources = sources
        self._dashboard: Dashboard | None = None
        self._making = asyncio.Lock()

    async def dashboard(self) -> Dashboard:
        """The dashboard, made at the first call: its desks and their models take long to load."""
        async with self._making:
            if self._dashboard is None:
                await asyncio.to_thread(_load)
                from gateway.web.dashboard.app import Dashboard  # noqa: PLC0415 (loaded at the first request)

                self._dashboard = Dashboard(self._auth, self._key, self._sources())
        return self._dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        dashboard = self._dashboard or await self.dashboard()
        await dashboard(scope, receive, send)

    def close(self) -> None:
        """Tell open pages nothing more."""
        if self._dashboard is not None:
            self._dashboard.frame.live.close()


def find_sources(gateway: Gateway) -> FindSources:
    """What the pages of a gateway read, once it is asked for."""

    def find() -> Sources:
        from gateway.web.dashboard.sources import sources_of  # noqa: PLC0415 (loaded at the first request)

        return sources_of(gateway)

    return find


def _load() -> None:
    importlib.import_module("gateway.web.dashboard.sources")
    importlib.import_module("gateway.web.dashboard.app").all_pages()
