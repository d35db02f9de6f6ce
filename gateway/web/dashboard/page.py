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

from gateway.domain.roles import ROLES, Role
from gateway.services.caller import Caller
from gateway.web.dashboard import pages
from gateway.web.forms import Form

if TYPE_CHECKING:
    from gateway.web.dashboard.page_context import PageContext

BASE = "/dashboard"
GROUPS = ((0, ""), (30, "Access"), (50, "The agent"), (60, "The gateway"))
"""The groups of the navigation, each with the position at which it begins."""

Show = Callable[["PageContext", Request], Awaitable[Response]]
Take = Callable[["PageContext", Request, Form], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Page:
    """One entry of the navigation, and all addresses below it; each handler says its own.

    Attributes:
        name: its address is `/dashboard/<name>`, its templates are in `templates/dashboard/<name>/`.
        icon: a symbol of `static/icons.svg`.
        position: where it stands in the navigation, and in which of its `GROUPS`.
        least: the role that one needs at least to open it; a route may say another one for itself.
    """

    name: str
    title: str
    icon: str
    position: int
    least: Role = "owner"
    _routes: list[Callable[[PageContext], Route]] = field(default_factory=list, init=False)

    @property
    def group(self) -> str:
        """The group of the navigation that it stands in; empty for the first."""
        return next(name for first, name in reversed(GROUPS) if self.position >= first)

    @property
    def path(self) -> str:
        """The address of the page."""
        return f"{BASE}/{self.name}"

    def routes(self, context: PageContext) -> list[Route]:
        """All of it, as the dashboard mounts it."""
        return [route(context) for route in self._routes]

    def is_for(self, caller: Caller) -> bool:
        """Whether they may open it."""
        return reaches(caller, self.least)

    def route(self, path: str = "", *, method: str = "GET", least: Role | None = None) -> Callable[[Show], Show]:
        """The decorated function answers this address below the page's, with the context of who asks."""

        def add(show: Show) -> Show:
            async def handler(context: PageContext, request: Request) -> Response:
                return await show(context.of(request, least or self.least), request)

            self._routes.append(
                lambda context: Route(f"/{self.name}{path}", partial(handler, context), methods=[method])
            )
            return show

        return add

    def form(self, path: str, *, back: str | None = None, least: Role | None = None) -> Callable[[Take], Take]:
        """The decorated function takes the forms that are sent to this address; see `PageContext.form_handler`."""

        def add(take: Take) -> Take:
            async def handler(context: PageContext, request: Request) -> Response:
                bound = context.of(request, least or self.least)
                return await bound.form_handler(partial(take, bound), back=back)(request)

            self._routes.append(
                lambda context: Route(f"/{self.name}{path}", partial(handler, context), methods=["POST"])
            )
            return take

        return add


def reaches(caller: Caller, least: Role) -> bool:
    """Whether a caller has at least this role; the operator has every one."""
    return caller.signed_in is None or ROLES.index(caller.signed_in.role) <= ROLES.index(least)


@cache
def all_pages() -> tuple[Page, ...]:
    """All pages, in the order of the navigation."""
    modules = (
        importlib.import_module(f"{pages.__name__}.{found.name}") for found in pkgutil.iter_modules(pages.__path__)
    )
    return tuple(sorted({module.PAGE for module in modules}, key=lambda page: page.position))
