"""The page of the API keys: an owner makes and ends everybody's, a member their own; each is shown once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.people.sign_ins import SignIns
from gateway.sdk.models.people import Role
from gateway.services.caller import PERMISSIONS, on_pages, operator
from gateway.services.keys import ABOUT
from gateway.web.auth import OperatorAuth
from tests.fake_sign_ins import FakeSignIns
from tests.gateway.way.conftest import House

OPERATOR = operator("test")
_KEY = re.compile(r"ethos_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")


class Browser:
    """Signed in, with the token of its forms."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def page(self, path: str = "") -> str:
        response = await self.client.get(f"/dashboard/keys{path}")
        assert response.status_code == 200, response.text
        return response.text

    async def post(self, path: str, **form: str | list[str]) -> httpx.Response:
        token = re.search(r'name="form_token" value="(\w+)"', await self.page())
        assert token is not None
        return await self.client.post(f"/dashboard/keys{path}", data={**form, "form_token": token[1]})


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with House(tmp_path / "home").served(channels={}) as running:
        yield running


SignIn = Callable[..., Awaitable[tuple[Browser, str | None]]]


@pytest.fixture
async def sign_in(gateway: Gateway) -> AsyncIterator[SignIn]:
    """A browser of a person, made with a role, or by the token; and whose it is."""
    async with AsyncExitStack() as stack:

        async def begin(user: str | None = None, role: Role = "member") -> tuple[Browser, str | None]:
            user_id = None
            if user is not None:
                user_id = await gateway.identities.resolve(f"mail:{user}@example.org", user)
                await gateway.web.api.services.people.set_role(OPERATOR, user_id, role)
            token = (gateway.home / "web-token").read_text().strip()
            name = OperatorAuth(token, SignIns(FakeSignIns(), token)).cookie_name
            cookies = {name: await gateway.web.sign_ins.begin("", user_id)}
            assert gateway.web.url is not None
            client = httpx.AsyncClient(base_url=gateway.web.url, cookies=cookies, trust_env=False, timeout=60)
            client.headers.update({"accept": "text/html", "origin": gateway.web.url.rstrip("/")})
            return Browser(await stack.enter_async_context(client)), user_id

        yield begin


async def status_of(gateway: Gateway, key: str, path: str) -> int:
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=gateway.web.url or "", headers=headers, trust_env=False) as client:
        return (await client.get(f"/api/v1{path}")).status_code


def test_each_scope_is_offered_with_its_text() -> None:
    assert {scope for scopes in ABOUT.values() for scope in scopes} == set(PERMISSIONS)


async def test_a_key_is_shown_once_works_and_ends_after_a_question(gateway: Gateway, sign_in: SignIn) -> None:
    browser, _ = await sign_in()
    made = await browser.post("/new", name="Backup", scope=["memory:read", "system:read"])
    assert (made.status_code, made.headers["cache-control"]) == (200, "no-store")
    (key,) = set(_KEY.findall(made.text))
    assert await status_of(gateway, key, "/system/health") == 200
    page = await browser.page()
    assert "Backup" in page
    assert "memory:read, system:read" in page
    assert not _KEY.findall(page)
    key_id = key.split("_")[1]
    asked = await browser.post("/end", key=key_id, name="Backup")
    assert "End the key Backup?" in asked.text
    assert await status_of(gateway, key, "/system/health") == 200, "nothing is done before the yes"
    assert (await browser.post("/end", key=key_id, name="Backup", confirmed="yes")).status_code == 303
    assert await status_of(gateway, key, "/system/health") == 401
    assert "Ended" in await browser.page()


async def test_what_cannot_be_made_says_why_and_keeps_what_was_typed(gateway: Gateway, sign_in: SignIn) -> None:
    browser, _ = await sign_in()
    none = await browser.post("/new", name="Back <up>")
    assert none.status_code == 409
    assert "nothing is no scope" in none.text
    assert 'value="Back &lt;up&gt;"' in none.text
    ada = await gateway.identities.resolve("mail:ada@example.org", "Ada")
    barred = await browser.post("/new", name="Hers", scope=["memory:read", "system:read"], user=ada)
    assert "the key of one person cannot have system:read" in barred.text
    assert re.search(r'value="memory:read" checked', barred.text)
    assert re.search(rf'value="{ada}" selected', barred.text)


async def test_a_member_makes_and_sees_keys_of_their_own_only(gateway: Gateway, sign_in: SignIn) -> None:
    everybody, _ = await sign_in()
    await everybody.post("/new", name="The operator's", scope=["system:read"])
    browser, ada = await sign_in("ada")
    _, ben = await sign_in("ben")
    assert ben is not None
    page = await browser.page("/new")
    assert "memory:read" in page
    assert "people:read" not in page
    assert "system:read" not in page
    assert "<select" not in page, "there is nobody to choose"
    made = await browser.post("/new", name="Mine", scope=["memory:read", "sessions:read"])
    (key,) = set(_KEY.findall(made.text))
    for form in ({"scope": ["system:read"]}, {"scope": ["people:read"]}, {"scope": ["memory:read"], "user": ben}):
        refused = await browser.post("/new", name="More", **form)  # type: ignore[arg-type]
        assert (refused.status_code, _KEY.findall(refused.text)) == (409, [])
    assert [one.user for one in await gateway.web.api.services.keys.all(OPERATOR)].count(ada) == 1
    assert "operator" not in (await browser.page()).partition("<main")[2]
    assert await status_of(gateway, key, "/sessions") == 200
    assert await status_of(gateway, key, f"/people/{ben}") == 403
    (theirs,) = [one for one in await gateway.web.api.services.keys.all(OPERATOR) if one.user is None]
    await browser.post("/end", key=theirs.id, name="x", confirmed="yes")
    assert theirs.revoked_at is None
    assert [one.revoked_at for one in await gateway.web.api.services.keys.all(OPERATOR)] == [None, None]
    await browser.post("/end", key=key.split("_")[1], name="Mine", confirmed="yes")
    assert await status_of(gateway, key, "/sessions") == 401


async def test_a_guest_and_a_key_make_no_keys(gateway: Gateway, sign_in: SignIn) -> None:
    browser, user_id = await sign_in("eve", "guest")
    assert (await browser.client.get("/dashboard/keys")).status_code == 403
    keys = gateway.web.api.services.keys
    assert user_id is not None
    for caller in (on_pages(user_id, "guest"), await keys.caller(await _key_text(gateway))):
        assert caller is not None
        with pytest.raises(Exception, match=r"only an owner may do this|no API key allows it"):
            await keys.create(caller, "x", ["memory:read"])
        with pytest.raises(Exception, match=r"only an owner may do this|no API key allows it"):
            await keys.all(caller)


async def _key_text(gateway: Gateway) -> str:
    return (await gateway.web.api.services.keys.create(OPERATOR, "all", sorted(PERMISSIONS))).key
