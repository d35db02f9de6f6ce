"""What people who have signed in see of the dashboard: their own, and of others nothing, on no page."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from gateway.app.gateway import Gateway
from gateway.domain.roles import Role
from gateway.messages import QuotedText
from gateway.people.sign_ins import SignIns
from gateway.sdk.models.chat import SendMessage
from gateway.sdk.models.schedules import NewSchedule
from gateway.services.caller import on_pages, operator
from gateway.services.naming import Wanted
from gateway.services.sessions import SessionQuery
from gateway.web.auth import OperatorAuth
from gateway.web.dashboard.app import Dashboard
from gateway.web.dashboard.live import Live
from tests.fake_channel import FakeChannel
from tests.fake_sign_ins import FakeSignIns
from tests.gateway.way.canary_answers import canaries
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_canaries import CuriousModel

OPERATOR = operator("test")
HTML = {"accept": "text/html"}
OPEN: Mapping[str, Role] = {
    **dict.fromkeys(
        (
            *("GET /", "GET /events", "POST /theme", "GET /chat", "GET /chat/{session}", "GET /chat/{session}/events"),
            *("POST /chat/send", "POST /chat/stop", "POST /chat/messages", "POST /chat/personality"),
            *("GET /chat/{session}/list", "POST /chat/rename", "POST /chat/pin", "POST /chat/delete"),
            *("GET /chat/{session}/edit", "POST /chat/edit", "POST /chat/branch"),
            *("GET /chat/{session}/files/{turn}/{number}",),
            *("GET /sessions", "GET /sessions/{session}", "GET /sessions/{session}/news"),
            *("GET /sessions/{session}/export", "POST /sessions/rename", "POST /sessions/pin", "POST /sessions/fork"),
            *("POST /sessions/delete", "GET /sign-ins", "POST /sign-ins/end", "POST /sign-ins/end-others"),
            *("POST /sign-ins/change",),
        ),
        "guest",
    ),
    **dict.fromkeys(
        (
            *("GET /memory", "GET /memory/edit", "GET /memory/edit/news", "POST /memory/edit/difference"),
            *("POST /memory/save", "GET /memory/history", "POST /memory/undo", "POST /memory/restore"),
            *("GET /memory/proposals", "POST /memory/proposals/decide"),
            *("GET /schedules", "GET /schedules/of/{schedule}", "GET /schedules/of/{schedule}/change"),
            *("GET /schedules/new", "POST /schedules/new", "POST /schedules/change", "POST /schedules/pause"),
            *("POST /schedules/resume", "POST /schedules/run", "POST /schedules/remove"),
            *("GET /tools", "GET /tools/approvals", "POST /tools/approvals/decide", "POST /tools/approvals/again"),
            *("POST /tools/approvals/revoke", "GET /usage"),
            *("GET /keys", "GET /keys/new", "POST /keys/new", "POST /keys/end"),
        ),
        "member",
    ),
}
"""What is not only for owners, and from which role on. A page that is not listed here must be closed to all others."""
STREAMS = ("/events", "/chat/{session}/events")


@dataclass
class Place:
    """A gateway in which two people have left words of their own everywhere."""

    gateway: Gateway
    users: Mapping[str, str]
    ids: Mapping[str, Mapping[str, Sequence[str]]]
    """Of each person, the ids of what is theirs, by what an address or a form calls them."""
    routes: Sequence[tuple[str, str]]

    async def browser(self, user: str | None) -> httpx.AsyncClient:
        """Signed in as a person, or by the token."""
        web = self.gateway.web
        token = (self.gateway.home / "web-token").read_text().strip()
        name = OperatorAuth(token, SignIns(FakeSignIns(), token)).cookie_name
        cookie = await web.sign_ins.begin("a browser", None if user is None else self.users[user])
        assert web.url is not None
        client = httpx.AsyncClient(base_url=web.url, cookies={name: cookie}, trust_env=False, timeout=60)
        client.headers.update({**HTML, "origin": web.url.rstrip("/")})
        return client


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    house = House(tmp_path / "home")
    directory = house.home / "personalities" / "diary"
    directory.mkdir(parents=True)
    (directory / "SOUL.md").write_text("You are discreet.\n")
    (directory / "personality.yaml").write_text("memory_scope: per-user\n")
    tools = {"packages": [{"package": "tests.tool_packages.counting", "file": str(house.home / "posted")}]}
    channels = {"fake": {"kind": "tests.fake_channel", "personality": "diary"}}
    async with house.served(CuriousModel(), channels=channels, tools=tools, personality="diary") as gateway:
        (channel,) = (one for one in gateway.adapters if isinstance(one, FakeChannel))
        for user in ("1", "2"):
            await leave_words(gateway, channel, user)
        users = {user: await gateway.identities.resolve(f"fake:{user}", "") for user in ("1", "2")}
        services = gateway.web.api.services
        for user_id in users.values():
            await services.people.set_role(OPERATOR, user_id, "member")
        for user, user_id in users.items():
            text = f"CANARY-{user}xplan"
            await services.schedules.created(OPERATOR, NewSchedule(user=user_id, text=text, in_minutes=1_000))
            await services.chat.send(on_pages(user_id, "member"), SendMessage(text="Hello"))
        await settled(gateway)
        ids = {user: await ids_of(gateway, user, user_id) for user, user_id in users.items()}
        yield Place(gateway, users, ids, await routes_of(gateway))


async def leave_words(gateway: Gateway, channel: FakeChannel, user: str) -> None:
    """In the memory, a session, a proposal, a call that waits and a schedule."""
    said = [
        (f"to diary: mine is CANARY-{user}x0", ()),
        ("see", (QuotedText(origin="quoted mail", text=f"CANARY-{user}xmail"),)),
        (f"post CANARY-{user}xpost", ()),
    ]
    for text, quotes in said:
        await channel.deliver(channel.message(text, user=user, conversation=f"direct {user}", quotes=quotes))
        await settled(gateway)


async def ids_of(gateway: Gateway, user: str, user_id: str) -> Mapping[str, Sequence[str]]:
    services = gateway.web.api.services
    sessions, _ = await services.sessions.find(OPERATOR, SessionQuery(user=user_id), limit=9)
    assert {one.channel for one in sessions} == {"fake", "local"}
    changes = [
        change
        for store in ("user", "memory")
        for change in await services.memory.history(OPERATOR, Wanted(user=user_id, store=store), limit=3)
    ]
    proposals = [one for one in await services.memory.proposals(OPERATOR) if one.user == user_id]
    approvals = [one for one in await services.approvals.listed(OPERATOR) if one.user == user_id]
    schedules = await services.schedules.listed(OPERATOR, user=user_id)
    found: dict[str, Sequence[Any]] = {
        "session": [one.id for one in sessions],
        "change": [one.id for one in changes],
        "proposal": [one.id for one in proposals],
        "approval": [one.id for one in approvals],
        "schedule": [one.id for one in schedules],
        "user": [user_id, f"fake:{user}"],
    }
    assert all(found.values()), found
    return {name: [str(one) for one in ids] for name, ids in found.items()}


async def routes_of(gateway: Gateway) -> Sequence[tuple[str, str]]:
    """Method and path of each address below `/dashboard`."""
    lazy = gateway.web._dashboard
    assert lazy is not None
    dashboard: Dashboard = await lazy.application()
    routes = [route for route in dashboard.routes if isinstance(route, Route)]
    return [(method, route.path) for route in routes for method in sorted((route.methods or set()) - {"HEAD"})]


def addresses(path: str, ids: Mapping[str, Sequence[str]]) -> Sequence[str]:
    names = re.findall(r"{(\w+)}", path)
    found = []
    for values in itertools.product(*(ids.get(name, ["1"]) for name in names)):
        one = path
        for name, value in zip(names, values, strict=True):
            one = one.replace(f"{{{name}}}", value)
        found.append(f"/dashboard{one}")
    return found


def is_of(text: str, other: str, users: Mapping[str, str]) -> bool:
    """Whether there is anything of another person in it."""
    return other in canaries(text) or users[other] in text or f"Person {other}" in text


@pytest.mark.parametrize("role", ["member", "guest"])
async def test_no_page_shows_one_person_anything_of_another(place: Place, role: Role) -> None:
    await place.gateway.web.api.services.people.set_role(OPERATOR, place.users["1"], role)
    own, closed = set(), set()
    async with await place.browser("1") as client, await place.browser(None) as operators:
        for method, path in place.routes:
            if method != "GET" or path in STREAMS:
                continue
            least = OPEN.get(f"GET {path}", "owner")
            is_open = (role == "member" and least != "owner") or least == "guest"
            queries = [{}, *({"user": user} for user in place.ids["2"]["user"]), {"q": "CANARY"}, {"store": "user"}]
            for address, query in itertools.product(
                (*addresses(path, place.ids["1"]), *addresses(path, place.ids["2"])), queries
            ):
                response = await client.get(address, params=query)
                asked = {*address.split("/"), *query.values()}
                if place.users["2"] not in asked:
                    assert not is_of(response.text, "2", place.users), (address, query)
                assert "2" not in canaries(response.text), (address, query)
                assert (response.status_code == 403) == (not is_open), (address, response.status_code)
                if "1" in canaries(response.text):
                    own.add(path)
            if not is_open:
                closed.add(path)
                assert "Not allowed" in response.text, "a page says so"
                assert 'href="/dashboard/settings"' not in response.text, "the navigation shows what they may"
        pages = await operators.get("/dashboard/sessions")
        assert {"1", "2"} <= {name for name in ("1", "2") if place.users[name] in pages.text}, "an operator sees both"
    assert {"/people", "/settings", "/channels", "/deliveries", "/traces"} <= closed
    for_all = {"/sessions", "/sessions/{session}", "/sessions/{session}/news", "/sessions/{session}/export"}
    for_members = {"/memory", "/memory/proposals", "/tools", "/tools/approvals", "/schedules", "/memory/history"}
    assert own >= (for_all | for_members if role == "member" else for_all)


@pytest.mark.parametrize("role", ["member", "guest"])
async def test_no_form_reaches_what_is_anothers(place: Place, role: Role) -> None:
    services = place.gateway.web.api.services
    await services.people.set_role(OPERATOR, place.users["1"], role)

    async def kept() -> Sequence[object]:
        whose = place.users["2"]
        sessions, _ = await services.sessions.find(OPERATOR, SessionQuery(user=whose), limit=9)
        documents = [
            await services.memory.get(OPERATOR, Wanted(user=whose, store=store)) for store in ("user", "memory")
        ]
        proposals = [one for one in await services.memory.proposals(OPERATOR) if one.user == whose]
        approvals = [one for one in await services.approvals.listed(OPERATOR) if one.user == whose]
        schedules = await services.schedules.listed(OPERATOR, user=whose)
        return [sessions, documents, proposals, approvals, schedules]

    before = await kept()
    theirs = {name: ids[0] for name, ids in place.ids["2"].items()}
    document = await services.memory.get(OPERATOR, Wanted(user=place.users["2"], store="user"))
    more = {
        "message": "1", "title": "Mine now", "pinned": "yes", "confirmed": "yes", "text": "Hello", "rule": "in_minutes",
        "in_minutes": "5", "store": "user", "content": "Mine now", "version": document.version, "_base": "another",
        "choice": "", "personality": "", "decision": "yes", "id": "0" * 12, "grant": "1", "role": "owner",
        "typed": place.users["2"], "mode": "say",
    }  # fmt: skip
    async with await place.browser("1") as client:
        page = await client.get("/dashboard/sign-ins")
        token = re.search(r'name="form_token" value="(\w+)"', page.text)
        assert token is not None
        for method, path in place.routes:
            if method != "POST":
                continue
            least = OPEN.get(f"POST {path}", "owner")
            is_open = (role == "member" and least != "owner") or least == "guest"
            for session in place.ids["2"]["session"]:
                form = {**more, **theirs, "session": session, "form_token": token[1]}
                (address,) = addresses(path, {})
                response = await client.post(address, data=form)
                shown = response.text.replace(place.users["2"], "") if path == "/schedules/new" else response.text
                assert "2" not in canaries(shown), path
                assert (response.status_code == 403) == (not is_open), (path, response.status_code)
                if response.status_code == 303 and response.headers["location"].startswith("/dashboard"):
                    shown = (await client.get(response.headers["location"])).text
                    assert "2" not in canaries(shown), path
    assert await kept() == before


async def test_the_streams_of_one_person_tell_nothing_of_another(place: Place) -> None:
    async with await place.browser("1") as client:
        for session in place.ids["2"]["session"]:
            response = await client.get(f"/dashboard/chat/{session}/events")
            assert response.status_code == 404
            assert "2" not in canaries(response.text)
        page = await client.get("/dashboard/sessions")
        assert 'data-moment=""' in page.text, "a count of what happened is not shown either"


async def test_a_steady_stream_does_not_hang_on_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.web.dashboard.live.STEADY_S", 0.01)
    live = Live()
    events = live.steady()
    try:
        assert await anext(events) == b"retry: 2000\n\n"
        live.changed("people", "channels")
        async with asyncio.timeout(5):
            first, second = await anext(events), await anext(events)
        assert first == second == b"event: changed\ndata: memory messages usage\n\n"
    finally:
        await events.aclose()


async def test_an_owner_who_signs_in_sees_all_and_talks_as_themselves(place: Place) -> None:
    await place.gateway.web.api.services.people.set_role(OPERATOR, place.users["1"], "owner")
    async with await place.browser("1") as client:
        for path in ("people", "settings", "channels", "sessions", "usage", "servers"):
            assert (await client.get(f"/dashboard/{path}")).status_code == 200, path
        assert canaries((await client.get("/dashboard/sessions")).text + (await client.get("/dashboard/tools")).text)
        chat = (await client.get("/dashboard/chat")).text
        listed = set(re.findall(r"/dashboard/chat/(s_\w+)", chat))
        assert listed == set(place.ids["1"]["session"]) & listed != set(), "only their own conversations"
        token = re.search(r'name="form_token" value="(\w+)"', chat)
        assert token is not None
        sent = await client.post("/dashboard/chat/send", data={"text": "It is me", "form_token": token[1]})
        assert sent.status_code == 303
        await settled(place.gateway)
        session = await place.gateway.web.api.services.sessions.get(OPERATOR, sent.headers["location"].split("/")[-1])
        assert session.user == place.users["1"]


async def test_who_loses_access_is_signed_out_and_a_new_role_counts_at_once(place: Place) -> None:
    people = place.gateway.web.api.services.people
    async with await place.browser("1") as client:
        assert (await client.get("/dashboard/people")).status_code == 403
        await people.set_role(OPERATOR, place.users["2"], "owner")
        await people.set_role(OPERATOR, place.users["1"], "owner")
        assert (await client.get("/dashboard/people")).status_code == 200
        await people.set_role(OPERATOR, place.users["1"], "guest")
        assert (await client.get("/dashboard/memory")).status_code == 403
        (session,) = set(place.ids["1"]["session"]) & {await of_the_pages(place, "1")}
        async with client.stream("GET", f"/dashboard/chat/{session}/events") as stream:
            assert stream.status_code == 200
            await people.revoke(OPERATOR, place.users["1"])
            async with asyncio.timeout(10):
                async for _ in stream.aiter_bytes():
                    pass
        assert (await client.get("/dashboard/chat")).headers["location"].startswith("/login")
    await people.set_role(OPERATOR, place.users["1"], "member")
    assert [one.user_id for one in await place.gateway.web.sign_ins.all()] == [], "the sign-in itself has ended"


async def test_who_is_erased_is_signed_out_with_what_is_open(place: Place) -> None:
    services, user_id = place.gateway.web.api.services, place.users["1"]
    async with await place.browser("1") as client:
        async with client.stream("GET", f"/dashboard/chat/{await of_the_pages(place, '1')}/events") as stream:
            assert stream.status_code == 200
            await services.logins.invite(OPERATOR, user_id)
            await services.personal.erase(OPERATOR, user_id, confirmed=user_id)
            async with asyncio.timeout(20):
                async for _ in stream.aiter_bytes():
                    pass
        assert (await client.get("/dashboard/chat")).headers["location"].startswith("/login")
    assert await place.gateway.store.logins.forget([user_id]) == 0


async def of_the_pages(place: Place, user: str) -> str:
    asked = SessionQuery(user=place.users[user], channel="local")
    ((session, *_), _) = await place.gateway.web.api.services.sessions.find(OPERATOR, asked, limit=1)
    return session.id


async def test_a_person_sees_and_ends_only_their_own_sign_ins(place: Place) -> None:
    async with await place.browser("1") as ada, await place.browser("2") as ben, await place.browser(None) as operators:
        page = (await ada.get("/dashboard/sign-ins")).text
        token = re.search(r'name="form_token" value="(\w+)"', page)
        assert token is not None
        assert page.count("This browser") == 1
        assert page.count('name="id"') == 1, "of others none is shown"
        theirs = {one.user_id: one.id for one in await place.gateway.web.sign_ins.all()}
        for other in (theirs[place.users["2"]], theirs[None]):
            await ada.post("/dashboard/sign-ins/end", data={"id": other, "form_token": token[1]})
        await ada.post("/dashboard/sign-ins/end-others", data={"form_token": token[1]})
        assert (await ben.get("/dashboard/chat")).status_code == 200
        whose = (await operators.get("/dashboard/sign-ins")).text
        assert all(place.users[user] in whose for user in ("1", "2"))
        token = re.search(r'name="form_token" value="(\w+)"', whose)
        assert token is not None
        await operators.post("/dashboard/sign-ins/end", data={"id": theirs[place.users["2"]], "form_token": token[1]})
        assert (await ben.get("/dashboard/chat")).status_code == 303


async def test_the_api_takes_no_cookie_of_a_person_who_is_no_owner(place: Place) -> None:
    async with await place.browser("1") as client:
        answer = await client.get("/api/v1/sessions", headers={"accept": "application/json"})
        assert (answer.status_code, "API key" in answer.text) == (403, True)
        assert (await client.get("/metrics")).status_code in (403, 404)
        await place.gateway.web.api.services.people.set_role(OPERATOR, place.users["1"], "owner")
        assert (await client.get("/api/v1/sessions")).status_code == 200
