"""What can go wrong between a client and the gateway, as exceptions.

::

    EthosError
    ├── AddressError                         the client was not told where the gateway is, or with which key
    └── APIError
        ├── APIConnectionError               no response came; says whether the request can have arrived
        │   └── APITimeoutError              one try took longer than `timeout`
        ├── AnswerTimeoutError               the agent did not answer in time
        ├── APIResponseValidationError       the response is not the gateway's, or of another version
        └── APIStatusError                   the gateway said no, in a problem document (RFC 9457)
            ├── AuthenticationError          401, the key is wrong or revoked
            ├── PermissionDeniedError        403, the key may not do that
            ├── NotFoundError                404, it does not exist, or not for this key
            ├── ConflictError                409, the current state does not allow it
            │   ├── VersionConflictError     the document changed meanwhile; has both texts
            │   └── RequestInProgressError   the same write is running at this moment
            ├── UnprocessableEntityError     422, names the wrong fields
            ├── RequestTooLargeError         413
            ├── RateLimitError               429
            ├── NotOfferedError              501, the memory that was chosen cannot do it
            └── ServiceUnavailableError      502, 503 and 504, it may work later
                └── MemoryUnavailableError   503, the memory is away; the gateway goes on without it
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from gateway.errors import EthosError
from gateway.sdk.models.schema import ConflictProblem, FieldProblem, Problem

PROBLEM_PREFIX = "urn:ethos:problem:"
MAX_SHOWN_CHARS = 200


class AddressError(EthosError):
    """The client was not told where the gateway is, or with which key; the text says what to give."""


class APIError(EthosError):
    """The gateway did not do what was asked; the text says why, and mostly what to do.

    Attributes:
        is_retryable: the same request may succeed a little later. The client has tried it again `max_retries` times.
        retry_after_s: how long the gateway asks us to wait; None where it does not say.
    """

    is_retryable = False
    retry_after_s: float | None = None


class APIConnectionError(APIError):
    """No response came.

    Attributes:
        may_have_arrived: False: the gateway cannot have seen the request. True: it may even have done it.
    """

    is_retryable = True

    def __init__(self, reason: str, *, may_have_arrived: bool = False) -> None:
        super().__init__(reason)
        self.may_have_arrived = may_have_arrived


class APITimeoutError(APIConnectionError):
    """No response came within the client's `timeout`."""


class AnswerTimeoutError(APIError):
    """The message is committed, but its answer takes longer than the caller wants to wait.

    Attributes:
        session, message: `client.chat.events(session)` brings the answer, whose `reply_to` is the message.
    """

    def __init__(self, session: str, message: str, waited_s: float) -> None:
        super().__init__(f"no answer came in {waited_s:g} s; it will be in session {session}")
        self.session = session
        self.message = message


class APIResponseValidationError(APIError):
    """The response is not one of a gateway of this version: another server, a proxy's page, a missing field."""


class APIStatusError(APIError):
    """The gateway said no.

    Attributes:
        problem: the whole document; `problem.type` is for programs, `problem.detail` for people.
    """

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after_s = retry_after_s

    @property
    def status_code(self) -> int:
        """Of HTTP."""
        return self.problem.status

    @property
    def kind(self) -> str:
        """The type of the problem, without its prefix, such as `not-found`."""
        return self.problem.type.removeprefix(PROBLEM_PREFIX)


class AuthenticationError(APIStatusError):
    """The key is wrong or revoked."""


class PermissionDeniedError(APIStatusError):
    """The key does not have the scope, or is limited to one person."""


class NotFoundError(APIStatusError):
    """It does not exist, or not for this key."""


class ConflictError(APIStatusError):
    """The current state does not allow it: it is decided already, in use, or belongs to another channel."""


class VersionConflictError(ConflictError):
    """The document changed since it was read, and nothing was written.

    Attributes:
        current: the text as it is now.
        current_version: the version to write over, once both texts are merged.
        proposed: the text that was to be written.
    """

    def __init__(self, problem: ConflictProblem, retry_after_s: float | None = None) -> None:
        super().__init__(problem, retry_after_s)
        self.current = problem.current
        self.current_version = problem.current_version
        self.proposed = problem.proposed


class RequestInProgressError(ConflictError):
    """An earlier try of the same write is still running."""

    is_retryable = True


class UnprocessableEntityError(APIStatusError):
    """The request is not valid."""

    @property
    def fields(self) -> tuple[FieldProblem, ...]:
        """Each wrong field with its path, such as `body.content`, where the gateway knows it."""
        return self.problem.errors


class RequestTooLargeError(APIStatusError):
    """The request, or the text in it, is larger than the gateway takes."""


class RateLimitError(APIStatusError):
    """Too many wrong keys came from this address; wait."""

    is_retryable = True


class NotOfferedError(APIStatusError):
    """The memory that was chosen cannot do it, so it is never possible here; `client.memory.provider()` says more."""


class ServiceUnavailableError(APIStatusError):
    """It is not possible now, and may be later."""

    is_retryable = True


class MemoryUnavailableError(ServiceUnavailableError):
    """The server of the memory is away. The gateway asks it again after up to a minute; a client would only wait."""

    is_retryable = False


_BY_STATUS: Mapping[int, type[APIStatusError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    413: RequestTooLargeError,
    422: UnprocessableEntityError,
    429: RateLimitError,
    501: NotOfferedError,
    502: ServiceUnavailableError,
    503: ServiceUnavailableError,
    504: ServiceUnavailableError,
}

_OF_PROXIES = frozenset({429, 502, 503, 504})
"""What a proxy says in words of its own for a gateway that it does not reach."""


def error_from(status: int, headers: Mapping[str, str], body: bytes) -> APIError:
    """The exception for a response that is no success."""
    retry_after_s = _seconds(headers.get("retry-after"))
    try:
        problem = Problem.model_validate_json(body)
        if problem.type == f"{PROBLEM_PREFIX}conflict":
            return VersionConflictError(ConflictProblem.model_validate_json(body), retry_after_s)
    except ValidationError:
        shown = body[:MAX_SHOWN_CHARS].decode("utf-8", "replace")
        if status not in _OF_PROXIES:
            return APIResponseValidationError(
                f"the response, with status {status}, is not one of Ethos Gateway: {shown}"
            )
        problem = Problem(type="about:blank", title=f"HTTP {status}", status=status, detail=f"HTTP {status}: {shown}")
    if problem.type == f"{PROBLEM_PREFIX}in-progress":
        return RequestInProgressError(problem, retry_after_s)
    if problem.type == f"{PROBLEM_PREFIX}memory-unavailable":
        return MemoryUnavailableError(problem, retry_after_s)
    return _BY_STATUS.get(status, APIStatusError)(problem, retry_after_s)


def _seconds(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds; None where it is missing, or a date, which our gateway never sends."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
