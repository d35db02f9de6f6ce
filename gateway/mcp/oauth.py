"""Signing in as the SDK does it (OAuth 2.1), with what it leaves to us: what is kept, and which addresses are asked.

The SDK would sign a person in within a call. Here a call needs a token that is there; a person signs in beside it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import re
import secrets
import socket
from collections.abc import AsyncGenerator, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import httpx2
import structlog
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
    validate_authorization_response_iss,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, PrivateAttr

from gateway.config.mcp import McpOauthConfig
from gateway.errors import EthosError
from gateway.mcp.errors import WANTS_MORE, MoreWanted, SignInFailed
from gateway.mcp.http import Bounded
from gateway.mcp.tokens import Account, Tokens
from gateway.tools.web.addresses import is_public

PORTS = (80, 443)
CLIENT_NAME = "Ethos Gateway"
_TIMEOUT_S = 10.0
# Where the words of a server begin in an error of the SDK; a model may read what stands before.
_OTHERS = re.compile(r"[:'\"\n]|https?")
_log = structlog.get_logger(__name__)
for _name in ("oauth2", "utils"):  # they log what they raise, with what a server answered; we say it ourselves
    logging.getLogger(f"mcp.client.auth.{_name}").addFilter(lambda _record: False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What the gateway is to an authorization server.

    Attributes:
        redirect: the address to which a browser comes back.
        document: where its metadata document is (draft-ietf-oauth-client-id-metadata-document); None: nowhere.
    """

    config: McpOauthConfig
    redirect: str
    document: str | None

    @property
    def metadata(self) -> OAuthClientMetadata:
        """As it registers itself (RFC 7591)."""
        is_web = self.document is not None
        return OAuthClientMetadata(
            redirect_uris=[AnyUrl(self.redirect)],
            client_name=CLIENT_NAME,
            grant_types=["authorization_code", "refresh_token"],
            application_type="web" if is_web else "native",
            scope=self.scope,
        )

    @property
    def scope(self) -> str | None:
        """What is asked for; None: what the server names."""
        return " ".join(self.config.scopes) or None

    @property
    def known_as(self) -> OAuthClientInformationFull | None:
        """Where it was registered by hand."""
        if self.config.client_id is None:
            return None
        secret = None if self.config.client_secret is None else self.config.client_secret.get_secret_value()
        method = "none" if secret is None else "client_secret_post"
        return OAuthClientInformationFull(
            redirect_uris=[AnyUrl(self.redirect)],
            client_id=self.config.client_id,
            client_secret=secret,
            token_endpoint_auth_method=method,
        )


class _Besides(OAuthClientMetadata):
    """Names some scopes besides those that the SDK chooses, from the registration on."""

    _besides: str | None = PrivateAttr(None)

    def name_too(self, scope: str | None) -> None:
        """From now on."""
        self._besides = scope

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, union_scopes(value, self._besides) if name == "scope" else value)


class _Kept(BaseModel):
    """What is kept of an account: without the addresses, a token could not be renewed after a restart.

    Attributes:
        wanted: the scopes that the server wants besides what was allowed.
    """

    tokens: OAuthToken
    expires_at: float | None
    client: OAuthClientInformationFull | None
    metadata: OAuthMetadata | None
    resource: ProtectedResourceMetadata | None
    issuer: str | None
    wanted: str | None = None


