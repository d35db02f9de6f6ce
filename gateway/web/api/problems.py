"""What went wrong, as RFC 9457 has it: our errors become a status, a type for programs and a text for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from pydantic.alias_generators import to_camel
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.domain.personalities.editing import PersonalityChanged
from gateway.errors import (
    EthosError,
    FileError,
    IdentityMapBroken,
    InvalidId,
    LockTimeout,
    MemoryConflict,
    MemoryUnavailable,
    NoSuchEntry,
    NotOffered,
    PersonalityError,
    StoreError,
    StoreUnavailable,
)
from gateway.memory.review import NoSuchProposal, NotReviewable
from gateway.people.linking.links import NotLinked
from gateway.schedules.forms import named
from gateway.sdk.models.schema import ConflictProblem, FieldProblem, Problem
from gateway.services.caller import (
    KEYS_BELOW,
    Ambiguous,
    Caller,
    Malformed,
    NotAllowed,
    NotFound,
    NotNamed,
    Refused,
    TracesOff,
)
from gateway.services.uploads import TooLarge
from gateway.web.auth import CALLER
from gateway.web.pages import PROBLEM_MEDIA_TYPE, problem_type

_log = structlog.get_logger(__name__)


class VersionRequired(Malformed):
    """A write must say which version it replaces (RFC 6585, section 3)."""


class WrongCursor(Malformed):
    """It is no cursor of this list; a schema cannot say what one is, so this is a 400 and not a 422."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem: what programs know it by, its status, and its title."""

    name: str
    status: int
    title: str


# The first that fits counts.
KINDS: Mapping[type[EthosError], Kind] = {
    MemoryConflict: Kind("conflict", 409, "Version conflict"),
    NotAllowed: Kind("not-allowed", 403, "Forbidden"),
    WrongCursor: Kind("invalid", 400, "Invalid request"),
    VersionRequired: Kind("version-required", 428, "Version required"),
    NotFound: Kind("not-found", 404, "Not found"),
    Ambiguous: Kind("ambiguous", 422, "Ambiguous user"),
    NotNamed: Kind("not-found", 404, "Not found"),
    PersonalityChanged: Kind("not-possible", 409, "Conflict"),
    PersonalityError: Kind("not-found", 404, "Not found"),
    NoSuchEntry: Kind("not-possible", 409, "Conflict"),
    NoSuchProposal: Kind("not-found", 404, "Not found"),
    NotReviewable: Kind("not-possible", 409, "Conflict"),
    TooLarge: Kind("too-large", 413, "Request too large"),
    NotLinked: Kind("not-possible", 409, "Conflict"),
    TracesOff: Kind("traces-off", 409, "Conflict"),
    Refused: Kind("not-possible", 409, "Conflict"),
    InvalidId: Kind("invalid", 422, "Invalid request"),
    Malformed: Kind("invalid", 422, "Invalid request"),
    NotOffered: Kind("not-offered", 501, "Not offered"),
    LockTimeout: Kind("locked", 503, "Locked"),
    StoreUnavailable: Kind("store-unavailable", 503, "Temporarily unavailable"),
    MemoryUnavailable: Kind("memory-unavailable", 503, "Temporarily unavailable"),
    FileError: Kind("unavailable", 503, "Temporarily unavailable"),
    IdentityMapBroken: Kind("unavailable", 503, "Temporarily unavailable"),
    StoreError: Kind("unavailable", 503, "Temporarily unavailable"),
}
IN_PROGRESS = Kind("in-progress", 409, "Request in progress")
_UNKNOWN = Kind("failed", 500, "Internal error")
_BY_STATUS: Mapping[int, Kind] = {
    401: Kind("not-authenticated", 401, "Unauthorized"),
    403: Kind("not-allowed", 403, "Forbidden"),
    404: Kind("not-found", 404, "Not found"),
    405: Kind("no-such-method", 405, "Method not allowed"),
    409: Kind("not-possible", 409, "Conflict"),
    413: Kind("too-large", 413, "Request too large"),
    415: Kind("media-type", 415, "Unsupported media type"),
    422: Kind("invalid", 422, "Invalid request"),
    429: Kind("too-many", 429, "Too many requests"),
    503: Kind("unavailable", 503, "Temporarily unavailable"),
}
_DETAILS: Mapping[int, str] = {
    400: "The body cannot be read; send JSON in UTF-8.",
    404: "The API has no such path; its OpenAPI document lists all.",
    405: "This path takes other methods; `Allow` lists them.",
}
RETRY_AFTER_S = 5
UNAUTHENTICATED = "Send the token or an API key as `Authorization: Bearer …`."
CHALLENGE: Mapping[str, str] = {"www-authenticate": "Bearer"}


