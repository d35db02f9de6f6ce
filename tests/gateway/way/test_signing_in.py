"""People sign in to servers of tools by a link in their chat; nobody's token is ever used for another."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sqlite3
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.domain.codes import HIDDEN
from gateway.mcp.sign_ins import SignIns
from gateway.mcp.tokens import KEY_NAME, Account
from gateway.services.caller import Refused, operator
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, listed, settled
from tests.gateway.way.test_linking import DESK, PHONE, link, told
from tests.mcp_servers.signing import SigningServer
from tests.scripted_model import ScriptedModel, call

WHO = call("mail__whoami")
LINK = re.compile(r"http://\S+/sign-in/\S+")
NUMBERS = itertools.count(1)
OPERATOR = Account("mail", "u_operator")


@pytest.fixture
async def server() -> AsyncIterator[SigningServer]:
    async with SigningServer().running() as server:
        yield server


class Browser:
    """A person's browser, which keeps its cookies."""

    def __init__(self) -> None:
        self.client = httpx.AsyncClient(trust_env=False, timeout=20)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def begin(self, link: str) -> str:
        """Open a link and go on; the address at the authorization server."""
        page = await self.client.get(link)
        assert page.status_code == 200, page.text
        assert '<form method="post">' in page.text
        answer = await self.client.post(link)
        assert answer.status_code == 200, answer.text
        return answer.headers["refresh"].partition("url=")[2]

    async def allowed(self, address: str) -> str:
        """Allow it there; where that leads."""
        answer = await self.client.get(address)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    async def sign_in(self, link: str) -> httpx.Response:
        """All of it."""
        return await self.client.get(await self.allowed(await self.begin(link)))


async def sign_in(link: str) -> str:
    """In a browser of its own; the page where it ends."""
    async with Browser() as browser:
        return (await browser.sign_in(link)).text


@asynccontextmanager
async def served(
    house: House, server: SigningServer, model: ScriptedModel | None = None, oauth: Any = "per_person", **more: Any
) -> AsyncIterator[tuple[Gateway, FakeChannel]]:
    web = {"port": 0, **more.pop("web", {})}
    config = {"url": server.url, "oauth": oauth, "effects": {"whoami": "own"}, **more}
    async with house.served(model, mcp={"servers": {"mail": config}}, web=web) as gateway:
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        channel._numbers = NUMBERS  # a restart is no reason to use an id of the platform twice
        await channel.connected()
        yield gateway, channel


def sign_ins(gateway: Gateway) -> SignIns:
    assert gateway.mcp is not None
    assert gateway.mcp.sign_ins is not None
    return gateway.mcp.sign_ins


async def accepted(gateway: Gateway, account: Account = OPERATOR) -> None:
    """The operator has signed somebody in, and accepted the tools."""
    assert gateway.mcp is not None
    assert "You are signed in to mail" in await sign_in(sign_ins(gateway).link(account))
    async with asyncio.timeout(20):
        while not gateway.mcp.view("mail").tools:
            await asyncio.sleep(0.01)
    assert "mail__whoami" in await gateway.mcp.accept("mail")


def kept(house: House) -> list[tuple[str, str, str]]:
    """The rows in the file."""
    with sqlite3.connect(house.home / "ethos.sqlite") as connection:
        return connection.execute("SELECT server, user_id, sealed FROM mcp_tokens ORDER BY user_id").fetchall()