class _AtOnce(OAuthClientProvider):
    """The SDK sends each request under a lock, so a long call would hold up all others. Only renewing needs it."""

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        token = await self._good_token()  # the context changes under the lock alone
        if token is not None:
            request.headers["authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code != 401 and not _wants_more(response):
                return
            if response.status_code != 401:
                await self._ask_for_more(response)
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                if outgoing is request and _wants_more(response):
                    await self._ask_for_more(response)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _ask_for_more(self, response: httpx2.Response) -> None:
        """The token is good and allows too little: the SDK gets one that allows more, once."""

    async def _good_token(self) -> str | None:
        """One that has not expired, as far as we know."""
        tokens = self.context.current_tokens
        return tokens.access_token if tokens is not None and self.context.is_token_valid() else None


class _InMemory:
    """Tokens of one connection (`TokenStorage` of the SDK)."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """The provider has it, and it is kept with the tokens."""


class Own(_AtOnce, ClientCredentialsOAuthProvider):
    """The gateway by its own secret; its tokens are not kept, since it gets new ones whenever it wants."""

    def __init__(self, url: str, client: Client) -> None:
        known = client.known_as
        if known is None:
            raise AssertionError("the configuration has checked that")
        issuer, secret = client.config.issuer, known.client_secret or ""
        super().__init__(url, _InMemory(), known.client_id, secret, scope=client.scope, issuer=issuer)
        self._wanted = client.scope

    async def _perform_authorization(self) -> httpx2.Request:
        self.context.client_metadata.scope = self._wanted or self.context.client_metadata.scope
        return await super()._perform_authorization()


class _OfAccount(_InMemory):
    """Tokens of an account, kept with what the SDK has found out for them."""

    context: OAuthContext

    def __init__(self, account: Account, tokens: Tokens) -> None:
        super().__init__()
        self.account = account
        self.kept = tokens
        self.sealed = ""
        self.wanted: str | None = None
        """What the server wants besides, which a renewal does not change, and a new sign-in does."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.context
        whole = _Kept(
            tokens=tokens,
            expires_at=context.token_expiry_time,
            client=context.client_info,
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
            issuer=context.auth_server_url,
            wanted=self.wanted,
        )
        self.sealed = await self.kept.keep(self.account, whole.model_dump_json())

    async def read(self) -> tuple[_Kept, str]:
        """What is kept, and the same sealed.

        Raises:
            SignInFailed: nobody is signed in.
            StoreUnavailable, FileError: it cannot be read.
        """
        found = await self.kept.kept(self.account)
        if found is None:
            raise SignInFailed(f"nobody is signed in to {self.account.server}")
        return _Kept.model_validate_json(found[0]), found[1]

    async def load(self) -> None:
        """Read it into the SDK's context; raises as `read`."""
        whole, self.sealed = await self.read()
        self.wanted = whole.wanted
        context = self.context
        context.current_tokens, context.token_expiry_time = whole.tokens, whole.expires_at
        context.client_info, context.oauth_metadata = whole.client, whole.metadata
        context.protected_resource_metadata, context.auth_server_url = whole.resource, whole.issuer

    async def want(self, scope: str | None, allowed: str | None) -> SignInFailed:
        """Note that the server wants more to be allowed; `allowed` is all that the operator lets anybody allow."""
        whole, _ = await self.read()
        granted, wanted = set((whole.tokens.scope or "").split()), set((scope or "").split())
        server = self.account.server
        if not wanted - granted:
            return SignInFailed(f"{server} refuses this account, although it has all scopes that it is asked for")
        if allowed is not None and wanted - set(allowed.split()):
            return SignInFailed(
                f"{server} wants scopes that `scopes` in its `oauth` does not name; the operator adds them"
            )
        whole.wanted = union_scopes(whole.tokens.scope, scope)
        await self.kept.keep(self.account, whole.model_dump_json())
        return MoreWanted(f"{server} {WANTS_MORE}")

    async def end(self) -> SignInFailed:
        """Delete it, since the server takes it no more."""
        await self.kept.drop(self.account, self.sealed)
        return SignInFailed(f"the sign-in to {self.account.server} has ended; sign in again")


class SignedIn(_AtOnce):
    """An account that is signed in. It is read before each request: another worker may have renewed or deleted it."""

    def __init__(self, url: str, client: Client, account: Account, tokens: Tokens) -> None:
        self._of = _OfAccount(account, tokens)
        self._allowed = client.scope
        super().__init__(url, client.metadata, self._of, client_metadata_url=client.document)
        self._of.context = self.context

    async def _good_token(self) -> str | None:
        kept, _ = await self._of.read()
        is_good = kept.expires_at is None or datetime.now(UTC).timestamp() < kept.expires_at
        return kept.tokens.access_token if is_good else None

    async def _ask_for_more(self, response: httpx2.Response) -> None:
        raise await self._of.want(extract_scope_from_www_auth(response), self._allowed)

    async def _initialize(self) -> None:
        await self._of.load()

    async def _perform_authorization(self) -> httpx2.Request:
        """Renew a token that the server did not take; where there is nothing to renew it by, a person is needed."""
        if self.context.can_refresh_token():
            return await self._refresh_token()
        raise await self._of.end()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await self._handle_refresh_response(response)

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        if response.status_code >= 500 or response.status_code == 429:
            raise OAuthFlowError(f"its authorization server answered {response.status_code}")
        if not await super()._handle_refresh_response(response):
            raise await self._of.end()
        return True


class Shown(Exception):
    """The person is to sign in at the address that the provider has. What follows is done when they come back."""


class Waiting(BaseModel):
    """A sign-in while the person is at the server's page: what any worker needs to end it.

    Attributes:
        browser: a secret that the person's browser keeps.
        verifier: of PKCE (RFC 7636).
        protocol_version: in which the server was asked.
    """

    server: str
    user_id: str
    browser: str
    verifier: str
    scope: str | None
    protocol_version: str | None
    client: OAuthClientInformationFull | None
    metadata: OAuthMetadata | None
    resource: ProtectedResourceMetadata | None
    issuer: str | None


class SigningIn(_AtOnce):
    """An account to which a person signs in: as far as their browser goes away, and from there on.

    Attributes:
        address: where they sign in, once `Shown` was raised.
    """

    def __init__(
        self, url: str, client: Client, account: Account, tokens: Tokens, *, wanted: str | None = None
    ) -> None:
        """`wanted` are scopes that the server wants besides those that it asks everybody for."""
        storage = _OfAccount(account, tokens)
        metadata = _Besides(**client.metadata.model_dump())
        metadata.name_too(wanted)
        super().__init__(url, metadata, storage, self._show, self._leave, client.document)
        storage.context = self.context
        self.address = ""
        self._verifier = ""
        self._client = client
        self._account = account

    @property
    def state(self) -> str:
        """Of OAuth, by which the answer is known."""
        return parse_qs(urlsplit(self.address).query)["state"][0]

    def waiting(self, browser: str) -> Waiting:
        """What there is to keep, once `Shown` was raised."""
        context = self.context
        return Waiting(
            server=self._account.server,
            user_id=self._account.user_id,
            browser=browser,
            verifier=self._verifier,
            scope=context.client_metadata.scope,
            protocol_version=context.protocol_version,
            client=context.client_info,
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
            issuer=context.auth_server_url,
        )

    async def end(self, waiting: Waiting, brought: AuthorizationCodeResult, url: str, rules: Rules) -> str:
        """Get the tokens for what the browser has brought back, and keep them; gives the token for requests.

        Raises:
            SignInFailed: the authorization server gave none, or is not reached.
            StoreUnavailable, FileError: they cannot be kept.
        """
        context = self.context
        context.client_metadata.scope, context.protocol_version = waiting.scope, waiting.protocol_version
        context.client_info, context.oauth_metadata = waiting.client, waiting.metadata
        context.protected_resource_metadata, context.auth_server_url = waiting.resource, waiting.issuer
        with _in_words(self._account.server):
            validate_authorization_response_iss(brought.iss, waiting.metadata)
            request = await self._exchange_token_authorization_code(brought.code, waiting.verifier)
            async with _others(url, rules) as others:
                response = await _asked(others, request)
                await response.aread()
            await self._handle_token_response(response)
        tokens = context.current_tokens
        return "" if tokens is None else tokens.access_token

    async def _initialize(self) -> None:
        if not self._initialized:
            self.context.client_info, self._initialized = self._client.known_as, True

    async def _perform_authorization(self) -> httpx2.Request:
        context = self.context
        context.client_metadata.scope = self._client.scope or context.client_metadata.scope
        if self._client.config.client_secret is not None and context.client_info is not None:
            context.client_info.token_endpoint_auth_method = _way_to_show_secret(context.oauth_metadata)
        return await super()._perform_authorization()

    async def _show(self, address: str) -> None:
        """The SDK keeps its verifier to itself, and another process may need it: so it is ours."""
        self._verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(self._verifier.encode()).digest()
        own = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        [theirs] = parse_qs(urlsplit(address).query)["code_challenge"]
        self.address = address.replace(f"code_challenge={theirs}", f"code_challenge={own}")

    async def _leave(self) -> AuthorizationCodeResult:
        raise Shown


def _way_to_show_secret(metadata: OAuthMetadata | None) -> Literal["client_secret_post", "client_secret_basic"]:
    """As the authorization server wants it; basic where it does not say (RFC 8414, section 2)."""
    wanted = (metadata and metadata.token_endpoint_auth_methods_supported) or ()
    return "client_secret_post" if "client_secret_post" in wanted else "client_secret_basic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which addresses a server may name for signing in, besides those on the public internet.

    Attributes:
        ports: besides 80 and 443.
        private_hosts: names or addresses inside.
    """

    ports: Collection[int] = ()
    private_hosts: Collection[str] = ()


class Authorized(httpx2.AsyncBaseTransport):
    """Sends requests with a token. What the SDK asks besides, to find out where to sign in, passes the web rules."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, provider: OAuthClientProvider, url: str, rules: Rules) -> None:
        self._inner = inner
        self._provider = provider
        self._host = httpx2.URL(url).host
        self._others = _others(url, rules)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request.

        Raises:
            SignInFailed: it was not sent, or not taken; says why.
            httpx2.TransportError: of the server itself.
        """
        flow = self._provider.async_auth_flow(request)
        try:
            with _in_words(self._host):
                outgoing = await anext(flow)
                while True:
                    response = await self._sent(outgoing, is_own=outgoing is request)
                    try:
                        outgoing = await flow.asend(response)
                    except StopAsyncIteration:
                        return response
                    await response.aclose()
        finally:
            await flow.aclose()

    async def _sent(self, request: httpx2.Request, *, is_own: bool) -> httpx2.Response:
        if is_own:
            response = await self._inner.handle_async_request(request)
            response.request = request
            return response
        return await _asked(self._others, request)

    async def aclose(self) -> None:
        """End its connections."""
        await self._others.aclose()
        await self._inner.aclose()


async def revoke(kept: str, url: str, client: Client, rules: Rules) -> bool:
    """Tell the authorization server that what is kept of an account is used no more (RFC 7009); whether it took that.

    Without the token to renew others by, access ends with the other one.
    """
    whole = _Kept.model_validate_json(kept)
    place = None if whole.metadata is None else whole.metadata.revocation_endpoint
    if place is None:
        return False
    context = OAuthClientProvider(url, client.metadata, _InMemory()).context
    context.client_info, context.oauth_metadata = whole.client, whole.metadata
    is_all = True
    async with _others(url, rules) as others:
        for kind, token in (("refresh_token", whole.tokens.refresh_token), ("access_token", whole.tokens.access_token)):
            if token is not None:
                data, headers = context.prepare_token_auth({"token": token, "token_type_hint": kind}, {})
                response = await _asked(others, httpx2.Request("POST", str(place), data=data, headers=headers))
                is_all = is_all and response.status_code == 200
    return is_all


def wanted_of(kept: str) -> str | None:
    """The scopes that the server wants besides what was allowed, of what is kept of an account."""
    return _Kept.model_validate_json(kept).wanted


def _wants_more(response: httpx2.Response) -> bool:
    """RFC 6750, section 3.1."""
    return response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope"


@contextlib.contextmanager
def _in_words(server: str) -> Iterator[None]:
    """What goes wrong with signing in becomes `SignInFailed`, without words of others."""
    try:
        yield
    except (OAuthFlowError, EthosError, ValueError) as error:
        _log.info("mcp_sign_in_failed", server=server, error=str(error)[:500])
        raise SignInFailed(f"signing in failed: {_OTHERS.split(str(error))[0].strip()}") from error


def _others(url: str, rules: Rules) -> httpx2.AsyncClient:
    """Asks what is not the server itself."""
    return httpx2.AsyncClient(transport=_Guard(httpx2.URL(url), rules), timeout=_TIMEOUT_S, trust_env=False)


async def _asked(others: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    try:
        return await others.send(request)
    except httpx2.HTTPError as error:
        raise SignInFailed(f"{request.url.host}, where one signs in, is not reached ({error})") from error


class _Guard(httpx2.AsyncBaseTransport):
    """Connects to the server that the operator has named, to public addresses, and to hosts that the operator allows.

    A name is resolved here, and the very address that was looked at is connected: no second answer leads inside.
    """

    def __init__(self, own: httpx2.URL, rules: Rules) -> None:
        self._own = (own.scheme, own.host, own.port)
        self._rules = rules
        # A kept connection is known by its address alone, and belongs to one name.
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False, limits=httpx2.Limits(max_keepalive_connections=0))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        request.headers["accept-encoding"] = "identity"
        is_allowed = url.host in self._rules.private_hosts
        if (url.scheme, url.host, url.port) == self._own:
            response = await self._inner.handle_async_request(request)
        else:
            self._check(url, is_allowed=is_allowed)
            response = await self._connected(request, is_allowed=is_allowed)
        response.stream = Bounded(response.stream)
        return response

    def _check(self, url: httpx2.URL, *, is_allowed: bool) -> None:
        if url.scheme != "https" and not is_allowed:
            raise SignInFailed(f"the server names {url.host} for signing in, which is no https address; ask its owner")
        port = url.port or (443 if url.scheme == "https" else 80)
        if port not in PORTS and port not in self._rules.ports:
            raise SignInFailed(f"the server names port {port} for signing in; add it to `web.ports` to allow that")

    async def _connected(self, request: httpx2.Request, *, is_allowed: bool) -> httpx2.Response:
        url = request.url
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                url.host, url.port or url.scheme, type=socket.SOCK_STREAM
            )
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error
        hosts = list(dict.fromkeys(str(info[4][0]) for info in found))
        if not is_allowed and not all(is_public(ip_address(host.partition("%")[0])) for host in hosts):
            raise SignInFailed(
                f"the server names {url.host} for signing in, which is not on the public internet; add it to "
                "`web.allow_private` if that is meant"
            )
        extensions = {**request.extensions, "sni_hostname": url.host}
        for host in hosts[:-1]:
            with contextlib.suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await self._inner.handle_async_request(_at(request, host, extensions))
        return await self._inner.handle_async_request(_at(request, hosts[-1], extensions))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _at(request: httpx2.Request, host: str, extensions: dict[str, object]) -> httpx2.Request:
    """The same request, sent to an address; its header still names the host."""
    url = request.url.copy_with(host=host)
    return httpx2.Request(request.method, url, headers=request.headers, content=request.content, extensions=extensions)
