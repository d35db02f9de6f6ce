"""`/mcp`: the gateway as a server of the Model Context Protocol. Most of it is loaded at its first request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.errors import EthosError
from gateway.runtime.extras import how_to_install
from gateway.services.caller import OF_A_PERSON, Caller
from gateway.web.api.problems import on_error, problem_of_status, unauthenticated
from gateway.web.auth import CALLER, PROOF
from gateway.web.lazy import Lazy

if TYPE_CHECKING:
    from gateway.services.operator_services import OperatorServices
    from gateway.web.mcp.application import McpApplication

PATH = "/mcp"
USER_HEADER = "x-ethos-user"
"""By it the operator acts for one person: an id or an account."""
OFF = "This gateway does not serve MCP. Set `mcp.serve: true` in config.yaml, and run `ethos reload`."
_ONLY_PROGRAMS = "This address is for programs. Send an API key as `Authorization: Bearer …`."


class McpServer:
    """Lets the holders of keys and the operator in, as the API does; the `Gate` has found out who calls.

    Args:
        is_on: asked at each request.
        services: gives all services, once one is needed.
        is_ending: whether the gateway ends. What breaks off then was ended by nobody.
    """

    def __init__(
        self, is_on: Callable[[], bool], services: Callable[[], OperatorServices], is_ending: Callable[[], bool]
    ) -> None:
        self._is_on = is_on
        self._services = services
        load = partial(import_module, "gateway.web.mcp.application")
        self._app: Lazy[McpApplication] = Lazy(load, lambda: load().McpApplication(services(), is_ending))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        refusal = await self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    async def close(self) -> None:
        """End what runs. Idempotent."""
        if self._app.made is not None:
            await self._app.made.close()

    async def _refusal(self, scope: Scope) -> Response | None:
        """None for a caller who may go on; then the scope has the caller that is meant."""
        caller = scope.get(CALLER)
        if not isinstance(caller, Caller):
            return unauthenticated()
        if scope[PROOF] == "cookie":  # a page of a browser has no business here
            return problem_of_status(403, _ONLY_PROGRAMS)
        if not self._is_on():
            return problem_of_status(404, OFF)
        refusal = await self._narrowed(scope, caller)
        return refusal or await self._loaded()

    async def _narrowed(self, scope: Scope, caller: Caller) -> Response | None:
        """Put the person in whose name the operator asks into the scope."""
        wanted = Headers(scope=scope).get(USER_HEADER)
        if wanted is None:
            return None
        if not caller.is_operator:
            return problem_of_status(403, f"`{USER_HEADER}` is the operator's only; a key has its person already.")
        try:
            user_id = await self._services().naming.user(caller, wanted)
        except EthosError as error:
            return await on_error(Request(scope), error)
        scope[CALLER] = Caller(name=caller.name, permissions=OF_A_PERSON, user_id=user_id)
        return None

    async def _loaded(self) -> Response | None:
        try:
            await self._app.application()
        except ImportError as error:
            install = how_to_install("mcp", error.name or "")
            return problem_of_status(503, f"The library for MCP is missing (extra `mcp`). Install it: {install}")
        return None
