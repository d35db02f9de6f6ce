"""Who may use the web server: one token, a session cookie made from it, and checks against foreign pages.

Everything is plain ASGI, so that event streams pass through unbuffered.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal
from urllib.parse import parse_qs, quote, urlsplit

from starlette.authentication import AuthCredentials, SimpleUser, UnauthenticatedUser
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from gateway.people.api_keys import is_key
from gateway.people.sign_ins import SignIn, SignIns
from gateway.people.tries import SignInFailures, SignInFailuresInMemory
from gateway.services.caller import COMMAND_LINE, Caller, operator
from gateway.web.pages import Fields, login_page, problem_response

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
COOKIE_PREFIX = b"ethos_"
FOR_MACHINES = ("/health", "/health/live", "/health/ready", "/metrics", "/metrics/")
"""What is asked by the address of a pod or a container, which no configuration knows."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
        "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # Under `no-referrer` a browser sends `Origin: null` with the login form (Fetch standard, "append a request Origin
    # header"). The one address with a token in it is answered by a redirect that says `no-referrer`.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


# ---- who it is ------------------------------------------------------------------------------------------------------


Keys = Callable[[str], Awaitable[Caller | None]]
"""Gives the caller that holds an API key; None where it is wrong or revoked."""


@dataclass(frozen=True, slots=True)
class LoginResult:
    """`wait_s` is set where the secret was wrong, as were those before it."""

    is_accepted: bool
    wait_s: int = 0


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
        return await self._failed(address)

    def is_token(self, candidate: str) -> bool:
        """Whether it is the operator's own; counts nothing."""
        return hmac.compare_digest(candidate.encode("utf-8", "replace"), self._token.encode())

    async def try_key(self, keys: Keys, candidate: str, address: str) -> tuple[Caller | None, LoginResult]:
        """The holder of an API key; failures are counted with those of the token."""
        caller = await keys(candidate)
        return caller, await self._failed(address) if caller is None else LoginResult(is_accepted=True)

    async def _failed(self, address: str) -> LoginResult:
        return LoginResult(is_accepted=False, wait_s=math.ceil(await self._failures.note_failure(address)))

    async def sign_in(self, request: HTTPConnection) -> str:
        """Sign the browser in that shows the token; returns the cookie's value for `put_session`."""
        return await self.sign_ins.begin(request.headers.get("user-agent", ""))

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


# ---- the checks -----------------------------------------------------------------------------------------------------

Proof = Literal["none", "cookie", "bearer", "key", "socket"]


