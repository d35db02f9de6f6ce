"""Who may use the web server: one token, a session cookie made from it, and checks against foreign pages.

Everything is plain ASGI, so that event streams pass through unbuffered.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, quote, urlsplit

import structlog
from itsdangerous import BadSignature, TimestampSigner
from starlette.authentication import AuthCredentials, SimpleUser, UnauthenticatedUser
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from gateway.errors import ConfigError
from gateway.home import TOKEN_NAME
from gateway.web.pages import problem_response

OPERATOR = "operator"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
SESSION_MAX_AGE_S = 30 * 24 * 3600
MIN_TOKEN_CHARS = 20

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

_log = structlog.get_logger(__name__)


# ---- the token ------------------------------------------------------------------------------------------------------


def load_token(data_dir: Path) -> str:
    """Read the operator's token, or make it at the first start; the file is readable by its owner only.

    Raises:
        ConfigError: the file cannot be used; says what to do.
    """
    path = data_dir / TOKEN_NAME
    try:
        token = _read_token(path)
        if not token:
            _write_token(path, secrets.token_urlsafe(32))
            token = _read_token(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            [f"{path}: the web token cannot be used ({error}); remove the file and start again"]
        ) from error
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        problem = f"the web token must have {MIN_TOKEN_CHARS} or more printable ASCII characters, without spaces"
        raise ConfigError([f"{path}: {problem}; remove the file and start again, and a good one is made"])
    return token


def _read_token(path: Path) -> str:
    """The token; an empty text where there is no file or nothing in it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o077:
            os.fchmod(descriptor, 0o600)
            _log.warning(
                "web token was readable by others; its mode is repaired, remove the file to get a new token",
                path=str(path),
                mode=f"{mode:04o}",
            )
        return file.read(4096).strip()


def _write_token(path: Path, token: str) -> None:
    """Put the file there whole; a second process that starts at the same time gets the same token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(descriptor)
        if path.exists():  # empty: what a crash or a full disk left behind
            draft.replace(path)
        else:
            with contextlib.suppress(FileExistsError):  # the other process was first: its token counts
                os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


# ---- who it is ------------------------------------------------------------------------------------------------------


class FailurePause:
    """After some failures in a row, one address has to wait. Bounded: the address that failed longest ago is forgotten.

    Args:
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        max_failures: int = 5,
        pause_s: float = 60.0,
        max_addresses: int = 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = max_failures
        self._pause_s = pause_s
        self._max_addresses = max_addresses
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def remaining_s(self, address: str) -> float:
        """How long `address` has to wait yet; 0 when it may try."""
        count, last_at_s = self._failures.get(address, (0, 0.0))
        remaining_s = last_at_s + self._pause_s - self._clock()
        if count and remaining_s <= 0:
            del self._failures[address]
        return remaining_s if count >= self._max_failures and remaining_s > 0 else 0.0

    def note_failure(self, address: str) -> None:
        """Count one failure."""
        self.remaining_s(address)  # forgets failures that are over
        count, _ = self._failures.pop(address, (0, 0.0))
        self._failures[address] = (count + 1, self._clock())
        if len(self._failures) > self._max_addresses:
            self._failures.popitem(last=False)

    def note_success(self, address: str) -> None:
        """Forget the failures."""
        self._failures.pop(address, None)


@dataclass(frozen=True, slots=True)
class LoginResult:
    """`retry_after_s` is set while the caller's address has to wait, and then nothing was compared."""

    is_accepted: bool
    retry_after_s: float = 0.0


class OperatorAuth:
    """Knows the token, and makes and checks the session cookies.

    The cookie's key and its name come from the token: a new token ends every session, and two gateways on one machine,
    which share the browser's cookies (RFC 6265, section 8.5), don't log each other out.
    """

    def __init__(
        self, token: str, *, session_max_age_s: int = SESSION_MAX_AGE_S, pause: FailurePause | None = None
    ) -> None:
        self._token = token
        self._signer = TimestampSigner(_derived(token, "session key"), digest_method=hashlib.sha256)
        self._pause = pause or FailurePause()
        self.session_max_age_s = session_max_age_s
        self.cookie_name = "ethos_session_" + _derived(token, "cookie name").hex()[:8]

    def try_token(self, candidate: str, address: str) -> LoginResult:
        """Compare in constant time; failures are counted per address."""
        retry_after_s = self._pause.remaining_s(address)
        if retry_after_s:
            return LoginResult(is_accepted=False, retry_after_s=retry_after_s)
        if hmac.compare_digest(candidate.encode("utf-8", "replace"), self._token.encode()):
            self._pause.note_success(address)
            return LoginResult(is_accepted=True)
        self._pause.note_failure(address)
        return LoginResult(is_accepted=False, retry_after_s=self._pause.remaining_s(address))

    def is_session(self, cookie: str) -> bool:
        """Whether we signed it, with this token and not too long ago."""
        try:
            return self._signer.unsign(cookie, max_age=self.session_max_age_s) == OPERATOR.encode()
        except BadSignature:
            return False

    def new_session(self) -> str:
        """A cookie's value."""
        return self._signer.sign(OPERATOR).decode("ascii")

    def put_session(self, response: Response, *, is_https: bool, session: str | None = None) -> None:
        """Log the browser in."""
        response.set_cookie(
            self.cookie_name,
            session or self.new_session(),
            max_age=self.session_max_age_s,
            httponly=True,
            samesite="strict",
            secure=is_https,
        )

    def end_session(self, response: Response) -> None:
        """Log the browser out."""
        response.delete_cookie(self.cookie_name, httponly=True, samesite="strict")


