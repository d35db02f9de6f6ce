"""The pages that the gateway itself shows: the login, and what went wrong."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Scope

STATIC_DIR = Path(__file__).parent / "static"

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


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _page(template: str, status: int, **values: Any) -> HTMLResponse:
    html = _environment().get_template(template).render(status=status, **values)
    return HTMLResponse(html, status_code=status)


def login_page(
    *, next_path: str, error: str | None = None, status: int = 200, held: Sequence[tuple[str, str]] | None = None
) -> Response:
    """Ask for the token; `next_path` is where to go afterwards.

    Args:
        held: the fields of a form that was sent without a login; they come back after it.
    """
    return _page("login.html", status, next_path=next_path, error=error, held=held)


def logged_in_page() -> Response:
    """For the operator, where no channel brings a page of its own."""
    return _page(
        "message.html",
        200,
        title="The gateway is running",
        text="No web chat is configured. Add a channel of the kind “web” to config.yaml to talk here.",
    )


def problem_response(scope: Scope, status: int, text: str) -> Response:
    """Say what is wrong: as a page to a browser, as `{"error": text}` to a program."""
    if "text/html" in Headers(scope=scope).get("accept", ""):
        return _page("message.html", status, title=_TITLES.get(status, "Something is wrong"), text=text)
    return JSONResponse({"error": text}, status_code=status)
