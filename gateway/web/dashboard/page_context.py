"""What every page is given: rendering, forms that are believed, questions before what cannot be undone, notes."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gateway import __version__
from gateway.config import LiveConfig
from gateway.domain.personalities import Personalities
from gateway.domain.roles import Role
from gateway.errors import EthosError
from gateway.services.caller import Caller, operator
from gateway.services.naming import Naming
from gateway.services.operator_services import OperatorServices
from gateway.web.auth import CALLER, PROOF, OperatorAuth, is_https
from gateway.web.dashboard.flash import Note, Notes, Undo
from gateway.web.dashboard.live import Live
from gateway.web.dashboard.page import BASE, all_pages, reaches
from gateway.web.forms import CONFIRMED_FIELD, TOKEN_FIELD, Form, FormTokens, read_form
from gateway.web.pages import templates

THEME_COOKIE = "ethos_theme"
MOMENT = "dashboard.moment"
"""In the scope of a request: when it came, as `Live.mark` says it."""
SETUP = "dashboard.setup"
"""In the scope of a request: whether the navigation has the set-up."""
THEMES = ("light", "dark")

Trail = Sequence[tuple[str, str]]
"""The way to a page, as titles and addresses; the page itself is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Parts of the running gateway.

    Attributes:
        services: what an operator can do; the same that the API asks.
        config: the configuration in force; a reload gives another.
        home: the data directory.
        naming: whom and what people name.
        tell_topics: has those that a page changed, for the pages of other workers.
    """

    services: OperatorServices
    config: LiveConfig
    home: Path
    naming: Naming
    personalities: Personalities
    tell_topics: Callable[..., object] = lambda *_topics: None


class PageContext:
    """One for the dashboard; each handler is given it as it is for who asks (`of`).

    Attributes:
        sources: what the pages read and change; `services` are those that say what an operator can do.
        caller: as whom the services are asked.
        live: tells open pages what has changed; a page that changes something says so there.
    """

    def __init__(self, auth: OperatorAuth, key: bytes, sources: Sources) -> None:
        self._auth = auth
        self._tokens = FormTokens(key)
        self._notes = Notes(key, auth.cookie_name.replace("session", "note"))
        self.sources = sources
        self.services = sources.services
        self.caller: Caller = operator("dashboard")
        self.live = Live(sources.tell_topics)

    def of(self, request: Request, least: Role = "guest") -> PageContext:
        """The same, for who asks.

        Raises:
            HTTPException: 403, their role does not reach `least`.
        """
        caller: Caller = request.scope[CALLER]
        if not reaches(caller, least):
            needed = "an owner" if least == "owner" else f"a {least}"
            raise HTTPException(403, f"This page is for {needed} of this gateway, and you are a {_role_of(caller)}.")
        if caller.signed_in is None:
            return self
        bound = copy.copy(self)
        bound.caller = caller
        return bound

    async def names(self) -> Mapping[str, str]:
        """A name for each user whom the caller may see."""
        return await self.services.naming.labels(self.caller)

    # ---- pages -----------------------------------------------------------------------------------------------------

    def render(
        self, request: Request, template: str, *, title: str, trail: Trail = (), status: int = 200, **values: Any
    ) -> Response:
        """A page, in the layout with the navigation; a note that waits is shown on it.

        Args:
            template: such as `channels/index.html`, below `templates/dashboard`.
            values: for the template, besides `title`, `trail`, `form_token`, its `token` alone and what
                the layout needs.
        """
        note = self._notes.of(request)
        cookie = self._cookie(request)
        tokens = {"form_token": self._token_field(request), "token": self._tokens.token(cookie)}
        page = {"title": title, "trail": trail, "note": note, **tokens, **values}
        response = self._html(request, template, page, status)
        if note is not None:
            self._notes.take(response)
        return response

    def part(self, request: Request, template: str, **values: Any) -> Response:
        """A part of a page, without the layout."""
        return self._html(request, template, values, 200)

    def piece(self, template: str, **values: Any) -> str:
        """A piece of a page, for its event stream; from any thread."""
        return templates().get_template(f"dashboard/{template}").render(**values)

    def ask(self, request: Request, form: Form, *, title: str, text: str, yes: str, back: str) -> Response:
        """The question before something that cannot be undone, as a page; its yes sends the form again, confirmed.

        Args:
            title: the question.
            text: what will happen.
            yes: on the button, a verb.
            back: where a no leads.
        """
        again = [*form.without(CONFIRMED_FIELD, TOKEN_FIELD).fields, (CONFIRMED_FIELD, "yes")]
        return self.render(
            request, "confirm.html", title=title, text=text, yes=yes, back=back, action=request.url.path, fields=again
        )

    def offer_again(self, request: Request, form: Form, action: str, *, session: str | None = None) -> Response:
        """A form that came without a login that counts, for a look, and to be sent again.

        Args:
            session: the cookie of a login that was made with this very request.
        """
        fields = form.without(CONFIRMED_FIELD, TOKEN_FIELD).showable
        return self.render(
            request,
            "again.html",
            title="Nothing you typed is lost",
            action=action,
            fields=fields,
            form_token=self._token_field(request, session),
        )

    def problem(self, request: Request, title: str, text: str, *, status: int) -> Response:
        """A page that says what is wrong and what to do."""
        return self.render(request, "problem.html", title=title, text=text, status=status)

    def go(
        self, request: Request, to: str, text: str | None = None, *, undo: Undo | None = None, is_problem: bool = False
    ) -> Response:
        """After a form was taken: on to a page, with a note of what was done and how to take it back."""
        response = RedirectResponse(to, status_code=303)
        if text is not None:
            note = Note(text=text, undo=undo, kind="problem" if is_problem else "done")
            self._notes.put(response, note, is_https=is_https(request.scope))
        return response

    def _html(self, request: Request, template: str, values: Mapping[str, Any], status: int) -> Response:
        theme = request.cookies.get(THEME_COOKIE, "")
        here = request.url.path.removeprefix(BASE).strip("/").partition("/")[0]
        caller: Caller = request.scope[CALLER] or self.caller
        layout = {
            "pages": [
                page
                for page in all_pages()
                if page.is_for(caller) and (page.name != "setup" or request.scope.get(SETUP) or here == "setup")
            ],
            "sees_all": caller.is_operator,
            "here": here,
            "address": _address(request, here),
            "theme": theme if theme in THEMES else "",
            "moment": request.scope.get(MOMENT, ""),
            "version": __version__,
        }
        html = templates().get_template(f"dashboard/{template}").render(**values, layout=layout)
        return HTMLResponse(html, status_code=status)

    # ---- forms -----------------------------------------------------------------------------------------------------

    def form_handler(
        self, take: Callable[[Request, Form], Awaitable[Response]], *, back: str | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """A handler of a form: `take` is called with it, once its token is known to be of this session.

        Args:
            back: the page that says what cannot be done, unless the form names another; None: a page of its own.
        """

        async def endpoint(request: Request) -> Response:
            form = await read_form(request)
            if not self.has_valid_csrf_token(request, form.get(TOKEN_FIELD)):
                return self.offer_again(request, form, request.url.path)
            try:
                return await take(request, form)
            except EthosError as error:
                if back is None:
                    raise
                return self.go(request, own_path(form.get("back"), back), str(error), is_problem=True)

        return endpoint

    def has_valid_csrf_token(self, request: Request, token: str) -> bool:
        """Whether the token that came with a form is of this session.

        A program that shows the operator's token with each request cannot come from a page of another site.
        """
        return request.scope[PROOF] == "bearer" or self._tokens.is_token(token, self._cookie(request))

    def _token_field(self, request: Request, session: str | None = None) -> Markup:
        token = self._tokens.token(session if session is not None else self._cookie(request))
        return Markup('<input type="hidden" name="{}" value="{}">').format(TOKEN_FIELD, token)

    def _cookie(self, request: Request) -> str:
        return request.cookies.get(self._auth.cookie_name, "")


def _role_of(caller: Caller) -> str:
    return "owner" if caller.signed_in is None else caller.signed_in.role


def _address(request: Request, page: str) -> str:
    """Where this page can be seen again; what a form was answered with is no page of its own."""
    if request.method != "GET":
        return f"{BASE}/{page}"
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def own_path(wanted: str, otherwise: str) -> str:
    """`wanted` where it is an address on the dashboard, else the other: no form may lead to another site."""
    parts = urlsplit(wanted)
    is_own = not parts.scheme and not parts.netloc and parts.path.startswith(f"{BASE}/") and "\\" not in wanted
    return wanted if is_own and wanted.isprintable() else otherwise
