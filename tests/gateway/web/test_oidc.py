"""Signing in by an OpenID provider: of a real one, and of one that lies."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.services.caller import operator
from tests.gateway.way.conftest import House
from tests.oidc_provider import (
    CLIENT,
    SECRET,
    Behaviour,
    Claims,
    Provider,
    by_another_key,
    by_the_secret,
    unsigned,
)

OPERATOR = operator("test")


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@dataclass
class Visitor:
    """A browser that follows where it is led, between the gateway and the provider."""

    gateway: Gateway
    client: httpx.AsyncClient

    async def begin(self, query: str = "") -> httpx.Response:
        """To the provider, and what that answers."""
        begun = await self.client.get(f"{self.gateway.web.url}login/oidc{query}")
        assert begun.status_code == 303, begun.text
        return await self.client.get(begun.headers["location"])

    async def come_back(self, query: str = "") -> httpx.Response:
        return await self.client.get((await self.begin(query)).headers["location"])

    async def is_in(self) -> bool:
        return (await self.client.get(f"{self.gateway.web.url}dashboard/chat")).status_code == 200


@asynccontextmanager
async def visiting(gateway: Gateway) -> AsyncIterator[Visitor]:
    async with httpx.AsyncClient(trust_env=False, timeout=60, headers={"accept": "text/html"}) as client:
        yield Visitor(gateway, client)


@asynccontextmanager
async def served(tmp_path: Path, issuer: str, **more: Any) -> AsyncIterator[Gateway]:
    config = {"issuer": issuer, "client_id": CLIENT, "client_secret": SECRET, "name": "Our login", **more}
    async with House(tmp_path / "home").served(channels={}, web={"port": 0, "oidc": config}) as gateway:
        yield gateway


@pytest.fixture
async def gateway(tmp_path: Path, provider: Provider) -> AsyncIterator[Gateway]:
    async with served(tmp_path, provider.issuer) as running:
        yield running


async def known(gateway: Gateway, provider: Provider, sub: str = "ada-17") -> str:
    """A member with an account at the provider."""
    user_id = await gateway.identities.resolve("mail:ada@example.org", "Ada")
    await gateway.web.api.services.people.set_role(OPERATOR, user_id, "member")
    assert await gateway.identities.add(f"oidc:{provider.issuer}#{sub}", "Ada", user_id=user_id, via="operator")
    return user_id


@asynccontextmanager
async def real_provider(*users: Claims) -> AsyncIterator[str]:
    """`oidc-provider-mock`, in a process of its own; its issuer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    claims = [part for user in users for part in ("--user-claims", json.dumps(user))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true"),
        *claims,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    issuer = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as client:
            while process.returncode is None:
                try:
                    await client.get(issuer)
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.05)
        yield issuer
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_a_person_comes_by_a_real_provider_after_an_invitation_and_then_by_themselves(tmp_path: Path) -> None:
    async with (
        real_provider({"sub": "ada-17", "email": "ada@example.org", "name": "Ada"}) as issuer,
        served(tmp_path, issuer) as gateway,
        visiting(gateway) as visitor,
    ):
        assert gateway.web.url is not None

        async def sign_in(query: str) -> httpx.Response:
            begun = await visitor.client.get(f"{gateway.web.url}login/oidc{query}")
            agreed = await visitor.client.post(begun.headers["location"], data={"sub": "ada-17"})
            return await visitor.client.get(agreed.headers["location"])

        stranger = await sign_in("")
        account = f"oidc:{issuer}#ada-17"
        assert (stranger.status_code, account in stranger.text) == (403, True), "an owner can see whom to link"
        assert not await visitor.is_in()
        services = gateway.web.api.services
        user_id = await gateway.identities.resolve("mail:ada@example.org", "Ada")
        await services.people.set_role(OPERATOR, user_id, "member")
        path = (await services.logins.invite(OPERATOR, user_id)).url.removeprefix(gateway.web.url)
        page = (await visitor.client.get(gateway.web.url + path)).text
        link = re.search(r'href="/login/oidc(\?invitation=[^"]+)">Use Our login', page)
        assert link is not None
        assert (await sign_in(link[1])).status_code == 200
        assert await visitor.is_in()
        assert (await visitor.client.get(gateway.web.url + path)).status_code == 404, "the link is used up"
        assert [one.user_id for one in await gateway.web.sign_ins.all()] == [user_id]
        async with visiting(gateway) as later:
            page = (await later.client.get(f"{gateway.web.url}login?next=/dashboard/sessions")).text
            assert "Sign in with Our login" in page
            begun = await later.client.get(f"{gateway.web.url}login/oidc?next=/dashboard/sessions")
            agreed = await later.client.post(begun.headers["location"], data={"sub": "ada-17"})
            done = await later.client.get(agreed.headers["location"])
            assert done.headers["refresh"] == "0; url=/dashboard/sessions"
            assert await later.is_in()
            begun = await later.client.get(f"{gateway.web.url}login/oidc")
            denied = await later.client.post(begun.headers["location"], data={"action": "deny"})
            assert (await later.client.get(denied.headers["location"])).status_code == 403


