"""The dashboard's place in the web server: nothing behind it is loaded before the first request."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from gateway.web.auth import OperatorAuth
from gateway.web.lazy import Lazy

if TYPE_CHECKING:
    from gateway.web.dashboard.app import Dashboard
    from gateway.web.dashboard.page_context import Sources

FindSources = Callable[[], "Sources"]


class LazyDashboard(Lazy["Dashboard"]):
    """Mounted at `/dashboard`."""

    def __init__(self, auth: OperatorAuth, key: bytes, sources: FindSources) -> None:
        """Nothing is made yet.

        Args:
            key: a secret of the gateway, for the tokens of forms and the notes.
            sources: finds what the pages read; called once.
        """

        def make() -> Dashboard:
            from gateway.web.dashboard.app import Dashboard  # noqa: PLC0415 (loaded at the first request)

            return Dashboard(auth, key, sources())

        super().__init__(_load, make)

    def close(self) -> None:
        """Tell open pages nothing more."""
        if self.made is not None:
            self.made.context.live.close()


def _load() -> None:
    import_module("gateway.web.dashboard.app").all_pages()
