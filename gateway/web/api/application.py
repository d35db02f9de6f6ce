"""The API as one application, and the document that describes it, made from the code."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from gateway import __version__
from gateway.errors import EthosError
from gateway.sdk.models.schema import ConflictProblem, Problem
from gateway.services.caller import Caller
from gateway.services.operator_services import Desks
from gateway.web.api import (
    PATH,
    chat,
    deliveries,
    memory,
    people,
    personalities,
    sessions,
    system,
    trace_transfer,
    traces,
)
from gateway.web.api.access import Requires, parameters_of, refuse_unknown_parameters, requires
from gateway.web.api.direct import DirectChat
from gateway.web.api.idempotency import IdempotentWrites, RequestStore
from gateway.web.api.problems import on_error, on_fault, on_http_error, on_invalid
from gateway.web.auth import SAFE_METHODS
from gateway.web.pages import PROBLEM_MEDIA_TYPE

_ABOUT = """
The same memory and the same conversations as on every channel. Errors are problem documents (RFC 9457). A list comes in
pages: ask again with its `nextCursor`. A write may carry an `Idempotency-Key`: repeated within a day, it is done once.
"""
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeated with the same key within a day, the request is done once and answered the same.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
}
# Written here, and not asked of FastAPI's HTTPBearer: that would be one more thing to solve in every request.
_SECURITY = "token"
_SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "The operator's token (the file `web-token` of the data directory), or an API key, `ethos_…`.",
}
_ALWAYS = {
    400: "The cursor is not one of this list.",
    401: "This token or key is unknown.",
    403: "The caller may not do that.",
    404: "There is no such thing.",
    422: "The request is not valid.",
    429: "Too many wrong tokens or keys came from this address.",
    503: "Not possible now; try again.",
}


def make_application(desks: Desks, store: RequestStore) -> ASGIApp:
    """The ASGI application, to be mounted at `PATH` behind the `Gate`."""
    return IdempotentWrites(DirectChat(make_fastapi(desks), desks), store)


class _Application(FastAPI):
    """FastAPI, whose OpenAPI document also has what it cannot know: scopes, and the header that a write may carry."""

    def openapi(self) -> dict[str, Any]:
        """OpenAPI 3.1."""
        if self.openapi_schema is None:
            document = super().openapi()
            document["components"]["schemas"] |= _schemas_of(Problem, ConflictProblem)
            document["components"]["securitySchemes"] = {_SECURITY: _SECURITY_SCHEME}
            for route in routes_of(self):
                self._complete(document["paths"][route.path], route)
        return self.openapi_schema or {}

    @staticmethod
    def _complete(path: dict[str, Any], route: APIRoute) -> None:
        for method in route.methods or ():
            operation = path[method.lower()]
            operation["x-scope"] = rule_of(route)
            operation["security"] = [{_SECURITY: []}]
            for parameter in operation.get("parameters", []):
                parameter["schema"] = _without_null(parameter["schema"])
            if method not in SAFE_METHODS:
                operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)


def make_fastapi(desks: Desks) -> FastAPI:
    """The routes, without what stands before them."""
    app = _Application(
        title="Ethos Gateway",
        version=__version__,
        description=_ABOUT.strip(),
        servers=[{"url": PATH}],
        root_path_in_servers=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={status: _described(text) for status, text in _ALWAYS.items()},
        generate_unique_id_function=_operation_id,
        exception_handlers={
            EthosError: on_error,
            RequestValidationError: on_invalid,
            HTTPException: on_http_error,
            Exception: on_fault,
        },
    )
    app.state.desks = desks
    app.state.routers = (
        chat.router,  # the one that is asked most: they are tried in this order
        memory.router,
        trace_transfer.router,
        traces.router,
        sessions.router,
        people.router,
        deliveries.router,
        personalities.router,
        system.router,
        _about_itself(app),
    )
    for router in app.state.routers:
        app.include_router(router, dependencies=[Depends(refuse_unknown_parameters)])
    app.state.parameters = {route.unique_id: parameters_of(route) for route in routes_of(app)}
    return app


def _about_itself(app: FastAPI) -> APIRouter:
    router = APIRouter(tags=["system"])

    @router.get("/openapi.json", summary="This document.")
    async def openapi(_caller: Annotated[Caller, Depends(requires("anybody known"))]) -> dict[str, Any]:
        return app.openapi()

    return router


def routes_of(app: FastAPI) -> list[APIRoute]:
    """Every route of the API."""
    return [route for router in app.state.routers for route in router.routes if isinstance(route, APIRoute)]


def rule_of(route: APIRoute) -> str | None:
    """What a route asks of its caller; None where nobody thought of it."""
    rules = [one.call.rule for one in route.dependant.dependencies if isinstance(one.call, Requires)]
    return rules[0] if len(rules) == 1 else None


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What may be left out cannot be sent as null: an address and a header have no such thing."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**kinds[0], **rest} if len(kinds) == 1 else schema


def _schemas_of(*models: type[BaseModel]) -> dict[str, Any]:
    """What FastAPI does not see, because no route answers it by itself."""
    found: dict[str, Any] = {}
    for model in models:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
        found |= schema.pop("$defs", {})
        found[model.__name__] = schema
    return found


def _described(text: str) -> dict[str, Any]:
    return {"description": text, "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def _operation_id(route: APIRoute) -> str:
    """`memory.write`: the namespace and the function, as the clients call it."""
    return f"{route.tags[0]}.{route.name}"
