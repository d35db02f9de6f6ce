"""The request that is asked most, `POST /chat/messages`, without the work that FastAPI does for every route.

FastAPI solves dependencies, walks its routers and serializes in generic ways, which takes more than the message itself.
What is plain and valid is answered here, by the desk that the route asks, too. All else goes on to the route, with the
whole request: refusals and their texts have one place.
"""

from __future__ import annotations

from pydantic import ValidationError
from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.desk.caller import Caller
from gateway.desk.desks import Desks
from gateway.errors import EthosError
from gateway.sdk.models.chat import SendMessage
from gateway.web.api.idempotency import replayed
from gateway.web.api.problems import on_error, on_fault
from gateway.web.auth import CALLER, PROOF

PATH = "/chat/messages"
_JSON = "application/json"


class DirectMessages:
    """Stands before the application; its `receive` gives the whole body at once, as `IdempotentWrites` does."""

    def __init__(self, app: ASGIApp, desks: Desks) -> None:
        self._app = app
        self._desks = desks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        caller = scope.get(CALLER)
        if not _is_plain(scope) or not isinstance(caller, Caller) or not caller.may("chat:write"):
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]
        try:
            message = SendMessage.model_validate_json(body)
        except ValidationError:
            await self._app(scope, replayed(body, receive), send)
            return
        response = await self._sent(Request(scope), caller, message)
        await response(scope, receive, send)

    async def _sent(self, request: Request, caller: Caller, message: SendMessage) -> Response:
        try:
            sent = await self._desks.chat.send(caller, message, seed=request.headers.get("idempotency-key"))
        except EthosError as error:
            return await on_error(request, error)
        except Exception as error:  # noqa: BLE001 (a fault of ours: the log has it all, the caller nothing of it)
            return await on_fault(request, error)
        return Response(sent.model_dump_json(by_alias=True), status_code=202, media_type=_JSON)


def _is_plain(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and get_route_path(scope) == PATH
        and not scope["query_string"]
        and scope.get(PROOF) in ("bearer", "key")
        and Headers(scope=scope).get("content-type") == _JSON
    )
