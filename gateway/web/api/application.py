"""The API as one application, and the document that describes it, made from the code."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway import __version__
from gateway.errors import EthosError
from gateway.sdk.models.schema import ConflictProblem, Problem, said_of
from gateway.services.caller import Caller
from gateway.services.operator_services import OperatorServices
from gateway.web.api import (
    PATH,
    approvals,
    channels,
    chat,
    deliveries,
    files,
    hooks,
    keys,
    mcp,
    memory,
    people,
    personalities,
    schedules,
    sessions,
    settings,
    skills,
    system,
    tools,
    traces,
)
from gateway.web.api.access import Requires, parameters_of, refuse_unknown_parameters
from gateway.web.api.answers import described
from gateway.web.api.problems import on_error, on_fault, on_http_error, problem_of_status
from gateway.web.auth import SAFE_METHODS

_ABOUT = """
The same memory and the same conversations as on every channel. Errors are problem documents (RFC 9457). A list comes in
pages: ask again with its `nextCursor` as `cursor`. A write may carry an `Idempotency-Key`: sent again within a day, it
is done once.
"""
_TAGS = {
    "memory": "Documents, their history, and proposals.",
    "traces": "The trace memory: facts with a strength.",
    "sessions": "Messages that share one context.",
    "chat": "Messages to the agent, and its answers.",
    "people": "People, their roles and links, and requests for access.",
    "personalities": "Roles of the agent.",
    "files": "Memory and personalities as files, to be edited elsewhere and merged.",
    "deliveries": "Messages and replies that wait or failed.",
    "tools": "What the agent's tools did.",
    "approvals": "Calls of tools that wait for a yes.",
    "schedules": "What is done at a time: reminders, jobs and watches.",
    "hooks": "Addresses that services call.",
    "channels": "What connects the agent to platforms.",
    "mcp": "Servers of tools that the agent uses.",
    "skills": "Instructions that the agent loads when it needs them.",
    "system": "Health, usage, configuration.",
    "settings": "Keys of the configuration, and changes of it.",
    "keys": "Keys of this API.",
}
_ROUTERS = (
    chat.router,  # the one that is asked most: they are tried in this order
    memory.router,
    traces.router,
    sessions.router,
    people.router,
    deliveries.router,
    tools.router,
    approvals.router,
    schedules.router,
    hooks.router,
    mcp.router,
    channels.router,
    skills.router,
    personalities.router,
    files.router,
    system.router,
    settings.router,
    keys.router,
)
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A UUID, new for each request. Sent again with the same key within a day, the request is done once "
    "and answered the same; another request with the same key is refused (422).",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    "example": "6d0f1a52-8c3e-4b7a-9f21-0e5d7c4b3a90",
}
# Written here, and not asked of FastAPI's HTTPBearer: that would be one more thing to solve in every request.
_SECURITY = "token"
_SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "The operator's token, of the file `web-token` or derived from `secret`, or an API key, `ethos_…`.",
}
_ALWAYS = {
    400: "The cursor is not one of this list.",
    401: "The token or key is wrong.",
    403: "The caller may not do that.",
    404: "Not found.",
    422: "The request is not valid.",
    429: "Too many wrong tokens or keys came from this address.",
    503: "Not possible now; try again.",
}


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
            text = re.sub(r"Page[\[_](\w+?)[\]_]", r"\1Page", json.dumps(document))  # ChangePage, not Page_Change_
            self.openapi_schema = json.loads(text)
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


async def _on_invalid(_request: Request, error: Exception) -> Response:
    """A request that the types do not allow: every mistake with its place, as pydantic lists them."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    errors = [{"where": ".".join(map(str, one["loc"])), "problem": said_of(one)} for one in found]
    return problem_of_status(422, "; ".join(f"{one['where']}: {one['problem']}" for one in errors[:5]), errors=errors)


def make_fastapi(services: OperatorServices) -> FastAPI:
    """The routes, to be mounted at `PATH` behind the `Gate`; `Api` stands before them."""
    app = _Application(
        title="Ethos Gateway",
        version=__version__,
        summary="Memory, conversations and operation of one gateway",
        description=_ABOUT.strip(),
        contact={"name": "Operator of this gateway"},
        license_info={"name": "MIT", "identifier": "MIT"},
        openapi_tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        servers=[{"url": PATH}],
        root_path_in_servers=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={status: described(text) for status, text in _ALWAYS.items()},
        generate_unique_id_function=_operation_id,
        exception_handlers={
            EthosError: on_error,
            RequestValidationError: _on_invalid,
            HTTPException: on_http_error,
            Exception: on_fault,
        },
    )
    app.state.services = services
    app.state.routers = (*_ROUTERS, _about_itself(app))
    for router in app.state.routers:
        app.include_router(router, dependencies=[Depends(refuse_unknown_parameters)])
    app.state.parameters = {route.unique_id: parameters_of(route) for route in routes_of(app)}
    return app


def _about_itself(app: FastAPI) -> APIRouter:
    router = APIRouter(tags=["system"])

    @router.get("/openapi.json", summary="Get the OpenAPI document")
    async def openapi(_caller: Annotated[Caller, Depends(Requires("anybody known"))]) -> dict[str, Any]:
        """This document."""
        return app.openapi()

    return router


def routes_of(app: FastAPI) -> list[APIRoute]:
    """Every route of the API."""
    return [route for router in app.state.routers for route in router.routes if isinstance(route, APIRoute)]


def rule_of(route: APIRoute) -> str | None:
    """What a route asks of its caller; None where the route says nothing."""
    rules = [one.call.rule for one in route.dependant.dependencies if isinstance(one.call, Requires)]
    return rules[0] if len(rules) == 1 else None


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What may be left out cannot be sent as null: an address and a header have no such thing."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**kinds[0], **rest} if len(kinds) == 1 else schema


def _schemas_of(*models: type[BaseModel]) -> dict[str, Any]:
    """What FastAPI does not see, because it is not in the signature of a route."""
    found: dict[str, Any] = {}
    for model in models:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
        found |= schema.pop("$defs", {})
        found[model.__name__] = schema
    return found


def _operation_id(route: APIRoute) -> str:
    """`memory.write`, as the SDK names it."""
    return f"{route.tags[0]}.{route.name.rstrip('_')}"
