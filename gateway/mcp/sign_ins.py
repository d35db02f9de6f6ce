"""How people sign in to servers: a link in a chat, a page of ours, the page of the server, and back to ours.

The link names whose account it is, and works in any browser. From our page on, all belongs to one browser: it has a
cookie, so nobody can have another person allow something to an account of their own (RFC 9700, 4.7).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import structlog

from gateway.config.mcp import McpConfig
from gateway.mcp.errors import SignInFailed
from gateway.mcp.tokens import Account, Links, Seal, Tokens, TokenStore

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.auth import AuthorizationCodeResult

    from gateway.mcp.oauth import Client, Own, Rules, SignedIn
    from gateway.tools.contract import ToolContext

PATH = "/sign-in"
CALLBACK_PATH = f"{PATH}/callback"
DOCUMENT_PATH = f"{PATH}/client.json"
LINK_LIFETIME_S = 600.0
_PATIENCE_S = 30.0
_NO_OFFER = "no web server runs here, so nobody can sign in; start the gateway, and run this again"
_GONE = "This sign-in has ended, or it was begun in another browser. Ask for a new link."
_log = structlog.get_logger(__name__)


class Begun:
    """A sign-in that a browser is in the middle of.

    Attributes:
        browser: a secret that the browser keeps.
        shown: the address where the person signs in.
        answer: what the browser brings back from there.
        task: does it all.
    """

    def __init__(self, account: Account, sign_in: Callable[[Begun], Coroutine[Any, Any, None]]) -> None:
        """It begins at once."""
        loop = asyncio.get_running_loop()
        self.account = account
        self.browser = secrets.token_urlsafe()
        self.shown: asyncio.Future[str] = loop.create_future()
        self.answer: asyncio.Future[AuthorizationCodeResult] = loop.create_future()
        self.task = asyncio.create_task(sign_in(self), name=f"sign in {account.server}")

    @property
    def address(self) -> str:
        """Where the person signs in."""
        return self.shown.result()

    @property
    def state(self) -> str:
        """Of OAuth, by which the answer is known."""
        return parse_qs(urlsplit(self.address).query)["state"][0]

    async def show(self, address: str) -> None:
        """The browser may go there."""
        self.shown.set_result(address)


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
        store: TokenStore,
        *,
        key: Callable[[], bytes],
        base: Callable[[], str | None],
        rules: Callable[[], Rules],
        lifetime_s: float = LINK_LIFETIME_S,
    ) -> None:
        seal = Seal(key)
        self.tokens = Tokens(store, seal)
        self.on_signed_in: Callable[[Account], object] = lambda _account: None
        self.config = config
        self._links = Links(seal, lifetime_s=lifetime_s)
        self._base = base
        self._rules = rules
        self._begun: dict[str, Begun] = {}
        """By the `state` of OAuth, which counts once."""

    # ---- calls ------------------------------------------------------------------------------------------------------

    async def problem(self, account: Account, context: ToolContext) -> str | None:
        """Why a tool cannot use an account, for the model; then the person's link stands below the answer.

        Raises:
            StoreUnavailable, FileError: it cannot be found out.
        """
        server = account.server
        if await self.tokens.kept(account) is not None:
            return None
        if not account.user_id:
            return f"this was not done: nobody has signed in to {server} yet. The operator does: {how_to(server)}."
        context.below[f"sign in {server}"] = (
            f"**Sign in to {server}:** {self.link(account)}\n"
            f"_Only you may open this link. It works for {self.lifetime_s / 60:.0f} minutes. Then ask me again._"
        )
        return f"this was not done: the person must sign in to {server} first, by the link that stands below the answer"

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
        """
        for state, before in [*self._begun.items()]:
            if before.account == account:
                await self._end(state)
        begun = Begun(account, self._sign_in)
        try:
            await asyncio.wait((begun.task, begun.shown), timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not begun.shown.done():
                begun.task.cancel()
        if not begun.shown.done():
            [ended] = await asyncio.gather(begun.task, return_exceptions=True)
            raise ended if isinstance(ended, SignInFailed) else SignInFailed("the server did not answer in time")
        self._begun[begun.state] = begun
        begun.task.add_done_callback(partial(self._ended, begun.state))
        return begun

    async def finish(self, query: Mapping[str, str], browser: str) -> Account:
        """The browser has come back; the account is signed in.

        Raises:
            SignInFailed: it is not; says why.
        """
        begun = self._begun.get(query.get("state", ""))
        if begun is None or not secrets.compare_digest(begun.browser.encode(), browser.encode()):
            raise SignInFailed(_GONE)
        del self._begun[query["state"]]
        if "error" in query or "code" not in query:
            begun.task.cancel()
            raise SignInFailed("The server has not allowed it. Ask for a new link to try again.")
        from mcp.shared.auth import AuthorizationCodeResult  # noqa: PLC0415 (as above)

        brought = AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))
        begun.answer.set_result(brought)
        await asyncio.wait((begun.task,), timeout=_PATIENCE_S)
        if not begun.task.done():
            begun.task.cancel()
            raise SignInFailed("The server did not answer in time. Ask for a new link.")
        begun.task.result()
        return begun.account

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

    async def close(self) -> None:
        """End the sign-ins that are begun."""
        for state in [*self._begun]:
            await self._end(state)

    async def _end(self, state: str) -> None:
        begun = self._begun.pop(state, None)
        if begun is not None:
            begun.task.cancel()
            await asyncio.wait((begun.task,))

    def _ended(self, state: str, task: asyncio.Task[None]) -> None:
        self._begun.pop(state, None)
        if not task.cancelled():
            task.exception()  # whoever waits is told; where the browser has gone, nobody does

    async def _sign_in(self, begun: Begun) -> None:
        """Ask the server as nobody, sign in where it says, and ask again.

        Raises:
            SignInFailed: that did not work.
        """
        import httpx2  # noqa: PLC0415 (as above)

        from gateway.mcp.oauth import Authorized, SigningIn  # noqa: PLC0415 (as above)

        account = begun.account
        url = self.config.servers[account.server].url or ""
        client = self._client(account)
        provider = SigningIn(url, client, account, self.tokens, show=begun.show, answer=lambda: begun.answer)
        transport = Authorized(httpx2.AsyncHTTPTransport(), provider, url, self._rules())
        headers = {"accept": "application/json, text/event-stream"}
        ping = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
        try:
            async with (
                asyncio.timeout(self.lifetime_s),
                httpx2.AsyncClient(transport=transport, timeout=_PATIENCE_S, trust_env=False) as asking,
                asking.stream("POST", url, json=ping, headers=headers) as response,
            ):
                status = response.status_code
        except (httpx2.HTTPError, TimeoutError) as error:
            raise SignInFailed(f"{account.server} is not reached ({str(error) or 'too late'})") from error
        if not begun.shown.done():
            raise SignInFailed(f"{account.server} asks nobody to sign in ({status}); take `oauth` out of its keys")
        if status == 401:
            raise SignInFailed(f"{account.server} does not take the token that it has given; ask its owner")
        _log.info("mcp_signed_in", server=account.server)
        self.on_signed_in(account)

    def _client(self, account: Account) -> Client:
        from gateway.mcp.oauth import Client  # noqa: PLC0415 (as above)

        config, base = self.config.servers[account.server].oauth, self._base() or ""
        if config is None:
            raise SignInFailed(f"nobody signs in to {account.server}: it has no `oauth`")
        document = f"{base}{DOCUMENT_PATH}" if base.startswith("https://") else None
        return Client(config=config, redirect=f"{base or 'http://127.0.0.1'}{CALLBACK_PATH}", document=document)


def how_to(server: str, *, is_per_person: bool = False) -> str:
    """The command that gives a link."""
    return f"`ethos mcp login {server}{' --user PERSON' if is_per_person else ''}`"