def problem(kind: Kind, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """A problem document.

    Args:
        more: further members, by their names in Python.
    """
    model = ConflictProblem if "current" in more else Problem
    content = model(type=problem_type(kind.name), title=kind.title, status=kind.status, detail=detail, **more)
    exclude = set() if content.errors else {"errors"}
    body = json.dumps(content.model_dump(mode="json", by_alias=True, exclude=exclude), ensure_ascii=False)
    response = Response(
        body.encode("utf-8", "replace"), status_code=kind.status, headers=headers, media_type=PROBLEM_MEDIA_TYPE
    )
    if kind.status == 503:
        response.headers.setdefault("retry-after", str(RETRY_AFTER_S))
    return response


def problem_of_status(status: int, detail: str, **more: Any) -> Response:
    """A problem that the way to us met, rather than we; see `problem`."""
    return problem(_BY_STATUS.get(status, Kind("failed", status, "Error")), detail, **more)


def unauthenticated() -> Response:
    """The answer to a request with neither token nor key."""
    return problem_of_status(401, UNAUTHENTICATED, headers=CHALLENGE)


async def on_error(request: Request, error: Exception) -> Response:
    """An error that the gateway raised on purpose; none of their texts holds a secret."""
    kind = next((kind for known, kind in KINDS.items() if isinstance(error, known)), _UNKNOWN)
    if kind is _UNKNOWN:
        _log.error("api request failed", exc_info=error)
    if isinstance(error, MemoryConflict):
        return changed_meanwhile(error, kind.status)
    caller = request.scope.get(CALLER)
    if isinstance(error, Malformed) and error.problems:
        wrong = [(f"body.{at}", why) for at, why in named(error.problems, _on_the_wire).items()]
        fields = tuple(FieldProblem(where=where, problem=why) for where, why in wrong)
        return problem(kind, "; ".join(f"{where}: {why}" for where, why in wrong), errors=fields)
    is_private = isinstance(error, MemoryUnavailable) and isinstance(caller, Caller) and caller.user_id is not None
    return problem(kind, MemoryUnavailable.FOR_PEOPLE if is_private else str(error))


def _on_the_wire(field: str) -> str:
    """A field's name in JSON; keys of the configuration, below `settings.`, have one name everywhere."""
    return field if field.startswith(KEYS_BELOW) else to_camel(field)


def changed_meanwhile(error: MemoryConflict, status: int) -> Response:
    """A document is not the version any more that the caller read; both texts are in the answer."""
    return problem(
        replace(KINDS[MemoryConflict], status=status),
        str(error),
        current=error.current,
        current_version=error.current_version,
        proposed=error.proposed,
    )


async def on_http_error(request: Request, error: Exception) -> Response:
    """No such address, no such method, and what a dependency refuses."""
    if not isinstance(error, HTTPException):  # pragma: no cover (Starlette calls it for nothing else)
        raise error
    detail = _DETAILS.get(error.status_code, error.detail)
    status = 422 if error.status_code == 400 else error.status_code  # a body that cannot be read is not valid, either
    headers = {"allow": _allowed(request)} if status == 405 else error.headers
    return problem_of_status(status, detail, headers=headers)


def _allowed(request: Request) -> str:
    """All methods of an address; each has a route of its own, and the router knows of the first one only."""
    path = get_route_path(request.scope)
    routes = [route for router in request.app.state.routers for route in router.routes]
    fitting = [route for route in routes if route.path_regex.match(path)]
    exact = min((route.path.count("{") for route in fitting), default=0)  # `/people/links` is no person
    return ", ".join(sorted({one for route in fitting if route.path.count("{") == exact for one in route.methods}))


async def on_fault(request: Request, error: Exception) -> Response:
    """A fault of ours; the log has it all, the caller nothing of it."""
    _log.error("api request failed", path=request.url.path, exc_info=error)
    return problem(_UNKNOWN, "The gateway could not answer; its log says why.")