class Gate:
    """Stands before everything: Host, Origin, who it is, and the headers of every response.

    It does not refuse: it puts Starlette's `user` and `auth` into the scope, and `OperatorOnly` refuses. Who
    holds an API key is a `Caller` in the scope, for the API to let in, and unknown to all else.
    """

    def __init__(
        self, app: ASGIApp, *, auth: OperatorAuth, allowed_hosts: Sequence[str], keys: Keys | None = None
    ) -> None:
        self._app = app
        self._auth = auth
        self._keys = keys
        self._allowed_hosts = frozenset(map(_hostname, allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then call the application."""
        if scope["type"] not in ("http", "websocket"):  # pragma: no cover (there is no lifespan here)
            await self._app(scope, receive, send)
            return
        scope["headers"] = [
            (name, _own_cookies(value) if name == b"cookie" else value) for name, value in scope["headers"]
        ]
        refusal = await self._identify(scope) or await self._token_in_address(scope)
        if refusal is None:
            await self._app(scope, self._until_signed_out(scope, receive), _with_security_headers(send))
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason="not allowed")(scope, receive, send)
        else:
            await refusal(scope, receive, _with_security_headers(send))

    async def _identify(self, scope: Scope) -> Response | None:
        """Put the user into the scope; a response means that the request goes no further."""
        headers = Headers(scope=scope)
        scope["user"], scope["auth"] = UnauthenticatedUser(), AuthCredentials()
        scope[CALLER], scope[PROOF], scope[SIGN_IN] = None, "none", None
        hosts = headers.getlist("host")
        is_known = len(hosts) == 1 and _hostname(hosts[0]) in self._allowed_hosts
        if not is_known and (len(hosts) != 1 or scope["path"] not in FOR_MACHINES):
            return problem_response(scope, 421, _wrong_host(hosts))
        proof, refusal = await self._proof(scope, headers)
        if refusal is not None:
            return refusal
        if not is_known and proof != "bearer":  # a page of another site can have its name lead here (DNS rebinding)
            scope[CALLER], scope[SIGN_IN], proof = None, None, "none"
        if not _is_own_page(scope, headers, hosts[0], proof):  # who forwards a port to the socket has a browser, too
            return problem_response(scope, 403, "The request came from a page that is not this gateway's own.")
        scope[PROOF] = proof
        if proof in ("cookie", "bearer", "socket"):
            scope["user"], scope["auth"] = SimpleUser(OPERATOR), AuthCredentials(["authenticated", OPERATOR])
            scope[CALLER] = OWNER_CALLER if proof == "socket" else API_CALLER
        return None

    async def _proof(self, scope: Scope, headers: Headers) -> tuple[Proof, Response | None]:
        """How the caller shows who they are; a wrong token or key is refused, not ignored."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            bearer = bearer.strip()
            if self._keys is not None and is_key(bearer) and not self._auth.is_token(bearer):
                scope[CALLER], result = await self._auth.try_key(self._keys, bearer, client_address(scope))
                return ("key", None) if result.is_accepted else ("none", refused_login(scope, result))
            result = await self._auth.try_token(bearer, client_address(scope))
            if result.is_accepted:
                return "bearer", None
            return "none", refused_login(scope, result)
        if scope.get("state", {}).get(OWNER, False):
            return "socket", None
        cookie = HTTPConnection(scope).cookies.get(self._auth.cookie_name, "")
        scope[SIGN_IN] = await self._auth.sign_ins.known(cookie) if cookie else None
        return ("none" if scope[SIGN_IN] is None else "cookie"), None

    def _until_signed_out(self, scope: Scope, receive: Receive) -> Receive:
        """To whatever answers, and perhaps for hours, the end of the sign-in looks like a client that went away."""
        sign_in: SignIn | None = scope[SIGN_IN]
        if sign_in is None or scope["type"] != "http":
            return receive
        return until(partial(self._auth.sign_ins.until_ended, sign_in), receive)

    async def _token_in_address(self, scope: Scope) -> Response | None:
        """Exchange `/?token=…`, the link printed at the start, for the cookie; the token leaves the address at once.

        A page of another site may lead here or show us in a frame: what it brings as a token is neither tried nor
        counted.
        """
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
            return None
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if not tokens:
            return None
        if not _is_opened_by_a_person(Headers(scope=scope)):
            return RedirectResponse("/", status_code=303, headers={"referrer-policy": "no-referrer"})
        result = await self._auth.try_token(tokens[0], client_address(scope))
        if result.is_accepted:
            response: Response = RedirectResponse("/", status_code=303)
            self._auth.put_session(response, await self._auth.sign_in(HTTPConnection(scope)), is_https=is_https(scope))
        elif result.wait_s:
            response = refused_login(scope, result)
        else:
            response = RedirectResponse("/login?wrong=1", status_code=303)
        response.headers["referrer-policy"] = "no-referrer"
        return response


class OperatorOnly:
    """Lets only the operator through to `app`; a person's browser is sent to the login page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or call the application."""
        if scope["user"].is_authenticated:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason="log in first")(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD") and "text/html" in Headers(scope=scope).get("accept", ""):
            here = scope["path"] + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else "")
            await RedirectResponse("/login?next=" + quote(here, safe=""), status_code=303)(scope, receive, send)
        else:
            response = problem_response(scope, 401, "Log in first, or send the token as `Authorization: Bearer …`.")
            response.headers["www-authenticate"] = "Bearer"
            await response(scope, receive, send)


def refused_login(scope: Scope, result: LoginResult) -> Response:
    """The answer to a wrong token or key, or to one that came during the pause."""
    if result.wait_s:
        response = problem_response(scope, 429, f"Too many wrong tokens. Try again in {result.wait_s} seconds.")
        response.headers["retry-after"] = str(result.wait_s)
    else:
        response = problem_response(
            scope,
            401,
            "The token or API key is wrong. `ethos open` on a terminal shows the link with the token, and "
            "`ethos keys create` makes a key.",
        )
        response.headers["www-authenticate"] = "Bearer"
    return response


def login_again(result: LoginResult, next_path: str, *, held: Fields | None = None) -> Response:
    """The login page after a wrong token; see `login_page`."""
    if not result.wait_s:
        return login_page(next_path=next_path, error="That is not the token of this gateway.", status=401, held=held)
    kept = "" if held is None else "; what you typed stays here"
    error = f"Too many wrong tokens. Try again in {result.wait_s} seconds{kept}."
    response = login_page(next_path=next_path, error=error, status=429, held=held)
    response.headers["retry-after"] = str(result.wait_s)
    return response


def client_address(scope: Scope) -> str:
    """The address of the client; no header is believed."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def is_https(scope: Scope) -> bool:
    """Whether the browser speaks HTTPS, to us or to a proxy; a lie here marks only the liar's own cookie."""
    return scope["scheme"] == "https" or Headers(scope=scope).get("x-forwarded-proto", "") == "https"


def _own_cookies(header: bytes) -> bytes:
    """A Cookie header without the cookies of others, and without those in quotes, as which we set none.

    To unquote 60 KB of backslashes, which any stranger can send, keeps Python before 3.11.10 and 3.12.6 busy for 20 s
    (CVE-2024-7592).
    """
    pairs = (pair.strip() for pair in header.split(b";"))
    return b"; ".join(pair for pair in pairs if pair.startswith(COOKIE_PREFIX) and b'"' not in pair)


def _hostname(host: str) -> str:
    """The name in a Host header, without its port: `[::1]:8420` is `[::1]`."""
    host = host.strip().lower()
    if host.startswith("["):
        name, _, port = host.partition("]")
        return name + "]" if not port or port.startswith(":") else host
    return host.partition(":")[0].rstrip(".")


def _wrong_host(hosts: Sequence[str]) -> str:
    if len(hosts) != 1:
        return "The request must name one host."
    return (
        f"This gateway does not answer to the name {_hostname(hosts[0])!r}. Open it under a name that it knows, or add "
        "this one to web.allowed_hosts in config.yaml."
    )


def _is_own_page(scope: Scope, headers: Headers, host: str, proof: Proof) -> bool:
    """Whether a page of ours, or no page at all, made the request.

    SameSite does not suffice: every port of one machine is the same site, and so sends our cookie. A browser tells the
    truth in Origin and Sec-Fetch-Site, which no page can set.
    """
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site", "")
    is_safe = scope["type"] == "http" and scope["method"] in SAFE_METHODS
    if origin is not None:
        parts = urlsplit(origin) if origin != "null" else None
        return parts is not None and parts.scheme in ("http", "https") and parts.netloc.lower() == host.strip().lower()
    if site in ("cross-site", "same-site"):  # a person may follow a link to us; nothing else is loaded from elsewhere
        return is_safe and headers.get("sec-fetch-mode") == "navigate"
    # A browser sends an Origin with all that is unsafe. Without one it is a program, which has no business with a
    # cookie; the applications that are open to the public check their own callers.
    return is_safe or proof != "cookie" or site == "same-origin"


def _is_opened_by_a_person(headers: Headers) -> bool:
    """Whether an address was typed, or opened from another program or a page of ours (W3C Fetch Metadata)."""
    site, destination = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-dest", "document")
    return site in ("none", "same-origin") and destination == "document"


def until(ended: Callable[[], Awaitable[object]], receive: Receive) -> Receive:
    """To an application that has the whole request and asks for what comes next, the end looks like a client that left.

    The request itself is passed on as it comes, without a task of its own: most applications ask for nothing else.
    """
    is_whole = False

    async def receive_until_ended() -> Message:
        nonlocal is_whole
        if not is_whole:
            message = await receive()
            is_whole = not message.get("more_body", False)
            return message
        arriving = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(ended())
        try:
            await asyncio.wait({arriving, ending}, return_when=asyncio.FIRST_COMPLETED)
            return arriving.result() if arriving.done() else {"type": "http.disconnect"}
        finally:
            arriving.cancel()
            ending.cancel()

    return receive_until_ended


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers
