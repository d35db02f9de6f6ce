"""The pages that the gateway itself shows: the login, and what went wrong."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Scope

from gateway.web.openai.errors import openai_error

if TYPE_CHECKING:
    from jinja2 import Environment

    from gateway.services.logins import Invited

Fields = Sequence[tuple[str, str]]
STATIC_DIR = Path(__file__).parent / "static"
API_PATH = "/api/"
OPENAI_PATH = "/v1/"
PROBLEM_MEDIA_TYPE = "application/problem+json"

_TITLES = {
    400: "That request makes no sense",
    401: "Log in first",
    403: "Not allowed",
    404: "There is nothing here",
    405: "That cannot be done here",
    413: "That is too large",
    421: "Wrong name",
    429: "Please wait",
    500: "Something broke",
    503: "Not ready",
}
# What the server itself says before the API is asked, in the API's own words.
_API_PROBLEMS = {
    401: ("not-authenticated", "Unauthorized"),
    403: ("not-allowed", "Forbidden"),
    421: ("wrong-name", "Misdirected request"),
    429: ("too-many", "Too many requests"),
}


@functools.cache
def templates() -> Environment:
    """The templates of all pages."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 (loaded with the first page)

    from gateway.web.dashboard.filters import FILTERS  # noqa: PLC0415 (loaded with the first page)

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    return environment


def _page(template: str, status: int, **values: Any) -> HTMLResponse:
    html = templates().get_template(template).render(status=status, **values)
    return HTMLResponse(html, status_code=status)


def login_page(
    *,
    next_path: str,
    error: str | None = None,
    status: int = 200,
    held: Fields | None = None,
    name: str | None = None,
    has_passwords: bool = False,
    provider: str | None = None,
) -> Response:
    """Ask who it is; `next_path` is where to go afterwards.

    Args:
        held: the fields of a form that was sent without a login; they come back after it.
        name: that was typed with a password; None: no password was tried.
        has_passwords: whether anybody signs in with one.
        provider: what the OpenID provider is called; None: there is none.
    """
    ways = {"has_passwords": has_passwords, "provider": provider}
    return _page("login.html", status, next_path=next_path, error=error, held=held, name=name, **ways)


def join_page(
    invited: Invited,
    *,
    secret: str,
    provider: str | None = None,
    name: str | None = None,
    problems: Mapping[str, str] | None = None,
    status: int = 200,
) -> Response:
    """Have an invited person choose how they sign in.

    Args:
        secret: of the invitation.
        provider: what the OpenID provider is called that can take the place of a password; None: there is none.
        name: that was typed; None: nothing was.
        problems: what is wrong, by field.
    """
    import segno  # noqa: PLC0415 (loaded with the first invitation)

    picture = segno.make(invited.address, error="m").svg_inline(border=4, omitsize=True, dark="#000", light="#fff")
    ways = {"secret": secret, "provider": provider}
    values = {"invited": invited, **ways, "name": invited.name if name is None else name, "problems": problems or {}}
    return _page("join.html", status, qr_code=Markup(picture), **values)  # noqa: S704 (made here)


def joined_page(codes: Sequence[str]) -> Response:
    """Show the recovery codes, once."""
    return _page("joined.html", 200, codes=codes)


def logged_in_page() -> Response:
    """For the operator, where neither a channel nor the gateway has pages to go on with."""
    return message_page("The gateway is running", "It has no pages here.")


def message_page(title: str, text: str, status: int = 200) -> Response:
    """Say something to a person."""
    return _page("message.html", status, title=title, text=text)


def sign_in_page(title: str, texts: Sequence[str], address: str | None = None) -> Response:
    """Ask whether to sign in to a server; with an `address`, the way there."""
    return _page("sign_in.html", 200, title=title, texts=texts, address=address)


def problem_type(name: str) -> str:
    """The `type` of a problem document: RFC 9457 wants a URI, and this one says which of ours it is."""
    return f"urn:ethos:problem:{name}"


def problem_response(scope: Scope, status: int, text: str) -> Response:
    """Say what is wrong: as a page to a browser, as `{"error": text}` to a program, in the API and `/v1` as they do."""
    if scope.get("path", "").startswith(OPENAI_PATH):
        return openai_error(status, text)
    if scope.get("path", "").startswith(API_PATH):
        name, title = _API_PROBLEMS.get(status, ("failed", "That went wrong"))
        content = {"type": problem_type(name), "title": title, "status": status, "detail": text}
        return JSONResponse(content, status_code=status, media_type=PROBLEM_MEDIA_TYPE)
    if "text/html" in Headers(scope=scope).get("accept", ""):
        return _page("message.html", status, title=_TITLES.get(status, "Something is wrong"), text=text)
    return JSONResponse({"error": text}, status_code=status)


async def broken_off(request: Request, _error: Exception) -> Response:
    """Answer a request whose client has left: there is no reader any more, and it is no fault of ours."""
    return problem_response(request.scope, 400, "The request broke off.")
