"""The dashboard as one ASGI application: its pages, the stream that keeps them live, and who comes in."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.errors import EthosError, MemoryUnavailable, NotOffered
from gateway.web.api.events import EventStreamResponse
from gateway.web.auth import OPERATOR, OperatorAuth, OperatorOnly, client_address, is_https, login_again
from gateway.web.dashboard.page import BASE, all_pages
from gateway.web.dashboard.page_context import MOMENT, SETUP, THEME_COOKIE, THEMES, PageContext, Sources, own_path
from gateway.web.forms import FORM_TYPE, Form, read_form
from gateway.web.pages import broken_off, login_page

AGAIN_PATH = "/again"
# What strangers may make us read at once.
MAX_HELD_FORMS = 4
THEME_MAX_AGE_S = 365 * 24 * 3600


class Dashboard:
    """Mounted at `/dashboard`.

    Args:
        key: a secret of the gateway, for the tokens of forms and the notes.
    """

    def __init__(self, auth: OperatorAuth, key: bytes, sources: Sources) -> None:
        self._auth = auth
        self.context = PageContext(auth, key, sources)
        self._held_forms = asyncio.Semaphore(MAX_HELD_FORMS)
        pages = all_pages()
        home = next(page.path for page in pages if page.name != "setup")
        self._inside = Starlette(
            routes=[
                Route("/", lambda _request: RedirectResponse(home, status_code=303)),
                Route("/events", self._events),
                Route("/theme", self.context.form_handler(self._choose_theme), methods=["POST"]),
                *(route for page in pages for route in page.routes(self.context)),
            ],
            exception_handlers={
                HTTPException: self._http_problem,
                EthosError: self._ethos_problem,
                ClientDisconnect: broken_off,
            },
        )
        self.routes = self._inside.routes
        self._operator_only = OperatorOnly(self._inside)

    # ---- who comes in ----------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As `OperatorOnly`, but what a form holds is kept through the login."""
        request = Request(scope, receive) if scope["type"] == "http" else None
        if request is not None and _is_operator(request):
            scope[MOMENT] = self.context.live.mark()  # before anything is read that the page will show
            scope[SETUP] = await self.context.services.setup.is_open()
        if request is None or not _is_form_of_a_browser(request):
            await self._operator_only(scope, receive, send)
        elif request.url.path == BASE + AGAIN_PATH:
            await (await self._log_in_again(request))(scope, receive, send)
        elif _is_operator(request):
            await self._inside(scope, receive, send)
        else:
            async with self._held_forms:
                form = await read_form(request)
            await login_page(next_path=request.url.path, held=form.showable, status=401)(scope, receive, send)

    async def _log_in_again(self, request: Request) -> Response:
        """The login after a form was sent with an ended session."""
        async with self._held_forms:
            form = await read_form(request)
        action = own_path(form.get("next"), BASE + "/")
        held = Form([(key.removeprefix("held."), value) for key, value in form.fields if key.startswith("held.")])
        if _is_operator(request):  # in another window, meanwhile
            return self.context.offer_again(request, held, action)
        result = await self._auth.try_token(form.get("token").strip(), client_address(request.scope))
        if not result.is_accepted:
            return login_again(result, action, held=held.fields)
        session = await self._auth.sign_in(request)
        response = self.context.offer_again(request, held, action, session=session)
        self._auth.put_session(response, session, is_https=is_https(request.scope))
        return response

    async def first_page(self) -> str:
        """Where the operator begins: in the set-up while nothing is configured or it was begun, else in the chat."""
        return f"{BASE}/setup" if await self.context.services.setup.leads() else f"{BASE}/chat"

    # ---- what is no page -------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        if self.context.live.is_full:
            return Response("Too many pages are open; close some.", 503, headers={"retry-after": "30"})
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return EventStreamResponse(self.context.live.events(after))

    async def _choose_theme(self, request: Request, form: Form) -> Response:
        response = self.context.go(request, own_path(form.get("back"), BASE + "/"))
        theme = form.get("theme")
        if theme in THEMES:
            response.set_cookie(
                THEME_COOKIE, theme, max_age=THEME_MAX_AGE_S, samesite="strict", secure=is_https(request.scope)
            )
        else:
            response.delete_cookie(THEME_COOKIE, samesite="strict")
        return response

    async def _http_problem(self, request: Request, error: Exception) -> Response:
        status, text = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
        if status == 404:
            return self.context.problem(
                request, "There is nothing here", "No page of the dashboard has this address.", status=404
            )
        return self.context.problem(request, "That cannot be done", text, status=status)

    async def _ethos_problem(self, request: Request, error: Exception) -> Response:
        """An error of ours says what is wrong and what to do, for people."""
        if isinstance(error, NotOffered):
            return self.context.problem(request, "Not offered", str(error), status=501)
        status = 503 if isinstance(error, MemoryUnavailable) else 409
        return self.context.problem(request, "That did not work", str(error), status=status)


def _is_operator(request: Request) -> bool:
    return OPERATOR in request.auth.scopes


def _is_form_of_a_browser(request: Request) -> bool:
    headers = request.headers
    is_form = headers.get("content-type", "").startswith(FORM_TYPE)
    return request.method == "POST" and is_form and "text/html" in headers.get("accept", "")
