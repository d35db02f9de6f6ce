"""What a page is, and where they are found: in `gateway.web.dashboard.pages`, each as `PAGE` of a module."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.web.dashboard import pages
from gateway.web.forms import Form

if TYPE_CHECKING:
    from gateway.web.dashboard.page_context import PageContext

BASE = "/dashboard"

Show = Callable[[Request], Awaitable[Response]]
Take = Callable[[Request, Form], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One entry of the navigation, and all addresses below it.

    Attributes:
        name: its address is `/dashboard/<name>`, its templates are in `templates/dashboard/<name>/`.
        icon: a symbol of `static/icons.svg`.
        position: where it stands in the navigation.
        routes: made once; paths begin with `/<name>`. A form goes to `PageContext.form_handler(handler)`.
    """

    name: str
    title: str
    icon: str
    position: int
    routes: Callable[[PageContext], Sequence[Route]]

    @property
    def path(self) -> str:
        """The address of the page."""
        return f"{BASE}/{self.name}"


@cache
def all_pages() -> tuple[Page, ...]:
    """All pages, in the order of the navigation."""
    modules = (
        importlib.import_module(f"{pages.__name__}.{found.name}") for found in pkgutil.iter_modules(pages.__path__)
    )
    found = (module.PAGE for module in modules if hasattr(module, "PAGE"))
    return tuple(sorted(found, key=lambda page: page.position))