async def answered(channel: FakeChannel, model: ScriptedModel, number: str = "1") -> tuple[str, str]:
    """A turn that calls the tool: its answer, and what the model was told of the call."""
    answer = await channel.ask("whose is it?", conversation=f"c{number}", user=number)
    return answer, model.requests[-1].messages[-1].text


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_each_person_signs_in_by_a_link_and_is_answered_from_their_own_account(
    house: House, server: SigningServer, protocol: str
) -> None:
    model = ScriptedModel([WHO], "Well.", is_replaying=True)
    async with served(house, server, model, protocol=protocol) as (gateway, channel):
        await accepted(gateway)
        for number, who in (("1", "ada"), ("2", "bob")):
            answer, told = await answered(channel, model, number)
            assert "**Sign in to mail:** http://" in answer
            assert told.startswith("Error: this was not done: the person must sign in to mail first")
            [link] = LINK.findall(answer)
            assert f"**Sign in to mail:** {HIDDEN}" in await listed(gateway)
            assert link not in await listed(gateway)
            server.authority.at_browser = who
            assert "You are signed in to mail" in await sign_in(link)
            _, told = await answered(channel, model, number)
            assert told == f"the account of {who}"
        both = await asyncio.gather(*(channel.ask("again", conversation=f"c{n}", user=n) for n in ("1", "2")))
        assert both == ["Well.", "Well."]
        assert sorted(map(str, server.calls[-2:])) == ["ada", "bob"], "a later sign-in is no matter of the other's"
        assert not any(LINK.search(message.text) for request in model.requests for message in request.messages)
        eras = {server._connection.era for server in gateway.mcp._servers.values() if server._connection}
        assert eras == {"legacy" if protocol == "legacy" else "2026-07-28"}
        await settled(gateway)
    assert len(kept(house)) == 3


async def test_a_sign_in_outlives_a_restart_and_a_token_that_expired_or_is_not_taken_is_renewed_in_the_call(
    house: House,
) -> None:
    """The authorization server is another one, so its addresses must have been kept."""
    async with SigningServer().running() as issuer, SigningServer(issuer).running() as server:
        model = ScriptedModel([WHO], "Well.", is_replaying=True)
        web = {"allow_private": ["127.0.0.1"], "ports": [issuer.port]}
        account = Account("mail", "")
        async with served(house, server, model, "gateway", web=web) as (gateway, channel):
            await accepted(gateway, account)
            assert (await answered(channel, model))[1] == "the account of ada"
        before = kept(house)
        async with served(house, server, model, "gateway", web=web) as (gateway, channel):
            issuer.authority.revoke(renewals=False)
            issuer.authority.lifetime_s = 0
            assert (await answered(channel, model))[1] == "the account of ada", "not taken"
            issuer.authority.asked.clear()
            assert (await answered(channel, model, "2"))[1] == "the account of ada", "expired, as we know ourselves"
            assert ("/token", 200) in issuer.authority.asked
            assert not [path for path, _ in issuer.authority.asked if path in ("/register", "/authorize")]
        assert kept(house) != before


async def test_what_was_revoked_is_deleted_and_the_person_gets_a_new_link(house: House, server: SigningServer) -> None:
    model = ScriptedModel([WHO], "Well.", is_replaying=True)
    async with served(house, server, model) as (gateway, channel):
        await accepted(gateway)
        [link] = LINK.findall((await answered(channel, model))[0])
        await sign_in(link)
        await answered(channel, model)
        server.authority.down = {"/token"}
        server.authority.revoke(renewals=False)
        answer, told = await answered(channel, model)
        assert told == "Error: this was not done: signing in failed: its authorization server answered 503"
        assert not LINK.search(answer), "nothing is wrong with the sign-in"
        server.authority.down = set()
        server.authority.revoke()
        answer, told = await answered(channel, model)
        assert "the person must sign in to mail first" in told
        assert LINK.search(answer)
        assert [user for _, user, _ in kept(house)] == ["u_operator"]


async def test_one_account_for_all_needs_the_operator_who_is_told_so_until_then(
    house: House, server: SigningServer
) -> None:
    model = ScriptedModel([WHO], "Well.", is_replaying=True)
    async with served(house, server, model, "gateway") as (gateway, channel):
        assert gateway.mcp is not None
        hint = "nobody has signed in yet; run `ethos mcp login mail`, and open the link"
        assert gateway.mcp.problems == [f"the server mail (mcp): {hint}"]
        assert server.authority.asked == [], "nothing is asked as nobody"
        services = await gateway.load_services()
        assert [(one.state, one.error) for one in await services.mcp.listed(operator("test"))] == [("resting", hint)]
        await accepted(gateway, Account("mail"))
        assert gateway.mcp.problems == []
        for number in ("1", "2"):
            assert (await answered(channel, model, number))[1] == "the account of ada"
        await gateway.store.mcp_tokens.forget_server("mail")
        answer, told = await answered(channel, model)
        assert told == (
            "Error: this was not done: nobody has signed in to mail yet. The operator does: `ethos mcp login mail`."
        )
        assert not LINK.search(answer), "a person does not decide for all"


