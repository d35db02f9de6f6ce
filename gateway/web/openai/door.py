"""The door of `/v1`: lets the holders of keys and the operator in, as the API does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from gateway.services.caller import Caller
from gateway.web.auth import CALLER, PROOF
from gateway.web.lazy import Lazy
from gateway.web.openai.errors import openai_error

if TYPE_CHECKING:
    from gateway.services.operator_services import OperatorServices
    from gateway.web.openai.application import OpenAIApplication

PATH = "/v1"
_NO_KEY = "Send an API key of this gateway as `Authorization: Bearer ethos_…`; `ethos keys create` makes one."
_ONLY_PROGRAMS = "This address is for programs. Send an API key as `Authorization: Bearer ethos_…`."


class OpenAIServer:
    """Refuses strangers and pages of browsers; the `Gate` has found out who calls.

    Args:
        services: gives all services, once one is needed.
        is_ending: whether the gateway ends. What breaks off then was ended by nobody.
    """

    def __init__(self, services: Callable[[], OperatorServices], is_ending: Callable[[], bool]) -> None:
        load = partial(import_module, "gateway.web.openai.application")
        self._app: Lazy[OpenAIApplication] = Lazy(load, lambda: load().OpenAIApplication(services(), is_ending))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if not isinstance(scope.get(CALLER), Caller):
            await openai_error(401, _NO_KEY)(scope, receive, send)
        elif scope[PROOF] == "cookie":
            await openai_error(403, _ONLY_PROGRAMS)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def close(self) -> None:
        """End what waits for programs that went away. Idempotent."""
        if self._app.made is not None:
            await self._app.made.close()
