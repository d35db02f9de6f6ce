"""Who may call what. Every route names its scope with `requires`, and a test fails on one that does not.

Who calls is known by then: the `Gate` before the whole web server has put the caller into the request's scope.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.desk.caller import Caller, Permission
from gateway.desk.desks import Desks
from gateway.web.api.problems import CHALLENGE, WHO_ARE_YOU
from gateway.web.auth import CALLER, PROOF, SAFE_METHODS

CSRF_HEADER = "x-ethos-request"
"""Must come with writes that are authenticated by a cookie: a foreign page cannot send it without asking us first."""
Rule = Permission | Literal["anybody known", "operator"]

_token = HTTPBearer(
    scheme_name="token",
    description="The operator's token (the file `web-token` of the data directory), or an API key, `ethos_…`.",
    auto_error=False,
)


class Requires:
    """Lets through whoever has the permission; gives the caller.

    Raises:
        HTTPException: 401 nobody is known, 403 they may not.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    async def __call__(
        self, request: Request, _bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_token)] = None
    ) -> Caller:
        """Who calls."""
        caller = request.scope.get(CALLER)
        if not isinstance(caller, Caller):
            raise HTTPException(401, WHO_ARE_YOU, CHALLENGE)
        if request.scope.get(PROOF) == "cookie" and request.method not in SAFE_METHODS:
            self._check_own_page(request)
        if self.rule == "operator":
            if not caller.is_operator:
                raise HTTPException(403, "This is the operator's only.")
        elif self.rule != "anybody known" and not caller.may(self.rule):
            raise HTTPException(403, f"This key has no scope `{self.rule}`; make one that has: `ethos keys create`.")
        return caller

    @staticmethod
    def _check_own_page(request: Request) -> None:
        if CSRF_HEADER not in request.headers:
            raise HTTPException(403, f"With a cookie, a write needs the header `{CSRF_HEADER}: 1`, too.")


def requires(rule: Rule) -> Requires:
    """The dependency for a route; see `Requires`."""
    return Requires(rule)


async def _desks(request: Request) -> Desks:
    desks: Desks = request.app.state.desks
    return desks


WithDesks = Annotated[Desks, Depends(_desks)]
"""All desks, for a route."""