async def test_one_person_is_signed_out_and_the_tokens_are_revoked(house: House, server: SigningServer) -> None:
    model = ScriptedModel([WHO], "Well.", is_replaying=True)
    async with served(house, server, model) as (gateway, channel):
        server.authority.at_browser = "operator"
        await accepted(gateway)
        for number, who in (("1", "ada"), ("2", "bob")):
            [link] = LINK.findall((await answered(channel, model, number))[0])
            server.authority.at_browser = who
            await sign_in(link)
        ada, services = await gateway.identities.resolve("fake:1", ""), await gateway.load_services()
        [shown] = await services.mcp.listed(operator("test"))
        assert len(shown.signed_in) == 3
        assert (await services.mcp.logout(operator("test"), "mail", "fake:1")).is_revoked
        assert ada not in [user for _, user, _ in kept(house)]
        assert "ada" not in {token.subject for token in server.authority.issued.values()}
        assert "ada" not in {token.subject for token in server.authority.renewals.values()}
        assert "must sign in to mail first" in (await answered(channel, model, "1"))[1]
        assert (await answered(channel, model, "2"))[1] == "the account of bob"
        with pytest.raises(Refused, match="fake:1 is not signed in to mail"):
            await services.mcp.logout(operator("test"), "mail", "fake:1")
        server.authority.down.add("/revoke")
        assert not (await services.mcp.logout(operator("test"), "mail", "fake:2")).is_revoked
        assert "must sign in to mail first" in (await answered(channel, model, "2"))[1]


async def test_in_a_group_no_account_is_used_and_no_link_is_shown(house: House, server: SigningServer) -> None:
    model = ScriptedModel([WHO], "Well.", is_replaying=True)
    async with served(house, server, model) as (gateway, channel):
        await accepted(gateway)
        message = channel.message("whose is it?", conversation="g1", is_direct=False, mentions_bot=True)
        await channel.deliver(message)
        [answer] = await channel.answers_to(message)
        assert not LINK.search(answer)
        assert "only in a direct chat with that person" in model.requests[-1].messages[-1].text


async def test_the_gateway_shows_its_own_secret_to_the_named_authorization_server_alone(
    house: House, server: SigningServer
) -> None:
    oauth = {
        "mode": "client_credentials", "client_id": "ethos", "client_secret": server.own_secret,
        "scopes": ["mail"], "issuer": server.origin,
    }  # fmt: skip
    model = ScriptedModel([WHO], "Well.", is_replaying=True)
    async with served(house, server, model, oauth) as (gateway, channel):
        assert gateway.mcp is not None
        await gateway.mcp.test("mail")
        await gateway.mcp.accept("mail")
        assert (await answered(channel, model))[1] == "the account of the gateway"
    assert kept(house) == []
    oauth["issuer"] = "https://login.example.org"
    server.authority.asked.clear()
    async with served(house, server, model, oauth, start="eager") as (gateway, _):
        assert gateway.mcp is not None
        async with asyncio.timeout(20):
            while not gateway.mcp.problems:
                await asyncio.sleep(0.01)
        assert "signing in failed: Authorization server metadata issuer mismatch" in gateway.mcp.problems[0]
    assert "/token" not in dict(server.authority.asked)


