"""The door of the web server: who asks is put into the scope, and those who may not come in are turned away.

Everything is plain ASGI, so that event streams pass through unbuffered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import parse_qs, quote

from starlette.authentication import AuthCredentials, SimpleUser, UnauthenticatedUser
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from gateway.people.api_keys import is_key
from gateway.people.sign_ins import SignIn
from gateway.services.caller import Caller
from gateway.web.auth import (
    API_CALLER,
    CALLER,
    OPERATOR,
    OWNER,
    OWNER_CALLER,
    PROOF,
    SIGN_IN,
    Keys,
    LoginResult,
    OperatorAuth,
    Persons,
    Proof,
    client_address,
    is_https,
)
from gateway.web.own_pages import (
    hostname,
    is_opened_by_a_person,
    is_own_page,
    own_cookies,
    until,
    with_security_headers,
    wrong_host,
)
from gateway.web.pages import problem_response

FOR_MACHINES = ("/health", "/health/live", "/health/ready", "/metrics", "/metrics/")
"""What is asked by the address of a pod or a container, which no configuration knows."""


class Gate:
    """Stands before everything: Host, Origin, who it is, and the headers of every response.

    It does not refuse: it puts Starlette's `user` and `auth` into the scope, and `OperatorOnly` refuses. Who
    holds an API key is a `Caller` in the scope, for the API to let in, and unknown to all else.

    Args:
        persons: who has signed in, as a caller; asked at each request, so that a new role counts at once.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        auth: OperatorAuth,
        allowed_hosts: Sequence[str],
        keys: Keys | None = None,
        persons: Persons | None = None,
    ) -> None:
        self._app = app
        self._auth = auth
        self._keys = keys
        self._persons = persons
        self._allowed_hosts = frozenset(map(hostname, allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then call the application."""
        if scope["type"] not in ("http", "websocket"):  # pragma: no cover (there is no lifespan here)
            await self._app(scope, receive, send)
            return
        scope["headers"] = [
            (name, own_cookies(value) if name == b"cookie" else value) for name, value in scope["headers"]
        ]
        refusal = await self._identify(scope) or await self._token_in_address(scope)
        if refusal is None:
            await self._app(scope, self._until_signed_out(scope, receive), with_security_headers(send))
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason="not allowed")(scope, receive, send)
        else:
            await refusal(scope, receive, with_security_headers(send))

    async def _identify(self, scope: Scope) -> Response | None:
        """Put the user into the scope; a response means that the request goes no further."""
        headers = Headers(scope=scope)
        scope["user"], scope["auth"] = UnauthenticatedUser(), AuthCredentials()
        scope[CALLER], scope[PROOF], scope[SIGN_IN] = None, "none", None
        hosts = headers.getlist("host")
        is_known = len(hosts) == 1 and hostname(hosts[0]) in self._allowed_hosts
        if not is_known and (len(hosts) != 1 or scope["path"] not in FOR_MACHINES):
            return problem_response(scope, 421, wrong_host(hosts))
        proof, refusal = await self._proof(scope, headers)
        if refusal is not None:
            return refusal
        if not is_known and proof != "bearer":  # a page of another site can have its name lead here (DNS rebinding)
            scope[CALLER], scope[SIGN_IN], proof = None, None, "none"
        if not is_own_page(scope, headers, hosts[0], proof):  # who forwards a port to the socket has a browser, too
            return problem_response(scope, 403, "The request came from a page that is not this gateway's own.")
        scope[PROOF] = proof
        if proof in ("cookie", "bearer", "socket"):
            caller: Caller = scope[CALLER] or (OWNER_CALLER if proof == "socket" else API_CALLER)
            scope[CALLER] = caller
            rights = ["authenticated", OPERATOR] if caller.is_operator else ["authenticated"]
            scope["user"], scope["auth"] = SimpleUser(caller.speaks_as or OPERATOR), AuthCredentials(rights)
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
        sign_in = await self._auth.sign_ins.known(cookie) if cookie else None
        if sign_in is not None and sign_in.user_id is not None:
            scope[CALLER] = None if self._persons is None else await self._persons(sign_in.user_id)
            if scope[CALLER] is None:  # barred, erased, or without an account
                await self._auth.sign_ins.end(sign_in.id)
                sign_in = None
        scope[SIGN_IN] = sign_in
        return ("none" if sign_in is None else "cookie"), None

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
        if not is_opened_by_a_person(Headers(scope=scope)):
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
    """Lets only the operator and owners through to `app`; a browser that nobody is signed in with goes to the login.

    Args:
        also_persons: others who have signed in, too; the application decides what they may.
    """

    def __init__(self, app: ASGIApp, *, also_persons: bool = False) -> None:
        self._app = app
        self._needed = "authenticated" if also_persons else OPERATOR

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or call the application."""
        if self._needed in scope["auth"].scopes:
            await self._app(scope, receive, send)
        elif scope["user"].is_authenticated and scope["type"] == "http":
            await problem_response(scope, 403, "Only an owner of this gateway may open this.")(scope, receive, send)
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
