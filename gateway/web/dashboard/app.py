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
from gateway.services.caller import Caller
from gateway.web.api.events import EventStreamResponse
from gateway.web.auth import CALLER, OPERATOR, OperatorAuth, is_https
from gateway.web.dashboard.page import BASE, all_pages
from gateway.web.dashboard.page_context import MOMENT, SETUP, THEME_COOKIE, THEMES, PageContext, Sources, own_path
from gateway.web.forms import FORM_TYPE, Form, read_form
from gateway.web.gate import OperatorOnly
from gateway.web.login import Entrance
from gateway.web.pages import broken_off

AGAIN_PATH = "/again"
# What strangers may make us read at once.
MAX_HELD_FORMS = 4
THEME_MAX_AGE_S = 365 * 24 * 3600


class Dashboard:
    """Mounted at `/dashboard`.

    Args:
        key: a secret of the gateway, for the tokens of forms and the notes.
    """

    def __init__(self, auth: OperatorAuth, entrance: Entrance, key: bytes, sources: Sources) -> None:
        self._entrance = entrance
        self.context = PageContext(auth, key, sources)
        self._held_forms = asyncio.Semaphore(MAX_HELD_FORMS)
        pages = all_pages()
        self._inside = Starlette(
            routes=[
                Route("/", _to_first_page),
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
        self._known_only = OperatorOnly(self._inside, also_persons=True)

    # ---- who comes in ----------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As `OperatorOnly`, but what a form holds is kept through the login."""
        request = Request(scope, receive) if scope["type"] == "http" else None
        if request is not None and OPERATOR in request.auth.scopes:
            scope[MOMENT] = self.context.live.mark()  # before anything is read that the page will show
            scope[SETUP] = await self.context.services.setup.is_open()
        if request is None or not _is_form_of_a_browser(request):
            await self._known_only(scope, receive, send)
        elif request.url.path == BASE + AGAIN_PATH:
            await (await self._log_in_again(request))(scope, receive, send)
        elif request.user.is_authenticated:
            await self._inside(scope, receive, send)
        else:
            async with self._held_forms:
                form = await read_form(request)
            page = await self._entrance.page(request.url.path, held=form.showable, status=401)
            await page(scope, receive, send)

    async def _log_in_again(self, request: Request) -> Response:
        """The login after a form was sent with an ended session."""
        async with self._held_forms:
            form = await read_form(request)
        action = own_path(form.get("next"), BASE + "/")
        held = Form([(key.removeprefix("held."), value) for key, value in form.fields if key.startswith("held.")])
        if request.user.is_authenticated:  # in another window, meanwhile
            return self.context.offer_again(request, held, action)
        result = await self._entrance.enter(request, form)
        if not result.is_accepted:
            return await self._entrance.again(form, result, action, held=held.fields)
        return await self._entrance.signed_in(
            request, result.user_id, lambda session: self.context.offer_again(request, held, action, session=session)
        )

    async def first_page(self, request: Request) -> str:
        """The chat; an owner begins in the set-up while nothing is configured or it was begun."""
        leads = OPERATOR in request.auth.scopes and await self.context.services.setup.leads()
        return f"{BASE}/setup" if leads else f"{BASE}/chat"

    # ---- what is no page -------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        if self.context.live.is_full:
            return Response("Too many pages are open; close some.", 503, headers={"retry-after": "30"})
        if OPERATOR not in request.auth.scopes:
            return EventStreamResponse(self.context.live.steady())
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
        if status == 403:
            return self.context.problem(request, "Not allowed", text, status=403)
        return self.context.problem(request, "That cannot be done", text, status=status)

    async def _ethos_problem(self, request: Request, error: Exception) -> Response:
        """An error of ours says what is wrong and what to do, for people."""
        if isinstance(error, NotOffered):
            return self.context.problem(request, "Not offered", str(error), status=501)
        status = 503 if isinstance(error, MemoryUnavailable) else 409
        return self.context.problem(request, "That did not work", str(error), status=status)


async def _to_first_page(request: Request) -> Response:
    caller: Caller = request.scope[CALLER]
    first = next(page for page in all_pages() if page.is_for(caller) and page.name != "setup")
    return RedirectResponse(first.path, status_code=303)


def _is_form_of_a_browser(request: Request) -> bool:
    headers = request.headers
    is_form = headers.get("content-type", "").startswith(FORM_TYPE)
    return request.method == "POST" and is_form and "text/html" in headers.get("accept", "")