async def test_a_browser_ends_what_it_began_once_and_no_other_does(house: House, server: SigningServer) -> None:
    async with served(house, server) as (gateway, _), Browser() as ada, Browser() as eve:
        link = sign_ins(gateway).link(OPERATOR)
        back = await ada.allowed(await ada.begin(link))
        refused = await eve.client.get(back)
        assert (refused.status_code, "begun in another browser" in refused.text) == (400, True)
        assert kept(house) == []
        assert "You are signed in to mail" in (await ada.client.get(back)).text
        assert (await ada.client.get(back)).status_code == 400, "a state counts once"
        first = await ada.allowed(await ada.begin(link))
        second = await ada.allowed(await ada.begin(link))
        assert (await ada.client.get(first)).status_code == 400, "the later one is in its place"
        server.authority.at_browser = None
        refused = await ada.sign_in(link)
        assert "The server has not allowed it. Ask for a new link" in refused.text
        assert (await ada.client.get(second)).status_code == 400
        page = await ada.client.get(link[:-40])
        assert (page.status_code, "This link has ended" in page.text) == (404, True)
        sign_ins(gateway)._links.lifetime_s = -1
        assert (await ada.client.post(sign_ins(gateway).link(OPERATOR))).status_code == 404


async def test_what_a_server_names_for_signing_in_must_be_public(house: House, server: SigningServer) -> None:
    """Nothing inside is asked, not even to see whether it answers."""
    async with SigningServer().running() as inside, served(house, server) as (gateway, _), Browser() as ada:
        link = sign_ins(gateway).link(OPERATOR)
        for address, why in {
            f"{inside.origin}/register": "which is no https address",
            f"https://127.0.0.1:{inside.port}/register": f"names port {inside.port} for signing in",
            "https://127.0.0.1/register": "which is not on the public internet",
            "https://localhost/register": "which is not on the public internet",
            "https://[::ffff:10.0.0.1]/register": "which is not on the public internet",
            "https://169.254.169.254/register": "which is not on the public internet",
        }.items():
            server.metadata = {"registration_endpoint": address}
            page = await ada.client.post(link)
            assert page.status_code == 503
            assert why in page.text, address
        assert inside.authority.asked == []


async def test_a_server_that_cannot_be_signed_in_to_says_why(house: House) -> None:
    async with Browser() as ada:
        async with SigningServer().running() as server, served(house, server) as (gateway, _):
            link = sign_ins(gateway).link(OPERATOR)
            server.authority.down = {"/mcp"}
            assert "Mail asks nobody to sign in (503)" in (await ada.client.post(link)).text
            server.authority.down = {"/register"}
            assert "Signing in failed: Registration failed." in (await ada.client.post(link)).text
            server.authority.down = set()
            back = await ada.allowed(await ada.begin(link))
            server.authority.down = {"/token"}
            assert "Signing in failed: Token exchange failed (503)" in (await ada.client.get(back)).text
            server.port = server.port + 1  # type: ignore[misc]
        async with served(house, server) as (gateway, _):
            page = await ada.client.post(sign_ins(gateway).link(OPERATOR))
            assert (page.status_code, "Mail is not reached" in page.text) == (503, True)


async def test_a_public_address_is_in_the_links_and_the_gateway_is_known_by_its_document(
    house: House, server: SigningServer
) -> None:
    server.metadata = {"client_id_metadata_document_supported": True}
    web = {"public_url": "https://ethos.example.org/"}
    oauth = {"mode": "per_person", "scopes": ["mail", "more"]}
    async with served(house, server, None, oauth, web=web) as (gateway, _), Browser() as ada:
        base, own = "https://ethos.example.org", str(gateway.web.url).rstrip("/")
        link = sign_ins(gateway).link(OPERATOR)
        assert link.startswith(f"{base}/sign-in/")
        ada.client.headers["host"] = "ethos.example.org"
        document = (await ada.client.get(f"{own}/sign-in/client.json")).json()
        assert document["client_id"] == f"{base}/sign-in/client.json"
        assert document["redirect_uris"] == [f"{base}/sign-in/callback"]
        address = httpx.URL(await ada.begin(link.replace(base, own)))
        assert address.params["client_id"] == document["client_id"]
        assert (address.params["scope"], address.params["code_challenge_method"]) == ("mail more", "S256")
        assert "/register" not in dict(server.authority.asked)


