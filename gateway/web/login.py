"""How people come in: the login with what is configured, invitations, and the end of a sign-in."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from gateway.errors import EthosError
from gateway.runtime.extras import how_to_install
from gateway.services.caller import Malformed, NotFound
from gateway.web.auth import SIGN_IN, LoginResult, OperatorAuth, client_address, is_https
from gateway.web.forms import Form, read_form
from gateway.web.pages import Fields, join_page, joined_page, login_page, message_page

if TYPE_CHECKING:
    from gateway.config.web import OidcConfig
    from gateway.services.logins import LoginService
    from gateway.web.oidc import Oidc

MAX_LOGIN_BYTES = 8 * 1024
JOIN_PATH = "/join"
OIDC_PATH = "/login/oidc"
OIDC_MAX_AGE_S = 600
MOST_SECRET = 64
_OIDC_COOKIE = "ethos_oidc_"
_NOT_SIGNED_IN = "You are not signed in"
_NEXT_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")
_ENDED = "This link has ended"


class Entrance:
    """The login, whichever page asks for it.

    Args:
        logins: those with a password; loaded at the first question. None: there are none.
        provider: the OpenID provider that is configured now.
        base: where browsers find this gateway; known once it serves.
        key: a secret of the gateway, for what a browser carries to the provider and back.
    """

    def __init__(
        self,
        auth: OperatorAuth,
        logins: Callable[[], LoginService] | None,
        *,
        provider: Callable[[], OidcConfig | None] = lambda: None,
        base: Callable[[], str | None] = lambda: None,
        key: bytes = b"",
    ) -> None:
        self._auth = auth
        self._logins = logins
        self._provider = provider
        self._base = base
        self._key = key
        self._oidc: Oidc | None = None

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """What is open to everybody."""
        return [
            Route("/login", self._show, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Route(OIDC_PATH, self._begin_oidc, methods=["GET"]),
            Route(f"{OIDC_PATH}/callback", self._finish_oidc, methods=["GET"]),
            Route(f"{JOIN_PATH}/{{secret}}", self._invited, methods=["GET"]),
            Route(f"{JOIN_PATH}/{{secret}}", self._join, methods=["POST"]),
        ]

    # ---- for the login and for the dashboard ------------------------------------------------------------------------

    async def page(
        self,
        next_path: str,
        *,
        error: str | None = None,
        status: int = 200,
        held: Fields | None = None,
        name: str | None = None,
    ) -> Response:
        """Ask who it is, by what is configured.

        Args:
            next_path: where to go afterwards.
            held: the fields of a form that was sent without a login; they come back after it.
            name: that was typed; None: no password was tried.
        """
        has_passwords = self._logins is not None and await self._logins().is_any()
        return login_page(
            next_path=next_path,
            error=error,
            status=status,
            held=held,
            name=name,
            has_passwords=has_passwords,
            provider=self._provider_name,
        )

    @property
    def _provider_name(self) -> str | None:
        config = self._provider() if self._logins is not None else None
        return None if config is None else config.name

    async def enter(self, request: Request, form: Form) -> LoginResult:
        """Try what was typed: the token, or a name with a password and a code."""
        address = client_address(request.scope)
        if self._logins is None or not form.has("password"):
            return await self._auth.try_token(form.get("token").strip(), address)
        tried = await self._logins().entered(form.get("name"), form.get("password"), form.get("code"))
        if tried.user_id is not None:
            return LoginResult(is_accepted=True, user_id=tried.user_id)
        failed = await self._auth.failed(address)
        return LoginResult(is_accepted=False, wait_s=max(failed.wait_s, tried.wait_s))

    async def again(self, form: Form, result: LoginResult, next_path: str, *, held: Fields | None = None) -> Response:
        """The login after something wrong was typed."""
        is_password = form.has("password")
        what = "names, passwords or codes" if is_password else "tokens"
        if result.wait_s:
            kept = "" if held is None else "; what you typed stays here"
            error, status = f"Too many wrong {what}. Try again in {result.wait_s} seconds{kept}.", 429
        else:
            wrong = "The name, the password or the code is wrong, or the code was used before."
            error, status = wrong if is_password else "That is not the token of this gateway.", 401
        name = form.get("name") if is_password else None
        response = await self.page(next_path, error=error, status=status, held=held, name=name)
        if result.wait_s:
            response.headers["retry-after"] = str(result.wait_s)
        return response

    async def signed_in(self, request: Request, user_id: str | None, make: Callable[[str], Response]) -> Response:
        """Sign the browser in; `make` gives the answer, and has the new cookie's value.

        Whoever was signed in there before is not any more, if it was somebody else.
        """
        before = request.scope[SIGN_IN]
        if before is not None and before.user_id != user_id:
            await self._auth.sign_ins.end(before.id)
        session = await self._auth.sign_in(request, user_id)
        response = make(session)
        self._auth.put_session(response, session, is_https=is_https(request.scope))
        return response

    # ---- the login --------------------------------------------------------------------------------------------------

    async def _show(self, request: Request) -> Response:
        next_path = own_path(request.query_params.get("next", "/"))
        if request.user.is_authenticated:
            return RedirectResponse(next_path, status_code=303)
        error = "The token in that link is wrong." if "wrong" in request.query_params else None
        response = await self.page(next_path, error=error)
        if request.headers.get("sec-fetch-site") == "cross-site":
            # A browser holds a Strict cookie back when another site's link led here. Going on from a page of our own
            # sends it; a browser without one ends here again, and then from our own site.
            response.headers["refresh"] = f"0; url={next_path}"
        return response

    async def _log_in(self, request: Request) -> Response:
        form = await read_form(request, max_bytes=MAX_LOGIN_BYTES)
        next_path = own_path(form.get("next", "/"))
        result = await self.enter(request, form)
        if not result.is_accepted:
            return await self.again(form, result, next_path)
        return await self.signed_in(
            request, result.user_id, lambda _session: RedirectResponse(next_path, status_code=303)
        )

    async def _log_out(self, request: Request) -> Response:
        if request.scope[SIGN_IN] is not None:
            await self._auth.sign_ins.end(request.scope[SIGN_IN].id)
        response = RedirectResponse("/login", status_code=303)
        self._auth.drop_session(response)
        return response

    # ---- an OpenID provider -----------------------------------------------------------------------------------------

    def _oidc_now(self) -> Oidc | None:
        """The provider that is configured now."""
        config, base = self._provider(), self._base()
        if config is None or self._logins is None or base is None:
            return None
        from gateway.web.oidc import Oidc  # noqa: PLC0415 (loaded with the first sign-in)

        redirect_uri = f"{base.rstrip('/')}{OIDC_PATH}/callback"
        if self._oidc is None or (self._oidc.config, self._oidc.redirect_uri) != (config, redirect_uri):
            self._oidc = Oidc(config, self._key, redirect_uri)
        return self._oidc

    async def _begin_oidc(self, request: Request) -> Response:
        oidc, asked = self._oidc_now(), request.query_params
        if oidc is None:
            return message_page(_NOT_SIGNED_IN, "No provider is configured here.", 404)
        carried = {"next": own_path(asked.get("next", "/")), "invitation": asked.get("invitation", "")[:MOST_SECRET]}
        try:
            address, state, kept = await oidc.begin(carried)
        except EthosError as error:
            return message_page(_NOT_SIGNED_IN, str(error), 503)
        except ImportError as error:
            how = how_to_install("oidc", error.name or "")
            return message_page(_NOT_SIGNED_IN, f"A library is missing (extra `oidc`). Install it: {how}", 503)
        response = RedirectResponse(address, status_code=303, headers={"referrer-policy": "no-referrer"})
        response.set_cookie(
            _OIDC_COOKIE + state[:12],
            kept,
            max_age=OIDC_MAX_AGE_S,
            path=OIDC_PATH,
            httponly=True,
            samesite="lax",  # the provider's page leads back to us
            secure=is_https(request.scope),
        )
        return response

    async def _finish_oidc(self, request: Request) -> Response:
        oidc, query = self._oidc_now(), dict(request.query_params)
        cookie = _OIDC_COOKIE + query.get("state", "")[:12]
        if oidc is None or self._logins is None:
            return message_page(_NOT_SIGNED_IN, "No provider is configured here.", 404)
        try:
            proved, begun = await oidc.finish(query, request.cookies.get(cookie, ""))
            email = None if proved.email is None else f"{oidc.config.email_kind}:{proved.email}"
            user_id = await self._logins().by_account(
                proved.account, proved.label, also=email, secret=begun["invitation"] or None
            )
        except EthosError as error:
            text = str(error)
            return message_page(_NOT_SIGNED_IN, f"{text[:1].upper()}{text[1:]}".rstrip(".") + ".", 403)
        if user_id is None:
            text = "Nobody with access has this account here. Ask an owner to invite you. The account is"
            response = message_page(_NOT_SIGNED_IN, f"{text} {proved.account}", 403)
        else:
            next_path = begun["next"]
            response = await self.signed_in(
                request, user_id, lambda _session: message_page("You are signed in", "The page opens now.")
            )
            # The way from another site here ends first: behind it a browser would hold the Strict cookie back.
            response.headers["refresh"] = f"0; url={next_path}"
        response.delete_cookie(cookie, path=OIDC_PATH, httponly=True, samesite="lax")
        return response

    # ---- invitations ------------------------------------------------------------------------------------------------

    async def _invited(self, request: Request) -> Response:
        async def show(logins: LoginService) -> Response:
            secret = request.path_params["secret"]
            return join_page(await logins.invited(secret), secret=secret, provider=self._provider_name)

        return await self._by_link(show)

    async def _join(self, request: Request) -> Response:
        form = await read_form(request, max_bytes=MAX_LOGIN_BYTES)
        secret, typed = request.path_params["secret"], {name: form.get(name) for name in ("name", "password", "code")}

        async def join(logins: LoginService) -> Response:
            try:
                user_id, codes = await logins.join(secret, **typed)
            except Malformed as error:
                invited = await logins.invited(secret)
                return join_page(
                    invited,
                    secret=secret,
                    provider=self._provider_name,
                    name=typed["name"],
                    problems=error.problems,
                    status=409,
                )
            return await self.signed_in(request, user_id, lambda _session: joined_page(codes))

        return await self._by_link(join)

    async def _by_link(self, answer: Callable[[LoginService], Awaitable[Response]]) -> Response:
        if self._logins is None:
            return message_page(_ENDED, "This gateway takes no passwords.", 404)
        try:
            return await answer(self._logins())
        except NotFound as error:
            return message_page(_ENDED, str(error), 404)
        except EthosError as error:
            return message_page("That did not work", str(error), 503)


def own_path(wanted: str) -> str:
    """`wanted` when it is a path of ours, else the start: a login must not lead to another site."""
    return wanted if _NEXT_PATH.fullmatch(wanted) else "/"
