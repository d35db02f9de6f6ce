"""How people sign in to servers: a link in a chat, a page of ours, the page of the server, and back to ours.

The link names whose account it is, and works in any browser. From our page on, all belongs to one browser: it has a
cookie, so nobody can have another person allow something to an account of their own (RFC 9700, 4.7).
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from gateway.config.mcp import McpConfig
from gateway.mcp.errors import SignInFailed
from gateway.mcp.tokens import Account, Links, Seal, Tokens, TokenStore

if TYPE_CHECKING:
    import httpx2

    from gateway.mcp.oauth import Client, Own, Rules, SignedIn, SigningIn
    from gateway.tools.contract import ToolContext

PATH = "/sign-in"
CALLBACK_PATH = f"{PATH}/callback"
DOCUMENT_PATH = f"{PATH}/client.json"
LINK_LIFETIME_S = 600.0
_PATIENCE_S = 30.0
_NO_OFFER = "no web server runs here, so nobody can sign in; start the gateway, and run this again"
_BEGUN = "sign-in"
_GONE = "This sign-in has ended, or it was begun in another browser. Ask for a new link."
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in that a browser is in the middle of.

    Attributes:
        address: where the person signs in.
        state: of OAuth, by which the answer is known.
        browser: a secret that the browser keeps.
    """

    address: str
    state: str
    browser: str


class BegunStore(Protocol):
    """Sign-ins while the browser is away, by a hash of their `state`. Each method may raise StoreUnavailable."""

    async def begin(self, state: str, server: str, user_id: str, sealed: str, *, lifetime_s: float) -> None:
        """Keep one for so long, in place of others of its account."""

    async def begun(self, state: str) -> str | None:
        """One, as it was sealed; None where it is over."""

    async def end(self, state: str) -> bool:
        """Delete one; False where another was faster."""


class SignInStore(TokenStore, BegunStore, Protocol):
    """Accounts that are signed in, and those that are about to be."""


