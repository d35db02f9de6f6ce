"""A server to which people sign in: the SDK's own, with the SDK's own authorization server, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    ProviderTokenVerifier,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.servers import free_port


class Authority:
    """Allows everything to whoever is at the browser.

    Attributes:
        at_browser: who signs in; None: who says no.
        lifetime_s: of an access token, as the client is told.
        registered: clients, by their id.
        issued: access tokens that are good, each with its owner.
        asked: paths and statuses of all requests, in order.
        down: paths that answer 503.
    """

    def __init__(self) -> None:
        self.at_browser: str | None = "ada"
        self.lifetime_s = 3_600
        self.registered: dict[str, OAuthClientInformationFull] = {}
        self.issued: dict[str, AccessToken] = {}
        self.renewals: dict[str, RefreshToken] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.asked: list[tuple[str, int]] = []
        self.down: set[str] = set()
        self.redirected_scopes: list[str] = []

    def revoke(self, *, renewals: bool = True) -> None:
        """Nothing that was given counts any more."""
        self.issued.clear()
        if renewals:
            self.renewals.clear()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.registered.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.registered[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.at_browser is None:
            raise AuthorizeError("access_denied", "they said no")
        code = AuthorizationCode(
            code=secrets.token_urlsafe(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=self.at_browser,
        )
        self.redirected_scopes = code.scopes
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        found = self.codes.get(authorization_code)
        return found if found is not None and found.client_id == client.client_id else None

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.give(client.client_id, authorization_code.scopes, authorization_code.subject)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        found = self.renewals.get(refresh_token)
        return found if found is not None and found.client_id == client.client_id else None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.renewals.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant", "it was used before")
        return self.give(client.client_id, scopes, refresh_token.subject)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.issued.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.issued.pop(token.token, None)
        self.renewals.pop(token.token, None)

    def give(self, client_id: str, scopes: list[str], subject: str | None) -> OAuthToken:
        access, renewal = f"canary-access-{secrets.token_hex(8)}", f"canary-refresh-{secrets.token_hex(8)}"
        until = int(time.time()) + 3_600
        self.issued[access] = AccessToken(
            token=access, client_id=client_id, scopes=scopes, expires_at=until, subject=subject
        )
        self.renewals[renewal] = RefreshToken(token=renewal, client_id=client_id, scopes=scopes, subject=subject)
        return OAuthToken(
            access_token=access, expires_in=self.lifetime_s, refresh_token=renewal, scope=" ".join(scopes) or None
        )


class SigningServer:
    """The server.

    Args:
        elsewhere: another one, whose authorization server it names; None: it has its own.
    """

    def __init__(self, elsewhere: SigningServer | None = None) -> None:
        self.authority = Authority() if elsewhere is None else elsewhere.authority
        self.issuer = self.origin if elsewhere is None else elsewhere.origin
        self.is_own_issuer = elsewhere is None
        self.hold = asyncio.Event()
        self.calls: list[str | None] = []
        self.more_wanted, self.is_never_content, self.is_wanted_at_once = "more", False, False
        self.own_secret = "canary-own-secret"
        self.metadata: dict[str, Any] = {}
        """What the metadata of the authorization server says instead of the truth."""

    @cached_property
    def port(self) -> int:
        return free_port()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def _app(self) -> ASGIApp:
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(self.issuer),
            resource_server_url=AnyHttpUrl(self.url),
            required_scopes=["mail"],
            validate_token_resource=False,
            revocation_options=RevocationOptions(enabled=True),
            client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["mail", "more"]),
        )
        given = {"auth_server_provider": self.authority} if self.is_own_issuer else {}
        if not given:
            given = {"token_verifier": ProviderTokenVerifier(self.authority)}
        server: MCPServer = MCPServer("mail", auth=settings, **given)

        @server.tool()
        async def whoami() -> str:
            """Say whose account it is."""
            token = get_access_token()
            self.calls.append(None if token is None else token.subject)
            return f"the account of {self.calls[-1]}"

        @server.tool()
        async def send() -> str:
            """Needs the scope `more`."""
            self.calls.append("send")
            return "sent"

        @server.tool()
        async def slow() -> str:
            """Answer when it may."""
            self.calls.append("slow")
            await self.hold.wait()
            return "at last"

        inner = server.streamable_http_app(json_response=True)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope.get("path", "")

            async def noting(message: Any) -> None:
                if message["type"] == "http.response.start":
                    self.authority.asked.append((path, message["status"]))
                await send(message)

            answer = await self._instead(scope, receive) if scope["type"] == "http" else None
            if answer is None and path == "/mcp" and scope["method"] == "POST":
                body = await Request(scope, receive).body()
                receive, answer = _again(body), self._too_little(Request(scope), body)
            await (answer or inner)(scope, receive, noting)

        return app

    def _too_little(self, request: Request, body: bytes) -> Response | None:
        """403 for the tool `send`, where the token has not the scope `more` (RFC 6750, section 3.1)."""
        said = json.loads(body)
        is_send = said.get("method") == "tools/call" and said["params"]["name"] == "send"
        if not is_send and not (self.is_wanted_at_once and said.get("method") != "ping"):
            return None
        token = self.authority.issued.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if token is None or (self.more_wanted in token.scopes and not self.is_never_content):
            return None
        challenge = f'Bearer error="insufficient_scope", scope="mail {self.more_wanted}"'
        return JSONResponse({"error": "insufficient_scope"}, status_code=403, headers={"www-authenticate": challenge})

    async def _instead(self, scope: Scope, receive: Receive) -> Response | None:
        """What the SDK's server cannot do: be down, lie, and give tokens to a client by its own secret."""
        if scope["path"] in self.authority.down:
            return Response(status_code=503)
        if self.metadata and scope["path"].startswith("/.well-known/oauth-authorization-server"):
            endpoints = {"authorize": "authorization", "token": "token", "register": "registration"}
            truth = {f"{name}_endpoint": f"{self.origin}/{path}" for path, name in endpoints.items()}
            more = {"response_types_supported": ["code"], "scopes_supported": ["mail"]}
            return JSONResponse({"issuer": f"{self.origin}/", **truth, **more, **self.metadata})
        if scope["path"] == "/token" and "authorization" in dict(Request(scope).headers):
            request = Request(scope, receive)
            form = await request.form()
            if form.get("grant_type") == "client_credentials":
                shown = base64.b64decode(request.headers["authorization"].partition(" ")[2]).decode()
                if shown != f"ethos:{self.own_secret}":
                    return JSONResponse({"error": "invalid_client"}, status_code=401)
                given = self.authority.give("ethos", str(form.get("scope", "mail")).split(), "the gateway")
                return JSONResponse(given.model_dump(mode="json", exclude={"refresh_token"}))
        return None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SigningServer]:
        """Until the block ends."""
        config = uvicorn.Config(
            self._app(), host="127.0.0.1", port=self.port, log_config=None, log_level="critical", lifespan="on"
        )
        server = uvicorn.Server(config)
        server.capture_signals = _nothing  # type: ignore[method-assign]
        task = asyncio.create_task(server.serve())
        async with asyncio.timeout(10):
            while not server.started:
                await asyncio.sleep(0.01)
        try:
            yield self
        finally:
            server.should_exit = server.force_exit = True
            await task


def _again(body: bytes) -> Receive:
    """Gives a body once more that was read."""
    pieces = [{"type": "http.request", "body": body, "more_body": False}]
    ended = asyncio.Event()

    async def receive() -> Any:
        if not pieces:
            await ended.wait()
        return pieces.pop()

    return receive


class _nothing:  # noqa: N801 (a context like that of contextlib)
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