def _derived(token: str, purpose: str) -> bytes:
    return hmac.digest(token.encode(), f"ethos web {purpose}".encode(), "sha256")


# ---- the checks -----------------------------------------------------------------------------------------------------

Proof = Literal["none", "cookie", "bearer"]


class Gate:
    """Stands before everything: Host, Origin, who it is, and the headers of every response.

    It lets nobody in by itself: it puts Starlette's `user` and `auth` into the scope, and `OperatorOnly` refuses.
    """

    def __init__(self, app: ASGIApp, *, auth: OperatorAuth, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._auth = auth
        self._allowed_hosts = frozenset(map(_hostname, allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then call the application."""
        if scope["type"] not in ("http", "websocket"):  # pragma: no cover (there is no lifespan here)
            await self._app(scope, receive, send)
            return
        refusal = self._identify(scope) or self._token_in_address(scope)
        if refusal is None:
            await self._app(scope, receive, _with_security_headers(send))
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason="not allowed")(scope, receive, send)
        else:
            await refusal(scope, receive, _with_security_headers(send))

    def _identify(self, scope: Scope) -> Response | None:
        """Put the user into the scope; a response means that the request goes no further."""
        headers = Headers(scope=scope)
        scope["user"], scope["auth"] = UnauthenticatedUser(), AuthCredentials()
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _hostname(hosts[0]) not in self._allowed_hosts:
            return problem_response(scope, 421, _wrong_host(hosts))
        proof, refusal = self._proof(scope, headers)
        if refusal is not None:
            return refusal
        if not _is_own_page(scope, headers, hosts[0], proof):
            return problem_response(scope, 403, "The request came from a page that is not this gateway's own.")
        if proof != "none":
            scope["user"], scope["auth"] = SimpleUser(OPERATOR), AuthCredentials(["authenticated", OPERATOR])
        return None

    def _proof(self, scope: Scope, headers: Headers) -> tuple[Proof, Response | None]:
        """How the caller shows to be the operator; a wrong bearer token is refused, not ignored."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            result = self._auth.try_token(bearer.strip(), client_address(scope))
            if result.is_accepted:
                return "bearer", None
            return "none", refused_login(scope, result)
        cookie = HTTPConnection(scope).cookies.get(self._auth.cookie_name, "")
        return ("cookie" if cookie and self._auth.is_session(cookie) else "none"), None

    def _token_in_address(self, scope: Scope) -> Response | None:
        """Exchange `/?token=…`, the link printed at the start, for the cookie; the token leaves the address at once."""
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
            return None
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if not tokens:
            return None
        result = self._auth.try_token(tokens[0], client_address(scope))
        if result.is_accepted:
            response: Response = RedirectResponse("/", status_code=303)
            self._auth.put_session(response, is_https=is_https(scope))
        elif result.retry_after_s:
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
    """The answer to a wrong token, or to one that came during the pause."""
    if result.retry_after_s:
        wait_s = int(result.retry_after_s) + 1
        response = problem_response(scope, 429, f"Too many wrong tokens. Try again in {wait_s} seconds.")
        response.headers["retry-after"] = str(wait_s)
    else:
        response = problem_response(
            scope, 401, "The token is wrong. It stands in the file web-token of the data directory."
        )
        response.headers["www-authenticate"] = "Bearer"
    return response


def client_address(scope: Scope) -> str:
    """The address of whoever is connected: no header is believed."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def is_https(scope: Scope) -> bool:
    """Whether the browser speaks HTTPS, to us or to a proxy; a lie here marks only the liar's own cookie."""
    return scope["scheme"] == "https" or Headers(scope=scope).get("x-forwarded-proto", "") == "https"


def _hostname(host: str) -> str:
    """The name in a Host header, without its port: `[::1]:8420` is `[::1]`."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
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
    if site in ("cross-site", "same-site"):  # somebody may follow a link to us; nothing else is loaded from elsewhere
        return is_safe and headers.get("sec-fetch-mode") == "navigate"
    # A browser sends an Origin with all that is unsafe. Without one it is a program, which has no business with a
    # cookie; the applications that are open to the public check their callers by themselves.
    return is_safe or proof != "cookie" or site == "same-origin"


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers
