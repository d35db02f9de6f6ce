"""What can go wrong between a client and the gateway, as exceptions.

::

    EthosError
    └── EthosApiError
        ├── NotReached         no answer came; says whether the request can have arrived
        ├── NoAnswer           the agent has not answered in time
        ├── BadAnswer          what came is not the gateway's, or of another version
        └── ProblemError       the gateway said no, in a problem document (RFC 9457)
            ├── NotKnown       401, the key is wrong or revoked
            ├── NotAllowed     403, the key may not do that
            ├── NotFound       404, there is no such thing, or not for this key
            ├── NotPossible    409, not as things are now
            │   ├── Conflict   it changed meanwhile; has both texts
            │   └── InProgress the same write is being done at this moment
            ├── Invalid        422, has the wrong fields
            ├── TooLarge       413
            ├── TooMany        429
            └── Unavailable    502, 503 and 504, it may work later
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from gateway.errors import EthosError
from gateway.sdk.models.schema import ConflictProblem, FieldProblem, Problem

PROBLEM_PREFIX = "urn:ethos:problem:"
MAX_SHOWN_CHARS = 200


class EthosApiError(EthosError):
    """The gateway did not do what was asked; the text says why, and mostly what to do.

    Attributes:
        is_repeatable: the same request may succeed a little later. The clients have repeated it already, for as long as
            their patience lasted.
        retry_after_s: how long the gateway asks us to wait; None where it does not say.
    """

    is_repeatable = False
    retry_after_s: float | None = None


class NotReached(EthosApiError):
    """No answer came.

    Attributes:
        may_have_arrived: False: the gateway cannot have seen the request. True: it may even have done it.
    """

    is_repeatable = True

    def __init__(self, reason: str, *, may_have_arrived: bool = False) -> None:
        super().__init__(reason)
        self.may_have_arrived = may_have_arrived


class NoAnswer(EthosApiError):
    """What was said is committed, but its answer takes longer than the caller wants to wait.

    Attributes:
        session, message: `client.chat.events(session)` brings the answer, whose `reply_to` is the message.
    """

    def __init__(self, session: str, message: str, waited_s: float) -> None:
        super().__init__(f"no answer came in {waited_s:g} s; it will stand in session {session}")
        self.session = session
        self.message = message


class BadAnswer(EthosApiError):
    """What came is no answer of a gateway of this version: another server, a proxy's page, a field that is missing."""


class ProblemError(EthosApiError):
    """The gateway said no.

    Attributes:
        problem: the whole document; `problem.type` is for programs, `problem.detail` for people.
    """

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        """Of HTTP."""
        return self.problem.status

    @property
    def kind(self) -> str:
        """The type of the problem, without its prefix, such as `not-found`."""
        return self.problem.type.removeprefix(PROBLEM_PREFIX)


class NotKnown(ProblemError):
    """Nobody is known by this key: it is wrong or revoked."""


class NotAllowed(ProblemError):
    """The key has not the scope, or sees one person only."""


class NotFound(ProblemError):
    """There is no such thing, or not for this key."""


class NotPossible(ProblemError):
    """It cannot be done as things are now: decided already, being worked on, another channel's."""


class Conflict(NotPossible):
    """The document changed since it was read, and nothing was written.

    Attributes:
        current: the text as it is now.
        current_version: what to write over next, when both texts are united.
        proposed: the text that was to be written.
    """

    def __init__(self, problem: ConflictProblem, retry_after_s: float | None = None) -> None:
        super().__init__(problem, retry_after_s)
        self.current = problem.current
        self.current_version = problem.current_version
        self.proposed = problem.proposed


class InProgress(NotPossible):
    """An earlier try of the same write is still being answered."""

    is_repeatable = True


class Invalid(ProblemError):
    """The request is not valid.

    Attributes:
        fields: each wrong field, where the gateway knows it.
    """

    @property
    def fields(self) -> tuple[FieldProblem, ...]:
        """Each with its place, such as `body.content`."""
        return self.problem.errors


class TooLarge(ProblemError):
    """The request, or the text in it, is larger than the gateway takes."""


class TooMany(ProblemError):
    """Too many wrong keys came from this address; wait."""

    is_repeatable = True


class Unavailable(ProblemError):
    """It is not possible now, and may be later."""

    is_repeatable = True


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    401: NotKnown,
    403: NotAllowed,
    404: NotFound,
    409: NotPossible,
    413: TooLarge,
    422: Invalid,
    429: TooMany,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}

_OF_PROXIES = frozenset({429, 502, 503, 504})
"""What a proxy says in words of its own for a gateway that it does not reach."""


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> EthosApiError:
    """The exception for an answer that is no success."""
    retry_after_s = _seconds(headers.get("retry-after"))
    try:
        problem = Problem.model_validate_json(body)
        if problem.type == f"{PROBLEM_PREFIX}conflict":
            return Conflict(ConflictProblem.model_validate_json(body), retry_after_s)
    except ValidationError:
        shown = body[:MAX_SHOWN_CHARS].decode("utf-8", "replace")
        if status not in _OF_PROXIES:
            return BadAnswer(f"the answer, with status {status}, is not one of Ethos Gateway: {shown}")
        problem = Problem(type="about:blank", title=f"HTTP {status}", status=status, detail=f"HTTP {status}: {shown}")
    if problem.type == f"{PROBLEM_PREFIX}in-progress":
        return InProgress(problem, retry_after_s)
    return _BY_STATUS.get(status, ProblemError)(problem, retry_after_s)


def _seconds(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds; None where it is not there, or is a date, which our gateway never sends."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