class SignIns:
    """The accounts at servers, and how people sign in to them.

    Args:
        key: loads the key of what is kept.
        base: where browsers reach this gateway, without a slash at the end; None: nowhere.
        rules: makes the rules for addresses that servers name.
        lifetime_s: of a link, and of what follows it.
    """

    def __init__(
        self,
        config: McpConfig,
        store: SignInStore,
        *,
        key: Callable[[], bytes],
        base: Callable[[], str | None],
        rules: Callable[[], Rules],
        lifetime_s: float = LINK_LIFETIME_S,
    ) -> None:
        self._store = store
        self._seal = Seal(key)
        self.tokens = Tokens(store, self._seal)
        self.on_signed_in: Callable[[Account], object] = lambda _account: None
        self.config = config
        self._links = Links(self._seal, lifetime_s=lifetime_s)
        self._base = base
        self._rules = rules

    # ---- calls ------------------------------------------------------------------------------------------------------

    async def problem(self, account: Account, context: ToolContext, *, lacks_permission: bool = False) -> str | None:
        """Why a tool cannot use an account, for the model; then the person's link stands below the answer.

        Args:
            lacks_permission: the server wants more to be allowed than was.

        Raises:
            StoreUnavailable, FileError: it cannot be found out.
        """
        server, kept = account.server, await self.tokens.kept(account)
        again = ""
        if kept is not None:
            if not lacks_permission:
                return None
            again = " again, and allow more"
        if not account.user_id:
            why = "more must be allowed there" if again else f"nobody has signed in to {server} yet"
            return f"this was not done: {why}. The operator does: {how_to(server)}."
        link = self.link(account)
        context.codes.append(link)
        context.below[f"sign in {server}"] = (
            f"**Sign in to {server}{again}:** {link}\n"
            f"_Only you may open this link. It works for {self.lifetime_s / 60:.0f} minutes. Then ask me again._"
        )
        how = f"{server}{again or ' first'}, by the link that stands below the answer"
        return f"this was not done: the person must sign in to {how}"

    @staticmethod
    def _wanted(kept: str) -> str | None:
        from gateway.mcp.oauth import wanted_of  # noqa: PLC0415 (the SDK is loaded late)

        return wanted_of(kept)

    def authorized(self, account: Account, inner: httpx2.AsyncBaseTransport) -> httpx2.AsyncBaseTransport:
        """The transport to a server, with the tokens of an account."""
        from gateway.mcp.oauth import Authorized, Own, SignedIn  # noqa: PLC0415 (the SDK is loaded late)

        config, client = self.config.servers[account.server], self._client(account)
        url = config.url or ""
        provider: Own | SignedIn = SignedIn(url, client, account, self.tokens)
        if not config.needs_sign_in:
            provider = Own(url, client)
        return Authorized(inner, provider, url, self._rules())

    # ---- people -----------------------------------------------------------------------------------------------------

    def link(self, account: Account) -> str:
        """The address by which to sign in.

        Raises:
            SignInFailed: there is no web server.
            FileError: there is no key.
        """
        base = self._base()
        if base is None:
            raise SignInFailed(_NO_OFFER)
        return f"{base}{PATH}/{self._links.made(account)}"

    def account_of(self, link: str) -> Account | None:
        """Whose account a link means; None where it has ended, or is none."""
        account = self._links.read(link)
        is_there = account is not None and account.server in self.config.servers
        return account if is_there else None

    async def begin(self, account: Account) -> Begun:
        """Find out where the person signs in.

        Raises:
            SignInFailed: it cannot begin; says why.
            StoreUnavailable, FileError: it cannot be kept.
        """
        from gateway.mcp.oauth import SigningIn  # noqa: PLC0415 (as above)

        url, browser = self._url(account.server), secrets.token_urlsafe()
        kept = await self.tokens.kept(account)
        wanted = None if kept is None else self._wanted(kept[0])
        provider = SigningIn(url, self._client(account), account, self.tokens, wanted=wanted)
        await self._led_away(account, provider, url)
        sealed = self._seal.close(provider.waiting(browser).model_dump_json(), _BEGUN, provider.state)
        place = (_hashed(provider.state), account.server, account.user_id)
        await self._store.begin(*place, sealed, lifetime_s=self.lifetime_s)
        return Begun(provider.address, provider.state, browser)

    async def finish(self, query: Mapping[str, str], browser: str) -> Account:
        """The browser has come back, to whichever worker; the account is signed in.

        Raises:
            SignInFailed: it is not; says why.
            StoreUnavailable, FileError: it cannot be found out, or kept.
        """
        from mcp.shared.auth import AuthorizationCodeResult  # noqa: PLC0415 (as above)

        from gateway.mcp.oauth import SigningIn, Waiting  # noqa: PLC0415 (as above)

        state = query.get("state", "")
        sealed = await self._store.begun(_hashed(state))
        text = None if sealed is None else self._seal.open(sealed, _BEGUN, state)
        waiting = None if text is None else Waiting.model_validate_json(text)
        if waiting is None or not secrets.compare_digest(waiting.browser.encode(), browser.encode()):
            raise SignInFailed(_GONE)
        if waiting.server not in self.config.servers or not await self._store.end(_hashed(state)):
            raise SignInFailed(_GONE)
        if "error" in query or "code" not in query:
            raise SignInFailed("The server has not allowed it. Ask for a new link to try again.")
        brought = AuthorizationCodeResult(code=query["code"], state=state, iss=query.get("iss"))
        account = Account(waiting.server, waiting.user_id)
        url = self._url(account.server)
        provider = SigningIn(url, self._client(account), account, self.tokens)
        token = await provider.end(waiting, brought, url, self._rules())
        await self._try(account, url, token)
        _log.info("mcp_signed_in", server=account.server)
        self.on_signed_in(account)
        return account

    async def sign_out(self, account: Account) -> bool | None:
        """Forget what an account was given; whether its authorization server did, too. None: nobody was signed in.

        Raises:
            StoreUnavailable, FileError: it is not forgotten.
        """
        kept = await self.tokens.kept(account)
        if kept is None:
            return None
        await self.tokens.drop(account, kept[1])
        from gateway.mcp.oauth import revoke  # noqa: PLC0415 (the SDK is loaded late)

        try:
            is_revoked = await revoke(kept[0], self._url(account.server), self._client(account), self._rules())
        except SignInFailed as error:
            _log.info("mcp_not_revoked", server=account.server, error=str(error))
            is_revoked = False
        _log.info("mcp_signed_out", server=account.server, is_revoked=is_revoked)
        return is_revoked

    @property
    def lifetime_s(self) -> float:
        """Of a link, and of what follows it."""
        return self._links.lifetime_s

    @property
    def document(self) -> dict[str, Any] | None:
        """What authorization servers may read about the gateway; None where it has no public address."""
        client = next((self._client(Account(name)) for name, one in self.config.servers.items() if one.oauth), None)
        if client is None or client.document is None:
            return None
        said = client.metadata.model_dump(mode="json", exclude_none=True, exclude={"scope"})
        return {"client_id": client.document, "token_endpoint_auth_method": "none", **said}

    async def _led_away(self, account: Account, provider: SigningIn, url: str) -> None:
        """Ask the server as nobody, and find out where it sends the person.

        Raises:
            SignInFailed: nowhere.
        """
        import httpx2  # noqa: PLC0415 (as above)

        from gateway.mcp.oauth import Authorized, Shown  # noqa: PLC0415 (as above)

        transport = Authorized(httpx2.AsyncHTTPTransport(), provider, url, self._rules())
        try:
            status = await _pinged(transport, account.server, url)
        except Shown:
            return
        raise SignInFailed(f"{account.server} asks nobody to sign in ({status}); take `oauth` out of its keys")

    async def _try(self, account: Account, url: str, token: str) -> None:
        """Ask the server with a new token. Raises SignInFailed where it does not take it."""
        import httpx2  # noqa: PLC0415 (as above)

        if await _pinged(httpx2.AsyncHTTPTransport(), account.server, url, token) == 401:
            raise SignInFailed(f"{account.server} does not take the token that it has given; ask its owner")

    def _url(self, server: str) -> str:
        return self.config.servers[server].url or ""

    def _client(self, account: Account) -> Client:
        from gateway.mcp.oauth import Client  # noqa: PLC0415 (as above)

        config, base = self.config.servers[account.server].oauth, self._base() or ""
        if config is None:
            raise SignInFailed(f"nobody signs in to {account.server}: it has no `oauth`")
        document = f"{base}{DOCUMENT_PATH}" if base.startswith("https://") else None
        return Client(config=config, redirect=f"{base or 'http://127.0.0.1'}{CALLBACK_PATH}", document=document)


async def _pinged(transport: httpx2.AsyncBaseTransport, server: str, url: str, token: str | None = None) -> int:
    """The status that a server answers to a request for nothing. Raises SignInFailed where it is not reached."""
    import httpx2  # noqa: PLC0415 (as above)

    headers = {"accept": "application/json, text/event-stream"}
    headers |= {} if token is None else {"authorization": f"Bearer {token}"}
    ping = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
    try:
        async with (
            asyncio.timeout(_PATIENCE_S),
            httpx2.AsyncClient(transport=transport, timeout=_PATIENCE_S, trust_env=False) as asking,
            asking.stream("POST", url, json=ping, headers=headers) as response,
        ):
            return response.status_code
    except (httpx2.HTTPError, TimeoutError) as error:
        raise SignInFailed(f"{server} is not reached ({str(error) or 'too late'})") from error


def _hashed(state: str) -> str:
    return hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()


def how_to(server: str, *, is_per_person: bool = False) -> str:
    """The command that gives a link."""
    return f"`ethos mcp login {server}{' --user PERSON' if is_per_person else ''}`"