async def test_a_call_that_takes_long_holds_up_no_other(house: House, server: SigningServer) -> None:
    model = ScriptedModel([call("mail__slow")], [WHO], "Well.", "Well.")
    effects = {"*": "own"}
    async with served(house, server, model, "gateway", effects=effects) as (gateway, channel):
        await accepted(gateway, Account("mail"))
        slow = await channel.say("wait", conversation="c2", user="2")
        async with asyncio.timeout(20):
            while "slow" not in server.calls:
                await asyncio.sleep(0.01)
        assert await channel.ask("whose?") == "Well."
        assert server.calls[-1] == "ada"
        server.hold.set()
        assert await channel.answers_to(slow) == ["Well."]


async def test_what_is_kept_is_sealed_and_in_no_export_or_log_and_goes_with_the_person(
    house: House, server: SigningServer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel([WHO], "Well.", is_replaying=True)
    async with served(house, server, model) as (gateway, channel):
        await accepted(gateway)
        links = LINK.findall((await answered(channel, model))[0])
        await sign_in(links[0])
        await answered(channel, model)
        ada = await gateway.identities.resolve("fake:1", "1")
        rows = {user: sealed for _, user, sealed in kept(house)}
        assert set(rows) == {"u_operator", ada}
        assert "canary" not in caplog.text + "".join(capfd.readouterr())
        text = json.dumps([await gateway.store.deliveries.rows("outbox", chosen="all")], default=str)
        assert "canary" not in text
        for file in house.home.rglob("*"):
            assert not file.is_file() or b"canary" not in file.read_bytes(), file
        assert (house.home / KEY_NAME).stat().st_mode & 0o777 == 0o600
        await gateway.store.mcp_tokens.keep("mail", ada, rows["u_operator"])
        _, told = await answered(channel, model)
        assert "must sign in" in told, "a row that was put under another name is of no use"
        await gateway.store.mcp_tokens.keep("mail", ada, rows[ada])
        export = await (await gateway.load_services()).personal.export(operator("test"), ada)
        with zipfile.ZipFile(export.file) as archive:
            whole = b"".join(archive.read(name) for name in archive.namelist())
        assert b"mail__whoami" in whole
        assert not any(word in whole for word in (b"canary", rows[ada].encode()))
        export.file.close()
        tombstone = await gateway.privacy.eraser().schedule(ada)
        await gateway.privacy.eraser().erase(tombstone)
        assert [user for _, user, _ in kept(house)] == ["u_operator"]


async def test_a_link_between_accounts_keeps_one_sign_in_and_its_end_none(house: House, server: SigningServer) -> None:
    """When they are parted, nobody knows which of the two signed in."""
    async with served(house, server) as (gateway, channel):
        for who in (PHONE, DESK):
            await channel.ask("hello", **who)
        phone, desk = [await gateway.identities.resolve(f"fake:{number}", number) for number in "12"]
        for user_id in (phone, desk):
            await gateway.store.mcp_tokens.keep("mail", user_id, "sealed")
        await link(channel)
        [(_, survivor, _)] = kept(house)
        assert survivor == await gateway.identities.resolve("fake:2", "2")
        await channel.ask("/unlink", **DESK)
        for who in (PHONE, DESK):
            await told(channel, who, "No longer linked")
        assert kept(house) == []


async def test_the_operator_gets_a_link_by_the_api_and_forgets_a_server_with_its_tokens(
    house: House, server: SigningServer
) -> None:
    async with served(house, server) as (gateway, channel), Browser() as browser:
        await channel.ask("hello")
        ada = await gateway.identities.resolve("fake:1", "1")
        browser.client.headers["authorization"] = f"Bearer {(house.home / 'web-token').read_text().strip()}"
        address = f"{gateway.web.url}api/v1/mcp/servers/mail/login"
        for body, status, why in (
            ({}, 409, "mail has `oauth: per_person`; name the person with `--user`"),
            ({"user": "fake:9"}, 404, "fake:9"),
        ):
            refused = await browser.client.post(address, json=body)
            assert refused.status_code == status
            assert why in refused.text
        made = (await browser.client.post(address, json={"user": "fake:1"})).json()
        del browser.client.headers["authorization"]
        assert "You are signed in to mail" in (await browser.sign_in(made["url"])).text
        assert [user for _, user, _ in kept(house)] == [ada]
    async with house.served() as gateway:
        await (await gateway.load_services()).mcp.removed("mail")
        assert kept(house) == []
