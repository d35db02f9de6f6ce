"""Who may call what: a walk over every route of the whole web application, by the operator, by keys and by nobody."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from gateway.app.gateway import Gateway
from gateway.services.caller import OF_A_PERSON, PERMISSIONS, Caller
from gateway.web.api import Api
from gateway.web.api.application import make_fastapi, routes_of, rule_of
from gateway.web.gate import OperatorOnly
from gateway.web.lazy import Lazy
from gateway.web.openai.door import OpenAIServer

from .conftest import OPERATOR, WAIT_S

ClientWith = Callable[[str | None], httpx.AsyncClient]
# What everybody may see, each with its reason.
PUBLIC = {
    "/join/{secret}": "is for people with a link, who set up how they sign in",
    "/login/oidc": "is how one comes in by a provider",
    "/login/oidc/callback": "is where the provider leads back to",
    "/health": "says one word to whoever has no token",
    "/health/live": "for load balancers",
    "/health/ready": "for load balancers",
    "/login": "is how one comes in",
    "/logout": "ends a session, and harms nobody who has none",
    "/sign-in/client.json": "what authorization servers read of the gateway, which is no secret",
    "/sign-in/callback": "where they send a browser back, which must be the one that began",
    "/sign-in/{link}": "for whoever has the link, which names one account and ends soon",
    "/static": "style and pictures, no data",
    "/hooks": "for services, whose calls show the secret of a hook; it tells nobody else which hooks there are",
}


async def key_of(gateway: Gateway, *scopes: str, user: str | None = None) -> str:
    return (await gateway.web.api.services.keys.create(OPERATOR, "a key", scopes, user)).key


def api_routes(gateway: Gateway) -> list[APIRoute]:
    app = make_fastapi(gateway.web.api.services)
    found = routes_of(app)
    described = {(method, path) for path, item in app.openapi()["paths"].items() for method in item}
    assert {(method.lower(), route.path) for route in found for method in route.methods} == described
    assert {type(route).__name__ for route in app.routes} == {"_IncludedRouter"}, "a route outside of the routers"
    return found


async def test_every_route_of_the_web_server_is_the_operators_or_has_a_rule_of_its_own(
    gateway: Gateway, client_with: ClientWith
) -> None:
    async with client_with(None) as client:
        for route in gateway.web.routes:
            assert isinstance(route, (Route, Mount))
            app = route.app if isinstance(route, Mount) else getattr(route.endpoint, "_app", route.endpoint)
            is_guarded = isinstance(getattr(app, "__self__", app), (OperatorOnly, Api, Lazy, OpenAIServer))
            assert is_guarded != (route.path in PUBLIC), f"{route.path} has no access rule"
            if is_guarded:
                for path in (route.path, route.path + "/", route.path + "/anything"):
                    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
                        response = await client.request(method, gateway.web.url.rstrip("/") + path)
                        is_api = isinstance(app, Api)  # says of an address that there is none, to everybody
                        assert response.status_code in ((401, 404, 405) if is_api else (401,)), f"{method} {path}"
    unruled = [route.path for route in api_routes(gateway) if rule_of(route) is None]
    assert unruled == []


async def test_nobody_comes_in_anywhere_without_a_token(gateway: Gateway, client_with: ClientWith) -> None:
    routes = api_routes(gateway)
    assert len(routes) > 15
    async with client_with(None) as client:
        for route in routes:
            for method in route.methods:
                response = await client.request(method, path_of(route), json={})
                assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer"), route.path
                assert response.headers["content-type"] == "application/problem+json"


async def test_nobody_opens_a_page_of_the_dashboard_or_sends_its_forms(gateway: Gateway) -> None:
    (door,) = {route.app for route in gateway.web.routes if isinstance(route, Mount) and isinstance(route.app, Lazy)}
    dashboard = await door.application()
    assert len(dashboard.routes) > 4
    async with httpx.AsyncClient(base_url=gateway.web.url, trust_env=False, timeout=WAIT_S) as client:
        for route in dashboard.routes:
            assert isinstance(route, Route)
            path = "/dashboard" + re.sub(r"{[^}]+}", "x", route.path)
            for method in route.methods or ():
                assert (await client.request(method, path)).status_code == 401, (method, path)
                form = await client.request(method, path, data={"a": "b"}, headers={"accept": "text/html"})
                assert form.status_code == 401 or form.headers["location"].startswith("/login?next="), (method, path)


@pytest.mark.slow
async def test_a_key_comes_in_where_its_scope_is_asked_for_and_nowhere_else(
    gateway: Gateway, client_with: ClientWith
) -> None:
    routes = api_routes(gateway)
    for scope in PERMISSIONS:
        async with client_with(await key_of(gateway, scope)) as client:
            for route in routes:
                for method in route.methods:
                    status = (await client.request(method, path_of(route), json={"nonsense": 1})).status_code
                    is_barred = status == 403
                    asks_for_two = method == "GET" and route.path.endswith(("/files", "/files/revision"))
                    is_right = is_barred == (asks_for_two or rule_of(route) not in (scope, "anybody known"))
                    assert is_right, f"{scope}: {method} {route.path} {status}"


async def test_a_key_opens_the_api_and_no_page_of_the_operators(gateway: Gateway, client_with: ClientWith) -> None:
    async with client_with(await key_of(gateway, "system:read")) as client:
        assert (await client.get("/system/health")).status_code == 200
        assert (await client.get(gateway.web.url)).status_code == 401
        assert set((await client.get(gateway.web.url + "health")).json()) == {"status"}


async def test_a_revoked_key_is_refused_at_once(gateway: Gateway, client_with: ClientWith) -> None:
    keys = gateway.web.api.services.keys
    async with client_with(await key_of(gateway, "system:read")) as client:
        assert (await client.get("/system/health")).status_code == 200
        assert (await keys.all(OPERATOR))[0].last_used_at is not None
        await keys.revoke(OPERATOR, "a key")
        refused = await client.get("/system/health")
        assert refused.status_code == 401
        assert "`ethos keys create` makes a key" in refused.json()["detail"]


async def test_wrong_keys_are_answered_with_a_wait_after_five_and_lock_no_right_one_out(
    gateway: Gateway, client_with: ClientWith
) -> None:
    right = await key_of(gateway, "system:read")
    wrong = right[:-4] + ("AAAA" if right[-4:] != "AAAA" else "BBBB")
    async with client_with(wrong) as client:
        statuses = [(await client.get("/system/health")).status_code for _ in range(5)]
        paused = await client.get("/system/health")
    assert statuses == [401, 401, 401, 401, 429]
    assert int(paused.headers["retry-after"]) > 0
    assert paused.headers["content-type"] == "application/problem+json"
    async with client_with(right) as client:
        assert (await client.get("/system/health")).status_code == 200


async def test_a_stranger_is_refused_before_their_body_is_read(gateway: Gateway) -> None:
    port = httpx.URL(gateway.web.url).port
    for path in ("chat/messages", "traces/import", "memory"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 16000000\r\n\r\n[".encode())
        async with asyncio.timeout(WAIT_S):
            status = await reader.readline()
        assert b" 401 " in status, path
        writer.close()
        await writer.wait_closed()


async def test_a_right_key_gives_no_new_tries_at_the_token(gateway: Gateway, client_with: ClientWith) -> None:
    statuses = []
    async with client_with(await key_of(gateway, "system:read")) as holder, client_with("a guess") as guesser:
        for _ in range(5):
            statuses.append((await guesser.get("/system/health")).status_code)
            await holder.get("/system/health")
    assert statuses == [401, 401, 401, 401, 429]


async def test_a_key_is_not_in_the_database(gateway: Gateway) -> None:
    key = await key_of(gateway, "memory:read")
    dumped = await gateway.store.engine.read(lambda connection: "\n".join(map(str, connection.iterdump())))
    secret = key.rpartition("_")[2] if key.count("_") == 2 else key.split("_", 2)[2]
    assert secret not in dumped
    assert secret.encode() not in b"".join(
        path.read_bytes() for path in gateway.home.glob("ethos.sqlite*") if path.is_file()
    )


async def test_a_cookie_writes_from_our_own_page_only_and_with_the_header(
    gateway: Gateway, client_with: ClientWith
) -> None:
    own = gateway.web.url.rstrip("/")
    body = {"store": "memory", "content": "x", "expectedVersion": "0" * 64}
    async with client_with(None) as client:
        await client.get(gateway.web.login_url)
        assert (await client.get("/system/health")).status_code == 200
        cases = [
            ({}, 403),
            ({"origin": own}, 403),
            ({"x-ethos-request": "1"}, 403),
            ({"origin": "https://evil.example.org", "x-ethos-request": "1"}, 403),
            ({"origin": own, "x-ethos-request": "1"}, 409),
        ]
        for headers, status in cases:
            assert (await client.put("/memory", json=body, headers=headers)).status_code == status, headers
        foreign = await client.get("/system/health", headers={"sec-fetch-site": "cross-site"})
        assert foreign.status_code == 403


async def test_the_key_of_a_person_sees_that_person_only(gateway: Gateway, client_with: ClientWith, ada: str) -> None:
    bob = await gateway.identities.resolve("mail:bob@example.org", "Bob")
    async with client_with(await key_of(gateway, "memory:read", "memory:write", user=ada)) as client:
        own = (await client.get("/memory", params={"store": "user"})).json()
        assert own["user"] == ada
        same = await client.get("/memory", params={"store": "user", "user": "mail:ada@example.org"})
        assert same.json()["user"] == ada
        for params in (
            {"store": "user", "user": bob},
            {"store": "user", "user": "mail:bob@example.org"},
            {"store": "user", "user": "u_nobody"},
            {"store": "memory"},
        ):
            response = await client.get("/memory", params=params)
            assert response.status_code == 403, params
            assert "bob" not in response.text.lower()
        written = {"store": "user", "user": bob, "content": "x", "expectedVersion": own["version"]}
        assert (await client.put("/memory", json=written)).status_code == 403
        assert (await client.get("/memory/changes")).status_code == 403
        assert (await client.get("/memory/documents")).json()["items"] == []
    async with client_with((gateway.home / "web-token").read_text().strip()) as client:
        for user in (ada, bob):
            body = {"store": "user", "user": user, "content": f"{user}\n", "expectedVersion": own["version"]}
            assert (await client.put("/memory", json=body)).status_code == 200
        changes = {one["user"]: one["id"] for one in (await client.get("/memory/changes")).json()["items"]}
    async with client_with(await key_of(gateway, "memory:read", "memory:write", user=ada)) as client:
        assert [one["user"] for one in (await client.get("/memory/documents")).json()["items"]] == [ada]
        assert (await client.get(f"/memory/changes/{changes[ada]}")).status_code == 200
        for call in (
            client.get(f"/memory/changes/{changes[bob]}"),
            client.post(f"/memory/changes/{changes[bob]}/undo"),
            client.post(f"/memory/changes/{changes[bob]}/restore", json={"expectedVersion": own["version"]}),
        ):
            assert (await call).status_code == 404


async def test_the_key_of_a_person_cannot_be_given_what_concerns_others(gateway: Gateway, ada: str) -> None:
    for scope in set(PERMISSIONS) - OF_A_PERSON:
        with pytest.raises(Exception, match=f"cannot have {scope}"):
            await key_of(gateway, scope, user=ada)


async def test_whoever_sees_one_person_is_no_operator_even_with_every_scope(ada: str) -> None:
    assert not Caller(name="x", permissions=None, user_id=ada).is_operator


def path_of(route: APIRoute) -> str:
    return re.sub(r"\{[a-z]+\}", "1", route.path)


async def test_many_first_requests_at_once_make_one_application(gateway: Gateway, client_with: ClientWith) -> None:
    async with client_with((gateway.home / "web-token").read_text().strip()) as client:
        found = await asyncio.gather(*(client.get("/system/health") for _ in range(20)))
    assert {response.status_code for response in found} == {200}
