"""Who may use the web server: the operator's token, the cookies of browsers, and what a request's scope says of it."""

from __future__ import annotations

import hmac
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from gateway.people.sign_ins import SignIns
from gateway.people.tries import SignInFailures, SignInFailuresInMemory
from gateway.services.caller import COMMAND_LINE, Caller, operator

OPERATOR = "operator"
CALLER = "ethos.caller"
"""Under this name a request's scope has the `Caller`, or None."""
PROOF = "ethos.proof"
"""Under this name it has what proved the caller, a `Proof`."""
OWNER = "ethos.owner"
"""Under this name the `state` of a scope says that the kernel has proved the owner: the connection is a Unix socket."""
SIGN_IN = "ethos.sign_in"
"""The browser's `SignIn`, where the proof is its cookie."""
API_CALLER = operator("api")
OWNER_CALLER = operator(COMMAND_LINE)

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

Proof = Literal["none", "cookie", "bearer", "key", "socket"]
Keys = Callable[[str], Awaitable[Caller | None]]
"""Gives the caller that holds an API key; None where it is wrong or revoked."""
Persons = Callable[[str], Awaitable[Caller | None]]
"""Gives the person of a user id as a caller; None where they have no access any more."""


@dataclass(frozen=True, slots=True)
class LoginResult:
    """`wait_s` is set where the secret was wrong, as were those before it.

    Attributes:
        user_id: the person who proved to be there; None: the operator.
    """

    is_accepted: bool
    wait_s: int = 0
    user_id: str | None = None


class OperatorAuth:
    """Knows the token, and begins, knows and ends the sign-ins of browsers.

    The cookie's name comes from the token: two gateways on one machine share the browser's cookies (RFC 6265, section
    8.5), and must not log each other out.
    """

    def __init__(self, token: str, sign_ins: SignIns, *, failures: SignInFailures | None = None) -> None:
        self._token = token
        self._failures = failures or SignInFailuresInMemory()
        self.sign_ins = sign_ins
        self.cookie_name = "ethos_session_" + hmac.digest(token.encode(), b"ethos web cookie name", "sha256").hex()[:8]

    async def try_token(self, candidate: str, address: str) -> LoginResult:
        """Compare in constant time; failures are counted per address."""
        if self.is_token(candidate):
            await self._failures.note_success(address)
            return LoginResult(is_accepted=True)
        return await self.failed(address)

    def is_token(self, candidate: str) -> bool:
        """Whether it is the operator's own; counts nothing."""
        return hmac.compare_digest(candidate.encode("utf-8", "replace"), self._token.encode())

    async def try_key(self, keys: Keys, candidate: str, address: str) -> tuple[Caller | None, LoginResult]:
        """The holder of an API key; failures are counted with those of the token."""
        caller = await keys(candidate)
        return caller, await self.failed(address) if caller is None else LoginResult(is_accepted=True)

    async def failed(self, address: str) -> LoginResult:
        """Count a failure of an address."""
        return LoginResult(is_accepted=False, wait_s=math.ceil(await self._failures.note_failure(address)))

    async def sign_in(self, request: HTTPConnection, user_id: str | None = None) -> str:
        """Sign the browser in; returns the cookie's value for `put_session`.

        Args:
            user_id: who proved to be this person; None: who has shown the token.
        """
        return await self.sign_ins.begin(request.headers.get("user-agent", ""), user_id)

    def put_session(self, response: Response, session: str, *, is_https: bool) -> None:
        """Give the browser its cookie."""
        response.set_cookie(
            self.cookie_name,
            session,
            max_age=int(self.sign_ins.max_age.total_seconds()),
            httponly=True,
            samesite="strict",
            secure=is_https,
        )

    def drop_session(self, response: Response) -> None:
        """Take the cookie from the browser; `SignIns.end` ends what it stands for."""
        response.delete_cookie(self.cookie_name, httponly=True, samesite="strict")


def client_address(scope: Scope) -> str:
    """The address of the client; no header is believed."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def is_https(scope: Scope) -> bool:
    """Whether the browser speaks HTTPS, to us or to a proxy; a lie here marks only the liar's own cookie."""
    return scope["scheme"] == "https" or Headers(scope=scope).get("x-forwarded-proto", "") == "https"