async def test_the_provider_is_asked_with_pkce_state_and_nonce_and_leads_to_our_own_address_only(
    gateway: Gateway, provider: Provider
) -> None:
    await known(gateway, provider)
    async with visiting(gateway) as visitor:
        done = await visitor.come_back("?next=//evil.example&redirect_uri=https://evil.example/")
        assert done.headers["refresh"] == "0; url=/"
        await visitor.come_back()
    first, second = provider.asked
    assert first["redirect_uri"] == f"{gateway.web.url}login/oidc/callback"
    assert (first["response_type"], first["code_challenge_method"]) == ("code", "S256")
    assert not {first[name] for name in ("state", "nonce", "code_challenge")} & set(second.values())


def change(**values: Any) -> Callable[[Claims], object]:
    def apply(claims: Claims) -> None:
        for name, value in values.items():
            if value is None:
                claims.pop(name, None)
            else:
                claims[name] = value

    return apply


LIES = {
    "another issuer": Behaviour(claims=change(iss="https://evil.example")),
    "no issuer": Behaviour(claims=change(iss=None)),
    "another audience": Behaviour(claims=change(aud="another-client")),
    "several audiences and none authorised": Behaviour(claims=change(aud=["another-client", CLIENT])),
    "authorised for another": Behaviour(claims=change(aud=[CLIENT, "another"], azp="another")),
    "no audience": Behaviour(claims=change(aud=None)),
    "expired": Behaviour(claims=change(exp=int(time.time()) - 120)),
    "never expires": Behaviour(claims=change(exp=None)),
    "from the future": Behaviour(claims=change(iat=int(time.time()) + 3600)),
    "another nonce": Behaviour(claims=change(nonce="another")),
    "no nonce": Behaviour(claims=change(nonce=None)),
    "nobody": Behaviour(claims=change(sub=None)),
    "a name that is no text": Behaviour(claims=change(sub=17)),
    "a blank name": Behaviour(claims=change(sub=" ")),
    "a name that is too long": Behaviour(claims=change(sub="x" * 600)),
    "another access token": Behaviour(claims=change(at_hash="AAAAAAAAAAAAAAAAAAAAAA")),
    "another key": Behaviour(sign=by_another_key),
    "signed with the client's secret": Behaviour(sign=by_the_secret),
    "not signed": Behaviour(sign=unsigned),
    "no token": Behaviour(token=change(id_token=None)),
    "a token that is none": Behaviour(token=change(id_token="x.y.z")),
    "an error": Behaviour(token=change(error="invalid_grant"), status=400),
    "another provider's answer": Behaviour(answer={"iss": "https://evil.example"}),
    "another state": Behaviour(answer={"state": "another"}),
    "an error of the provider": Behaviour(answer={"error": "access_denied"}),
    "another code": Behaviour(answer={"code": "another"}),
}


@pytest.mark.parametrize("lie", LIES)
async def test_nobody_is_signed_in_by_a_lie(gateway: Gateway, provider: Provider, lie: str) -> None:
    await known(gateway, provider)
    provider.behaviour = LIES[lie]
    async with visiting(gateway) as visitor:
        answer = await visitor.come_back()
        assert (answer.status_code, "You are not signed in" in answer.text) == (403, True)
        assert not await visitor.is_in()
        provider.behaviour = Behaviour()
        assert (await visitor.come_back()).status_code == 200, "and the truth is believed afterwards"


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "ftp://evil.example/"},
        {"jwks_uri": None},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_a_document_of_another_issuer_or_with_bad_addresses_is_not_used(
    gateway: Gateway, provider: Provider, document: dict[str, object]
) -> None:
    provider.behaviour = Behaviour(document=document)
    async with visiting(gateway) as visitor:
        answer = await visitor.client.get(f"{gateway.web.url}login/oidc")
        assert (answer.status_code, "set-cookie" in answer.headers) == (503, False)
        assert not provider.asked


