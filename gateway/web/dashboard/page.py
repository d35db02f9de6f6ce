"""What a page is, and where they are found: in `gateway.web.dashboard.pages`, each as `PAGE` of a module."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.web.dashboard import pages
from gateway.web.forms import Form

if TYPE_CHECKING:
    from gateway.web.dashboard.page_context import PageContext

BASE = "/dashboard"

Show = Callable[["PageContext", Request], Awaitable[Response]]
Take = Callable[["PageContext", Request, Form], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Page:
    """One entry of the navigation, and all addresses below it; each handler says its own.

    Attributes:
        name: its address is `/dashboard/<name>`, its templates are in `templates/dashboard/<name>/`.
        icon: a symbol of `static/icons.svg`.
        position: where it stands in the navigation.
    """

    name: str
    title: str
    icon: str
    position: int
    _routes: list[Callable[[PageContext], Route]] = field(default_factory=list, init=False)

    @property
    def path(self) -> str:
        """The address of the page."""
        return f"{BASE}/{self.name}"

    def routes(self, context: PageContext) -> list[Route]:
        """All of it, as the dashboard mounts it."""
        return [route(context) for route in self._routes]

    def route(self, path: str = "", *, method: str = "GET") -> Callable[[Show], Show]:
        """The decorated function answers this address below the page's."""

        def add(show: Show) -> Show:
            self._routes.append(lambda context: Route(f"/{self.name}{path}", partial(show, context), methods=[method]))
            return show

        return add

    def form(self, path: str, *, back: str | None = None) -> Callable[[Take], Take]:
        """The decorated function takes the forms that are sent to this address; see `PageContext.form_handler`."""

        def add(take: Take) -> Take:
            def route(context: PageContext) -> Route:
                handler = context.form_handler(partial(take, context), back=back)
                return Route(f"/{self.name}{path}", handler, methods=["POST"])

            self._routes.append(route)
            return take

        return add


@cache
def all_pages() -> tuple[Page, ...]:
    """All pages, in the order of the navigation."""
    modules = (
        importlib.import_module(f"{pages.__name__}.{found.name}") for found in pkgutil.iter_modules(pages.__path__)
    )
    return tuple(sorted({module.PAGE for module in modules}, key=lambda page: page.position))
