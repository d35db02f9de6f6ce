"""Who may call what. Every route names its scope with `Requires`, and a test fails on one that does not.

Who calls is known by then: the `Gate` before the whole web server has put the caller into the request's scope.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.files.positions.validation import did_you_mean
from gateway.services.caller import Caller, Permission
from gateway.services.operator_services import OperatorServices
from gateway.web.api.problems import CHALLENGE, UNAUTHENTICATED
from gateway.web.auth import CALLER, PROOF, SAFE_METHODS

CSRF_HEADER = "x-ethos-request"
"""Must come with writes that are authenticated by a cookie: a foreign page cannot send it without asking us first."""
Rule = Permission | Literal["anybody known", "operator"]


class Requires:
    """A dependency of a route: lets callers with the permission through; gives the caller.

    Raises:
        HTTPException: 401 there is no known caller, 403 the caller may not.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    async def __call__(self, request: Request) -> Caller:
        """Who calls."""
        caller = request.scope.get(CALLER)
        if not isinstance(caller, Caller):
            raise HTTPException(401, UNAUTHENTICATED, CHALLENGE)
        is_cookie_write = request.scope.get(PROOF) == "cookie" and request.method not in SAFE_METHODS
        if is_cookie_write and CSRF_HEADER not in request.headers:
            raise HTTPException(403, f"With a cookie, a write needs the header `{CSRF_HEADER}: 1`, too.")
        if self.rule == "operator":
            if not caller.is_operator:
                raise HTTPException(403, "This is the operator's only.")
        elif self.rule != "anybody known" and not caller.may(self.rule):
            raise HTTPException(403, f"This key has no scope `{self.rule}`; make one that has: `ethos keys create`.")
        return caller


Operator = Annotated[Caller, Depends(Requires("operator"))]
"""The operator, for a route that no key opens."""


async def refuse_unknown_parameters(request: Request) -> None:
    """A parameter that the address does not take is a mistake of the caller, as an unknown field of a body is.

    Raises:
        RequestValidationError: each of them, with the one that may be meant.
    """
    known: frozenset[str] = request.app.state.parameters[request.scope["route"].unique_id]
    errors = [
        {"loc": ("query", name), "msg": f"this address has no such parameter{did_you_mean(name, known)}"}
        for name in request.query_params
        if name not in known
    ]
    if errors:
        raise RequestValidationError(errors)


def parameters_of(route: APIRoute) -> frozenset[str]:
    """The names of the query parameters that a route takes."""
    fields = get_flat_params(route.dependant)
    return frozenset(one.alias for one in fields if getattr(one.field_info, "in_", None) == ParamTypes.query)


async def _services_of(request: Request) -> OperatorServices:
    services: OperatorServices = request.app.state.services
    return services


WithServices = Annotated[OperatorServices, Depends(_services_of)]
"""All services, for a route."""