async def test_an_answer_counts_once_and_only_in_the_browser_that_began(gateway: Gateway, provider: Provider) -> None:
    await known(gateway, provider)
    async with visiting(gateway) as visitor, visiting(gateway) as victim:
        back = (await visitor.begin()).headers["location"]
        assert (await victim.client.get(back)).status_code == 403, "nobody else's sign-in is put into a browser"
        own = (await victim.begin()).headers["location"]
        state = parse_qs(urlsplit(own).query)["state"][0]
        mixed = re.sub(r"state=[^&]+", f"state={state}", back)
        assert (await victim.client.get(mixed)).status_code == 403, "the code was begun with another verifier"
        assert not await victim.is_in()
        back = (await visitor.begin()).headers["location"]
        assert (await visitor.client.get(back)).status_code == 200
        async with visiting(gateway) as again:
            again.client.cookies.update(visitor.client.cookies)
            assert (await again.client.get(back)).status_code == 403


async def test_new_keys_of_the_provider_are_found(gateway: Gateway, provider: Provider) -> None:
    await known(gateway, provider)
    async with visiting(gateway) as visitor:
        assert (await visitor.come_back()).status_code == 200
        provider.rotate()
        assert (await visitor.come_back()).status_code == 200


@pytest.mark.parametrize(
    ("kind", "claims", "is_in"),
    [
        ("mail", {"email": "Ada@Example.org", "email_verified": True}, True),
        ("mail", {"email": "Ada@Example.org", "email_verified": False}, False),
        ("mail", {"email": "Ada@Example.org", "email_verified": "true"}, False),
        ("mail", {"email": "Ada@Example.org"}, False),
        ("mail", {"email": "eve@example.org", "email_verified": True}, False),
        (None, {"email": "Ada@Example.org", "email_verified": True}, False),
    ],
)
async def test_an_address_is_believed_where_it_is_verified_and_configured(
    tmp_path: Path, provider: Provider, kind: str | None, claims: Claims, is_in: bool
) -> None:
    async with served(tmp_path, provider.issuer, **({} if kind is None else {"email_kind": kind})) as gateway:
        user_id = await gateway.identities.resolve("mail:ada@example.org", "Ada")
        await gateway.web.api.services.people.set_role(OPERATOR, user_id, "member")
        provider.claims |= claims
        async with visiting(gateway) as visitor:
            await visitor.come_back()
            assert await visitor.is_in() == is_in
            accounts = {one.key for one in await gateway.identities.accounts_of(user_id)}
            assert (f"oidc:{provider.issuer}#ada-17" in accounts) == is_in
            if is_in:  # from then on the account itself is known
                provider.claims = {"sub": "ada-17"}
                assert (await visitor.come_back()).status_code == 200


async def test_an_account_of_one_person_is_not_made_another_s_and_access_counts(
    gateway: Gateway, provider: Provider
) -> None:
    ada = await known(gateway, provider)
    services = gateway.web.api.services
    ben = await gateway.identities.resolve("mail:ben@example.org", "Ben")
    await services.people.set_role(OPERATOR, ben, "member")
    secret = (await services.logins.invite(OPERATOR, ben)).url.rpartition("/")[2]
    async with visiting(gateway) as visitor:
        refused = await visitor.come_back(f"?invitation={secret}")
        assert (refused.status_code, "belongs to another person" in refused.text) == (403, True)
        assert (await visitor.client.get(f"{gateway.web.url}join/{secret}")).status_code == 200, (
            "the link is good still"
        )
        assert (await visitor.come_back("?invitation=made-up")).status_code == 403
        await services.people.revoke(OPERATOR, ada)
        assert (await visitor.come_back()).status_code == 403
        assert not await visitor.is_in()


async def test_a_form_typed_in_a_login_that_ended_comes_back_after_the_provider(
    gateway: Gateway, provider: Provider
) -> None:
    await known(gateway, provider)
    assert gateway.web.url is not None
    async with visiting(gateway) as visitor:
        visitor.client.headers["origin"] = gateway.web.url.rstrip("/")
        held = await visitor.client.post(f"{gateway.web.url}dashboard/schedules/new", data={"text": "water the plants"})
        assert "in another tab" in held.text
        del visitor.client.headers["origin"]
        await visitor.come_back()
        visitor.client.headers["origin"] = gateway.web.url.rstrip("/")
        form = {"next": "/dashboard/schedules/new", "held.text": "water the plants"}
        again = await visitor.client.post(f"{gateway.web.url}dashboard/again", data=form)
        assert "Send it again" in again.text
        assert "water the plants" in again.text


async def test_without_a_provider_nothing_is_offered_or_loaded(tmp_path: Path) -> None:
    async with House(tmp_path / "home").served(channels={}) as gateway, visiting(gateway) as visitor:
        assert "Sign in with" not in (await visitor.client.get(f"{gateway.web.url}login")).text
        assert (await visitor.client.get(f"{gateway.web.url}login/oidc")).status_code == 404
        assert (await visitor.client.get(f"{gateway.web.url}login/oidc/callback?state=x&code=y")).status_code == 404
