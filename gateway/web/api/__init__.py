"""The HTTP API under `/api/v1`. Nothing of it is loaded before its first request."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from gateway.web.lazy import Lazy

if TYPE_CHECKING:
    from gateway.services.caller import Caller
    from gateway.services.operator_services import OperatorServices

PATH = "/api/v1"


class Api(Lazy[ASGIApp]):
    """The API, and who holds a key of it."""

    def __init__(self, services: Callable[[], OperatorServices], make: Callable[[OperatorServices], ASGIApp]) -> None:
        """Nothing is made yet; each of the two is called once, when it is needed."""
        super().__init__(partial(import_module, "gateway.web.api.application"), lambda: make(self.services))
        self._make_services = services

    @cached_property
    def services(self) -> OperatorServices:
        """What the API and the pages ask."""
        return self._make_services()

    async def caller(self, key: str) -> Caller | None:
        """Who holds the API key; None where it is wrong or revoked."""
        return await self.services.keys.caller(key)
