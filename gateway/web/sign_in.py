"""The pages on which people sign in to servers of tools; open to everybody who has a link."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from gateway.errors import EthosError
from gateway.mcp.errors import SignInFailed
from gateway.mcp.sign_ins import CALLBACK_PATH, DOCUMENT_PATH, PATH, SignIns
from gateway.web.auth import is_https
from gateway.web.pages import message_page, problem_response, sign_in_page

_COOKIE = "ethos_sign_in_"
_ENDED = "This link has ended. Ask again in your chat, and you get a new one."
_FAILED = "You are not signed in"
_WHOSE = (
    "All people whom this gateway answers will use the account that you choose.",
    "You let this gateway use your account there. It does so only when you ask for it in your own chats.",
)
_CARE = "Go on only if you have asked for this link yourself."


def sign_in_routes(sign_ins: SignIns) -> Sequence[BaseRoute]:
    """The pages, from the most special address on."""
    return [
        Route(DOCUMENT_PATH, partial(_document, sign_ins)),
        Route(CALLBACK_PATH, partial(_come_back, sign_ins)),
        Route(f"{PATH}/{{link}}", partial(_ask, sign_ins), methods=["GET"]),
        Route(f"{PATH}/{{link}}", partial(_begin, sign_ins), methods=["POST"]),
    ]


async def _document(sign_ins: SignIns, request: Request) -> Response:
    """What an authorization server reads about us."""
    document = sign_ins.document
    if document is None:
        return problem_response(request.scope, 404, "This gateway has no public address; set `web.public_url`.")
    return JSONResponse(document)


async def _ask(sign_ins: SignIns, request: Request) -> Response:
    """A program that shows a preview of the link comes only as far as this."""
    account = sign_ins.account_of(request.path_params["link"])
    if account is None:
        return message_page(_FAILED, _ENDED, 404)
    return sign_in_page(f"Sign in to {account.server}", [_WHOSE[bool(account.user_id)], _CARE])


async def _begin(sign_ins: SignIns, request: Request) -> Response:
    account = sign_ins.account_of(request.path_params["link"])
    if account is None:
        return message_page(_FAILED, _ENDED, 404)
    try:
        begun = await sign_ins.begin(account)
    except (SignInFailed, EthosError) as error:
        return message_page(_FAILED, _sentence(error), 503)
    host = urlsplit(begun.address).hostname
    response = sign_in_page(f"Sign in to {account.server}", [f"Your browser goes to {host}."], begun.address)
    # A form may lead nowhere else by our content security policy, and a page may.
    response.headers["refresh"] = f"0; url={begun.address}"
    response.set_cookie(
        _COOKIE + begun.state[:12],
        begun.browser,
        max_age=int(sign_ins.lifetime_s),
        path=PATH,
        httponly=True,
        samesite="lax",  # the server's page leads back to us
        secure=is_https(request.scope),
    )
    return response


async def _come_back(sign_ins: SignIns, request: Request) -> Response:
    query = dict(request.query_params)
    browser = request.cookies.get(_COOKIE + query.get("state", "")[:12], "")
    try:
        account = await sign_ins.finish(query, browser)
    except (SignInFailed, EthosError) as error:
        return message_page(_FAILED, _sentence(error), 400)
    response = message_page(f"You are signed in to {account.server}", "Close this page, and ask again in your chat.")
    response.delete_cookie(_COOKIE + query["state"][:12], path=PATH)
    return response


def _sentence(error: Exception) -> str:
    text = str(error).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
