"""Accounts at servers: whose connection is whose, how long it lasts, and what renews what."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config.mcp import McpConfig
from gateway.mcp.errors import SignInFailed
from gateway.mcp.oauth import Rules
from gateway.mcp.sign_ins import _GONE, SignIns
from gateway.mcp.tokens import Account, Links, Seal, Tokens
from gateway.store.stores import open_store
from gateway.tools.contract import Called, ToolContext
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox
from tests.gateway.mcp.conftest import CONTEXT, QUICK, Servers
from tests.mcp_servers.signing import SigningServer

KEY = bytes(range(32))


def rows_of(place: Path) -> list[tuple[object, ...]]:
    """The sign-ins that are begun, as they lie on disk."""
    with contextlib.closing(sqlite3.connect(place / "ethos.sqlite")) as connection:
        return connection.execute("SELECT * FROM mcp_sign_ins").fetchall()


class Signed(Servers):
    """Servers to which people sign in."""

    async def signed_in(self, user_id: str) -> None:
        """Sign a person in, as their browser does."""
        assert self.sign_ins is not None
        begun = await self.sign_ins.begin(Account("mail", user_id))
        async with httpx.AsyncClient(trust_env=False) as browser:
            back = httpx.URL((await browser.get(begun.address)).headers["location"])
        await self.sign_ins.finish(dict(back.params), begun.browser)

    def context(self, user_id: str) -> ToolContext:
        """Of a turn of theirs."""
        return replace(CONTEXT, scope=replace(CONTEXT.scope, user_id=user_id), below={}, codes=[])

    async def use(self, name: str, context: ToolContext) -> Called:
        """As a turn calls a tool."""
        return await Toolbox(self.tools).call(ToolCall(id="c1", name=name, arguments="{}"), context)

    async def whoami(self, user_id: str) -> Called:
        """As a turn of theirs calls it."""
        return await self.use("mail__whoami", self.context(user_id))

    async def connected(self, *user_ids: str) -> None:
        """Wait until these have connections, and nobody else."""
        async with asyncio.timeout(20):
            while True:
                up = {one.user_id for one, server in self._servers.items() if server.standing.state == "up"}
                if up - {""} == {*user_ids} == {one.user_id for one in self._owners} - {""}:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def server() -> AsyncIterator[SigningServer]:
    async with SigningServer().running() as server:
        yield server


@asynccontextmanager
async def servers(
    home: Path, server: SigningServer, *, idle_s: float = 600, mode: str = "per_person", **oauth: Any
) -> AsyncIterator[Signed]:
    """Running, and with the tools accepted; the operator is signed in."""
    one = {"url": server.url, "oauth": {"mode": mode, **oauth}, "effects": {"whoami": "read"}}
    config = McpConfig.model_validate({"servers": {"mail": one}})
    store = open_store(home / "ethos.sqlite")
    sign_ins = SignIns(config, store.mcp_tokens, key=lambda: KEY, base=lambda: "http://127.0.0.1:1", rules=Rules)
    made = Signed(
        config,
        store.mcp_tools,
        home=home,
        tier=_no_tier,
        hide=str,
        times=replace(QUICK, idle=idle_s),
        sign_ins=sign_ins,
    )
    await made.open()
    running = asyncio.create_task(made.run())
    try:
        if mode == "per_person":
            await made.signed_in("operator")
        async with asyncio.timeout(20):
            while not made.view("mail").tools:
                await asyncio.sleep(0.01)
        await made.accept("mail")
        yield made
    finally:
        running.cancel()
        await asyncio.wait((running,))
        await store.close()


async def _no_tier() -> None:
    return None


async def test_each_person_has_a_connection_of_their_own_which_ends_when_it_is_idle(
    tmp_path: Path, server: SigningServer
) -> None:
    async with servers(tmp_path, server, idle_s=0.3) as made:
        for who in ("ada", "bob"):
            server.authority.at_browser = who
            await made.signed_in(who)
        calls = await asyncio.gather(*(made.whoami(who) for who in ("ada", "bob") * 4))
        assert [called.text for called in calls] == ["the account of ada", "the account of bob"] * 4
        await made.connected()
        assert (await made.whoami("ada")).text == "the account of ada"
        await made.connected("ada")


async def test_calls_that_find_a_token_not_taken_renew_it_once(tmp_path: Path, server: SigningServer) -> None:
    """A renewal token counts once, so a second one who showed it would end the sign-in."""
    async with servers(tmp_path, server) as made:
        await made.signed_in("ada")
        await made.whoami("ada")
        server.authority.revoke(renewals=False)
        server.authority.asked.clear()
        calls = await asyncio.gather(*(made.whoami("ada") for _ in range(5)))
        assert {called.text for called in calls} == {"the account of ada"}
        assert server.authority.asked.count(("/token", 200)) == 1
        assert ("/token", 400) not in server.authority.asked


async def test_who_is_signed_out_elsewhere_is_signed_out_here_at_once(tmp_path: Path, server: SigningServer) -> None:
    async with servers(tmp_path, server) as made:
        await made.signed_in("ada")
        await made.whoami("ada")
        other = open_store(tmp_path / "ethos.sqlite")
        await other.mcp_tokens.forget_people(["ada"])
        await other.close()
        server.calls.clear()
        assert "the person must sign in to mail first" in (await made.whoami("ada")).text
        assert server.calls == []


async def test_whoever_stays_long_at_the_servers_page_begins_anew(tmp_path: Path, server: SigningServer) -> None:
    async with servers(tmp_path, server) as made:
        assert made.sign_ins is not None
        made.sign_ins._links.lifetime_s = 0.001
        server.authority.asked.clear()
        begun = await made.sign_ins.begin(Account("mail", "ada"))
        await asyncio.sleep(0.01)
        with pytest.raises(SignInFailed, match="This sign-in has ended"):
            await made.sign_ins.finish({"state": begun.state, "code": "c"}, begun.browser)
        assert server.authority.asked.count(("/token", 200)) == 0


async def test_a_sign_in_is_ended_once_by_whichever_worker_its_browser_comes_back_to(
    tmp_path: Path, server: SigningServer
) -> None:
    async with servers(tmp_path, server) as made, servers(tmp_path, server) as other:
        assert made.sign_ins is not None
        assert other.sign_ins is not None
        begun = await made.sign_ins.begin(Account("mail", "ada"))
        async with httpx.AsyncClient(trust_env=False) as browser:
            back = dict(httpx.URL((await browser.get(begun.address)).headers["location"]).params)
        for query, secret in ((back, "another"), ({**back, "state": "another"}, begun.browser)):
            with pytest.raises(SignInFailed, match="begun in another browser"):
                await other.sign_ins.finish(query, secret)
        ends = [one.finish(back, begun.browser) for one in (other.sign_ins, made.sign_ins, other.sign_ins)]
        ended = await asyncio.gather(*ends, return_exceptions=True)
        assert [type(one) for one in ended].count(Account) == 1
        assert [str(one) for one in ended].count(_GONE) == 2
        assert (await other.whoami("ada")).outcome == "done"
        assert rows_of(tmp_path) == []


async def test_where_the_server_wants_more_the_person_is_led_there_once_more_and_the_rest_goes_on(
    tmp_path: Path, server: SigningServer
) -> None:
    async with servers(tmp_path, server) as made:
        await made.signed_in("ada")
        assert (await made.whoami("ada")).text == "the account of ada"
        context = made.context("ada")
        refused = await made.use("mail__send", context)
        assert refused.outcome == "failed"
        assert "must sign in to mail again, and allow more, by the link that stands below" in refused.text
        assert "**Sign in to mail again, and allow more:** http://" in context.below["sign in mail"]
        assert server.calls[-1] == "ada", "it was not done"
        assert (await made.whoami("ada")).text == "the account of ada"
        await made.signed_in("ada")
        assert set(server.authority.redirected_scopes) == {"mail", "more"}
        assert (await made.use("mail__send", made.context("ada"))).text == "sent"


async def test_what_more_is_wanted_is_known_after_a_renewal_and_within_one(
    tmp_path: Path, server: SigningServer
) -> None:
    async with servers(tmp_path, server) as made:
        await made.signed_in("ada")
        server.authority.issued.clear()  # so the call renews the token, and is refused then
        context = made.context("ada")
        assert "and allow more, by the link that stands below" in (await made.use("mail__send", context)).text
        assert context.below
        server.authority.issued.clear()
        assert (await made.whoami("ada")).text == "the account of ada"
        await made.signed_in("ada")
        assert set(server.authority.redirected_scopes) == {"mail", "more"}
        assert (await made.use("mail__send", made.context("ada"))).text == "sent"


async def test_another_failure_leads_nobody_to_allow_more(tmp_path: Path, server: SigningServer) -> None:
    async with servers(tmp_path, server) as made:
        await made.signed_in("ada")
        await made.use("mail__send", made.context("ada"))
        server.authority.down.add("/token")
        server.authority.issued.clear()
        context = made.context("ada")
        assert (
            "signing in failed: its authorization server answered 503" in (await made.use("mail__whoami", context)).text
        )
        assert context.below == {}


async def test_a_server_that_wants_more_before_anything_else_leads_there_too(
    tmp_path: Path, server: SigningServer
) -> None:
    async with servers(tmp_path, server) as made:
        server.is_wanted_at_once = True
        await made.signed_in("ada")
        context = made.context("ada")
        assert "and allow more, by the link that stands below" in (await made.use("mail__whoami", context)).text
        await made.signed_in("ada")
        assert (await made.whoami("ada")).text == "the account of ada"


async def test_a_server_that_is_never_content_leads_nobody_around(tmp_path: Path, server: SigningServer) -> None:
    server.is_never_content = True
    async with servers(tmp_path, server) as made:
        await made.signed_in("ada")
        await made.use("mail__send", made.context("ada"))
        await made.signed_in("ada")
        server.authority.asked.clear()
        context = made.context("ada")
        refused = await made.use("mail__send", context)
        assert "mail refuses this account, although it has all scopes that it is asked for" in refused.text
        assert context.below == {}
        assert [path for path, _ in server.authority.asked] == ["/mcp"]


async def test_scopes_that_the_operator_has_named_are_not_exceeded(tmp_path: Path, server: SigningServer) -> None:
    async with servers(tmp_path, server, scopes=["mail"]) as made:
        await made.signed_in("ada")
        context = made.context("ada")
        refused = await made.use("mail__send", context)
        assert "mail wants scopes that `scopes` in its `oauth` does not name; the operator adds them" in refused.text
        assert context.below == {}


@pytest.mark.parametrize("is_never_content", [False, True])
async def test_the_gateway_by_its_own_secret_gets_more_at_once_and_asks_once(
    tmp_path: Path, server: SigningServer, is_never_content: bool
) -> None:
    server.is_never_content = is_never_content
    secret = {"client_id": "ethos", "client_secret": server.own_secret, "issuer": f"{server.origin}/"}
    async with servers(tmp_path, server, mode="client_credentials", **secret) as made:
        server.authority.asked.clear()
        called = await made.use("mail__send", CONTEXT)
        tokens = server.authority.asked.count(("/token", 200))
        assert tokens == 1
        if is_never_content:
            assert "its server refuses the gateway" in called.text
        else:
            assert called.text == "sent"


async def test_what_is_kept_of_a_sign_in_is_sealed_and_a_later_one_takes_its_place(
    tmp_path: Path, server: SigningServer
) -> None:
    async with servers(tmp_path, server) as made:
        assert made.sign_ins is not None
        first = await made.sign_ins.begin(Account("mail", "ada"))
        second = await made.sign_ins.begin(Account("mail", "ada"))
        rows = rows_of(tmp_path)
        assert len(rows) == 1
        for secret in (first.state, second.state, second.browser, "code_verifier", "127.0.0.1"):
            assert secret not in str(rows)
        with pytest.raises(SignInFailed, match="This sign-in has ended"):
            await made.sign_ins.finish({"state": first.state, "code": "c"}, first.browser)


def test_what_is_sealed_opens_by_its_key_and_its_name_alone() -> None:
    seal = Seal(lambda: KEY)
    sealed = seal.close("canary", "tokens", "mail", "ada")
    assert seal.open(sealed, "tokens", "mail", "ada") == "canary"
    assert seal.close("canary", "tokens", "mail", "ada") != sealed
    assert "canary" not in sealed
    for other in (("tokens", "mail", "bob"), ("tokens", "mai", "lada"), ("link",)):
        assert seal.open(sealed, *other) is None
    assert Seal(lambda: bytes(32)).open(sealed, "tokens", "mail", "ada") is None
    for broken in ("", "a", sealed[:-1], sealed[:-8], "1" + sealed[1:], "\N{SNOWMAN}", sealed + "aaaaaaaa"):
        assert seal.open(broken, "tokens", "mail", "ada") is None, broken
    assert Links(seal, lifetime_s=60).read(sealed) is None, "what is kept is no link"


def test_a_link_means_one_account_until_it_is_too_old() -> None:
    links = Links(Seal(lambda: KEY), lifetime_s=60)
    link = links.made(Account("mail", "ada"))
    assert links.read(link) == Account("mail", "ada")
    links.lifetime_s = -1
    assert links.read(links.made(Account("mail", "ada"))) is None


async def test_another_key_is_as_if_nobody_had_signed_in(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ethos.sqlite")
    account = Account("mail", "ada")
    await Tokens(store.mcp_tokens, Seal(lambda: KEY)).keep(account, "kept")
    assert await Tokens(store.mcp_tokens, Seal(lambda: bytes(32))).kept(account) is None
    assert (await Tokens(store.mcp_tokens, Seal(lambda: KEY)).kept(account) or ("",))[0] == "kept"
    await store.close()
