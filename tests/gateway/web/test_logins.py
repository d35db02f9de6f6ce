"""Signing in with a password and a second factor: by an invitation, once, and by nobody else."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.people import logins
from gateway.people.logins import STEP_S, hashed, is_password, step_of, totp, totp_address, totp_secret
from gateway.people.tries import SignInFailuresInMemory
from gateway.services.caller import NotAllowed, Refused, on_pages, operator
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled

OPERATOR = operator("test")
PASSWORD = "several words of hers"
CODES = re.compile(r"<code>([34679A-Y]{4}-[34679A-Y]{4})</code>")
WRONG = "The name, the password or the code is wrong"


# ---- the parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_s", "code"),
    [
        (59, "287082"),
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005924"),
        (2000000000, "279037"),
        (20000000000, "353130"),
    ],
)
def test_the_codes_are_those_of_rfc_6238(at_s: int, code: str) -> None:
    assert totp(b"12345678901234567890", at_s // STEP_S) == code


def test_a_code_is_taken_of_now_and_of_the_steps_beside_it_only() -> None:
    now, secret = datetime(2026, 11, 28, 10, tzinfo=UTC), b"12345678901234567890"
    step = int(now.timestamp()) // STEP_S
    found = [step_of(secret, totp(secret, step + more), now) for more in range(-3, 4)]
    assert found == [None, None, step - 1, step, step + 1, None, None]
    assert step_of(secret, f" {totp(secret, step)[:3]} {totp(secret, step)[3:]}", now) == step
    assert step_of(secret, "\ud800ü", now) is None


def test_a_secret_is_of_its_seed_and_of_the_key() -> None:
    made = {totp_secret(seed, key) for seed in ("a", "b") for key in (b"k" * 32, b"l" * 32)}
    assert len(made) == 4
    assert {len(one) for one in made} == {20}
    address = totp_address(b"12345678901234567890", "Ada L", "Ethos")
    assert address == "otpauth://totp/Ethos%3AAda%20L?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=Ethos"


def test_a_password_is_known_by_its_hash_only() -> None:
    kept = hashed("hörbar \ud800 geheim")
    assert is_password("hörbar \ud800 geheim", kept)
    assert not is_password("hörbar geheim", kept)
    assert not is_password("", None)
    assert kept != hashed("hörbar \ud800 geheim"), "each has its own salt"


# ---- a gateway ------------------------------------------------------------------------------------------------------


@dataclass
class Visitor:
    """A browser in which nobody is signed in yet."""

    gateway: Gateway
    client: httpx.AsyncClient

    async def join(self, path: str, *, name: str = "Ada", password: str = PASSWORD, code: str = "") -> httpx.Response:
        return await self.client.post(path, data={"name": name, "password": password, "code": code})

    async def log_in(
        self, code: str, *, name: str = "Ada", password: str = PASSWORD, next_path: str = "/dashboard/chat"
    ) -> httpx.Response:
        form = {"name": name, "password": password, "code": code, "next": next_path}
        return await self.client.post("/login", data=form)

    async def is_in(self) -> bool:
        return (await self.client.get("/dashboard/chat")).status_code == 200


class Clock:
    """The one of codes and of pauses."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self.now.timestamp()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def gateway(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(logins, "_LOG_N", 4)  # a hash takes no time
    async with House(tmp_path / "home").served() as running:
        service = running.web.api.services.logins
        service._now = clock
        service._failures = running.web._auth._failures = SignInFailuresInMemory(clock=clock.monotonic)
        yield running


Visit = Callable[[], Awaitable[Visitor]]


@pytest.fixture
async def visit(gateway: Gateway) -> AsyncIterator[Visit]:
    async with AsyncExitStack() as stack:

        async def come() -> Visitor:
            assert gateway.web.url is not None
            client = httpx.AsyncClient(base_url=gateway.web.url, trust_env=False, timeout=60)
            client.headers.update({"accept": "text/html", "origin": gateway.web.url.rstrip("/")})
            return Visitor(gateway, await stack.enter_async_context(client))

        yield come


@pytest.fixture
async def ada(gateway: Gateway) -> str:
    """Somebody who writes on a channel."""
    channel = gateway.adapters[0]
    assert isinstance(channel, FakeChannel)
    await channel.say("hello", user="1", conversation="direct 1")
    await settled(gateway)
    user_id = await gateway.identities.resolve("fake:1", "")
    await gateway.web.api.services.people.set_role(OPERATOR, user_id, "member")
    return user_id


async def invited(gateway: Gateway, user_id: str) -> str:
    """The path of a link."""
    made = await gateway.web.api.services.logins.invite(OPERATOR, user_id)
    assert gateway.web.url is not None
    assert made.url.startswith(gateway.web.url)
    return "/" + made.url.removeprefix(gateway.web.url)


class Phone:
    """An authenticator app that has read the page of a link."""

    def __init__(self, page: str, clock: Clock) -> None:
        shown = re.search(r'<code class="secret">([A-Z2-7]+)</code>', page)
        assert shown is not None
        self._secret = base64.b32decode(shown[1])
        self._clock = clock

    def code(self, steps: int = 0) -> str:
        return totp(self._secret, int(self._clock.now.timestamp()) // STEP_S + steps)


async def joined(visitor: Visitor, user_id: str, clock: Clock, name: str = "Ada") -> tuple[Phone, list[str]]:
    """Set up by a link; the app and the recovery codes. The code of now is used."""
    path = await invited(visitor.gateway, user_id)
    phone = Phone((await visitor.client.get(path)).text, clock)
    done = await visitor.join(path, name=name, code=phone.code())
    assert done.status_code == 200, done.text
    clock.now += timedelta(seconds=2 * STEP_S)
    return phone, CODES.findall(done.text)


async def test_a_person_sets_up_a_login_by_a_link_and_is_the_same_person_as_on_their_channel(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    visitor = await visit()
    path = await invited(gateway, ada)
    page = await visitor.client.get(path)
    assert 'value="Person 1"' in page.text, "the name to begin with"
    assert "<svg" in page.text
    assert "set-cookie" not in page.headers, "a look is no sign-in"
    phone = Phone(page.text, clock)
    assert phone.code() == Phone((await visitor.client.get(path)).text, clock).code(), "it may be loaded again"
    done = await visitor.join(path, code=phone.code())
    assert (done.status_code, done.headers["cache-control"]) == (200, "no-store")
    assert len(set(CODES.findall(done.text))) == 10
    assert await visitor.is_in()
    me = await gateway.web.api.services.sign_ins.listed(OPERATOR)
    assert [one.user_id for one in me] == [ada]
    for again in (await visitor.client.get(path), await visitor.join(path, code=phone.code())):
        assert (again.status_code, "has ended" in again.text) == (404, True), "a link works once"


async def test_a_form_that_is_not_right_says_so_beside_each_field_and_keeps_the_link(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    visitor = await visit()
    path = await invited(gateway, ada)
    phone = Phone((await visitor.client.get(path)).text, clock)
    cases = [
        ({"password": "short", "code": phone.code()}, "It has 5 characters, and needs 10 or more."),
        ({"password": "a" * 30, "code": phone.code()}, "It is easy to guess"),
        ({"password": "x" * 257 + "yzabcd", "code": phone.code()}, "It may have 256 characters"),
        ({"name": "  ", "code": phone.code()}, "A name has 1 to 64 characters"),
        ({"code": "000000"}, "This is not the code that the app shows now"),
    ]
    for form, said in cases:
        answer = await visitor.join(path, **form)  # type: ignore[arg-type]
        assert (answer.status_code, said in answer.text) == (409, True), (form, answer.text)
        assert PASSWORD not in answer.text, "no password is written into a page"
        assert "set-cookie" not in answer.headers
    assert 'value="Ada"' in answer.text
    await joined(await visit(), await gateway.identities.resolve("fake:2", "Ben"), clock, name="Béla  B")
    taken = await visitor.join(path, name="bÉLA b", code=phone.code())
    assert "Another person signs in by this name" in taken.text
    assert (await visitor.join(path, code=phone.code())).status_code == 200


async def test_a_link_ends_with_its_time_with_a_new_one_and_with_the_access(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    visitor = await visit()
    clock.now -= timedelta(days=4)
    old = await invited(gateway, ada)
    clock.now += timedelta(days=4)
    first = await invited(gateway, ada)
    second = await invited(gateway, ada)
    assert [(await visitor.client.get(path)).status_code for path in (old, first, second)] == [404, 404, 200]
    await gateway.web.api.services.people.revoke(OPERATOR, ada)
    assert (await visitor.client.get(second)).status_code == 404
    with pytest.raises(Refused, match="give them a role first"):
        await gateway.web.api.services.logins.invite(OPERATOR, ada)
    for made_up in ("x", "x" * 43, "..", "\ud800".encode("utf-8", "replace").decode(), "%00"):
        assert (await visitor.client.get(f"/join/{made_up}")).status_code in (404, 303), made_up


async def test_the_database_has_nothing_that_signs_anybody_in(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    visitor = await visit()
    path = await invited(gateway, ada)
    page = (await visitor.client.get(path)).text
    _, codes = await joined(await visit(), ada, clock)
    waiting = await invited(gateway, ada)
    shown = re.search(r'<code class="secret">([A-Z2-7]+)</code>', page)
    assert shown is not None
    dumped = await gateway.store.engine.read(lambda connection: "\n".join(map(str, connection.iterdump())))
    secrets = [PASSWORD, shown[1], base64.b32decode(shown[1]).hex(), waiting.rpartition("/")[2], *codes]
    assert not [one for one in secrets if one in dumped]
    assert 'INSERT INTO "logins"' in dumped
    assert (gateway.home / "secrets" / "second-factor").stat().st_mode & 0o777 == 0o600


async def test_a_name_a_password_and_a_code_sign_in_and_no_code_counts_twice(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    phone, _ = await joined(await visit(), ada, clock)
    visitor = await visit()
    code = phone.code()
    done = await visitor.log_in(code, name=" aDA ")
    assert (done.status_code, done.headers["location"]) == (303, "/dashboard/chat")
    assert await visitor.is_in()
    for used in (code, phone.code(-1)):
        other = await visit()
        replayed = await other.log_in(used)
        assert (replayed.status_code, WRONG in replayed.text) == (401, True)
        assert not await other.is_in()
    clock.now += timedelta(seconds=STEP_S)
    assert (await (await visit()).log_in(phone.code())).status_code == 303


async def test_a_recovery_code_takes_the_place_of_the_app_once(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    _, codes = await joined(await visit(), ada, clock)
    visitor = await visit()
    assert (await visitor.log_in(codes[3].lower().replace("-", " "))).status_code == 303
    assert (await (await visit()).log_in(codes[3])).status_code == 401
    page = (await visitor.client.get("/dashboard/sign-ins")).text
    assert "9 recovery codes are left" in page


async def test_all_that_is_wrong_is_answered_alike_and_costs_alike(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone, codes = await joined(await visit(), ada, clock)
    hashes = []
    real = logins._scrypt
    monkeypatch.setattr(logins, "_scrypt", lambda *given: hashes.append(given[2:]) or real(*given))
    texts = set()
    for name, password, code in (
        ("nobody", PASSWORD, phone.code()),
        ("Ada", "not her password", phone.code()),
        ("Ada", PASSWORD, "000000"),
        ("Ben", "not her password", codes[0]),
    ):
        clock.now += timedelta(minutes=2)
        answer = await (await visit()).log_in(code, name=name, password=password)
        assert answer.status_code == 401
        texts.add(re.sub(rf'value="{name}"', 'value=""', answer.text))
        assert password not in answer.text
    assert len(texts) == 1
    assert len(hashes) == 4
    assert len(set(hashes)) == 1, "the same cost"
    assert len(await gateway.store.logins.recovery_codes(ada)) == 10, "none was used up"


async def test_tries_of_one_name_are_few_even_at_once_and_the_right_one_waits_too(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    phone, _ = await joined(await visit(), ada, clock)
    ben_phone, _ = await joined(await visit(), await gateway.identities.resolve("fake:2", "Ben"), clock, name="Ben")
    service = gateway.web.api.services.logins
    looked_at = await asyncio.gather(*(service.entered("ada", f"guess {n}", "000000") for n in range(12)))
    assert sum(one.wait_s == 0 for one in looked_at) == 4
    paused = await (await visit()).log_in(phone.code())
    assert (paused.status_code, "Too many wrong" in paused.text) == (429, True)
    assert int(paused.headers["retry-after"]) > 0
    assert (await (await visit()).log_in(ben_phone.code(), name="Ben")).status_code == 303, "others come in"
    clock.now += timedelta(seconds=61)
    assert (await (await visit()).log_in(phone.code())).status_code == 303
    assert (await service.entered("ada", PASSWORD, phone.code(1))).user_id == ada, "what was wrong is forgiven"


async def test_the_operator_s_token_works_beside_it_and_the_login_offers_what_there_is(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    visitor = await visit()
    assert 'name="password"' not in (await visitor.client.get("/login")).text
    await joined(await visit(), ada, clock)
    page = (await visitor.client.get("/login")).text
    assert 'name="password"' in page
    assert 'name="token"' in page
    wrong = await visitor.client.post("/login", data={"token": "wrong", "next": "/"})
    assert "That is not the token of this gateway." in wrong.text
    token = (gateway.home / "web-token").read_text().strip()
    assert (await visitor.client.post("/login", data={"token": token, "next": "/"})).status_code == 303
    assert (await visitor.client.get("/dashboard/settings")).status_code == 200


async def test_no_cookie_from_before_the_login_is_one_after_it_and_nobody_else_stays_signed_in(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    phone, _ = await joined(await visit(), ada, clock)
    visitor = await visit()
    name, planted = gateway.web._auth.cookie_name, f"{'a' * 12}.{'b' * 43}"
    visitor.client.headers["cookie"] = f"{name}={planted}"
    done = await visitor.log_in(phone.code())
    assert planted not in done.headers["set-cookie"]
    assert not await visitor.is_in(), "the one that was planted is still none"
    victim = await visit()
    await victim.client.get(str(gateway.web.login_url))
    before = dict(victim.client.cookies)
    clock.now += timedelta(seconds=STEP_S)
    assert (await victim.log_in(phone.code())).status_code == 303
    old = await visit()
    old.client.cookies.update(before)
    assert not await old.is_in(), "the operator's sign-in of that browser has ended"


@pytest.mark.parametrize("next_path", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:x"])
async def test_the_login_leads_to_no_other_site(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock, next_path: str
) -> None:
    phone, _ = await joined(await visit(), ada, clock)
    assert (await (await visit()).log_in(phone.code(), next_path=next_path)).headers["location"] == "/"


async def test_a_page_of_another_site_signs_nobody_in(gateway: Gateway, visit: Visit, ada: str, clock: Clock) -> None:
    path = await invited(gateway, ada)
    visitor = await visit()
    phone = Phone((await visitor.client.get(path)).text, clock)
    visitor.client.headers["origin"] = "https://evil.example"
    assert (await visitor.join(path, code=phone.code())).status_code == 403
    assert (await visitor.log_in(phone.code())).status_code == 403


async def test_a_person_sets_it_up_again_after_the_password_and_a_code(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    visitor, elsewhere = await visit(), await visit()
    phone, codes = await joined(visitor, ada, clock)
    assert (await elsewhere.log_in(phone.code())).status_code == 303
    clock.now += timedelta(seconds=STEP_S)
    token = re.search(r'name="form_token" value="(\w+)"', (await visitor.client.get("/dashboard/sign-ins")).text)
    assert token is not None
    for form in ({"password": "wrong", "code": phone.code()}, {"password": PASSWORD, "code": "000000"}):
        refused = await visitor.client.post("/dashboard/sign-ins/change", data={**form, "form_token": token[1]})
        assert refused.headers["location"] == "/dashboard/sign-ins"
    form = {"password": PASSWORD, "code": phone.code(), "form_token": token[1]}
    path = (await visitor.client.post("/dashboard/sign-ins/change", data=form)).headers["location"]
    assert path.startswith("/join/")
    new_phone = Phone((await visitor.client.get(path)).text, clock)
    done = await visitor.join(path, password="other words altogether", code=new_phone.code())
    assert done.status_code == 200
    assert not set(CODES.findall(done.text)) & set(codes)
    assert await visitor.is_in()
    assert not await elsewhere.is_in(), "other browsers are signed out"
    clock.now += timedelta(seconds=2 * STEP_S)
    assert (await (await visit()).log_in(phone.code(), password="other words altogether")).status_code == 401
    assert (await (await visit()).log_in(codes[0], password="other words altogether")).status_code == 401
    assert (await (await visit()).log_in(new_phone.code(), password="other words altogether")).status_code == 303
    with pytest.raises(Refused, match="do not sign in with a password"):
        await gateway.web.api.services.logins.change(on_pages("u_other", "owner"), "x", "y")


async def test_an_owner_ends_it_and_what_is_open_closes(gateway: Gateway, visit: Visit, ada: str, clock: Clock) -> None:
    visitor = await visit()
    phone, _ = await joined(visitor, ada, clock)
    waiting = await invited(gateway, ada)
    logins_of = gateway.web.api.services.logins
    with pytest.raises(NotAllowed):
        await logins_of.end(on_pages(ada, "member"), ada)
    async with visitor.client.stream("GET", "/dashboard/events") as stream:
        assert stream.status_code == 200
        ended = await logins_of.end(OPERATOR, ada)
        async with asyncio.timeout(10):
            async for _ in stream.aiter_bytes():
                pass
    assert (ended.had_password, ended.browsers) == (True, 1)
    assert not await visitor.is_in()
    assert (await visitor.log_in(phone.code())).status_code == 401
    assert (await visitor.client.get(waiting)).status_code == 404
    assert not (await logins_of.end(OPERATOR, ada)).had_password


async def test_a_person_asks_for_a_link_in_a_chat_and_lists_do_not_show_it(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    channel = gateway.adapters[0]
    assert isinstance(channel, FakeChannel)
    group = channel.message("/web", user="1", conversation="group", is_direct=False, mentions_bot=True)
    await channel.deliver(group)
    await settled(gateway)
    assert "in a direct chat" in channel.sent[-1].text
    await channel.say("/web", user="1", conversation="direct 1")
    await settled(gateway)
    found = re.search(r"http://\S+(/join/\S+)", channel.sent[-1].text)
    assert found is not None
    visitor = await visit()
    phone = Phone((await visitor.client.get(found[1])).text, clock)
    assert (await visitor.join(found[1], code=phone.code())).status_code == 200
    assert [one.user_id for one in await gateway.web.sign_ins.all()] == [ada]
    rows = await gateway.store.deliveries.rows("outbox", chosen="all")
    assert not [row for row in rows if found[1].rpartition("/")[2] in row.text]


async def test_somebody_new_is_invited_by_name_and_talks_as_themselves(
    gateway: Gateway, visit: Visit, clock: Clock
) -> None:
    services = gateway.web.api.services
    made = await services.logins.invite_new(OPERATOR, "Cleo", "guest")
    assert gateway.web.url is not None
    path = "/" + made.url.removeprefix(gateway.web.url)
    visitor = await visit()
    page = (await visitor.client.get(path)).text
    assert 'value="Cleo"' in page
    assert (await visitor.join(path, name="Cleo", code=Phone(page, clock).code())).status_code == 200
    chat = (await visitor.client.get("/dashboard/chat")).text
    token = re.search(r'name="form_token" value="(\w+)"', chat)
    assert token is not None
    sent = await visitor.client.post("/dashboard/chat/send", data={"text": "Hello", "form_token": token[1]})
    await settled(gateway)
    session = await services.sessions.get(OPERATOR, sent.headers["location"].split("/")[-1])
    assert session.user == made.user
    person = await services.people.show(OPERATOR, made.user)
    assert (person.name, person.role) == ("Cleo", "guest")
    assert (await visitor.client.get("/dashboard/memory")).status_code == 403


async def test_a_form_typed_in_a_login_that_ended_comes_back_after_a_password(
    gateway: Gateway, visit: Visit, ada: str, clock: Clock
) -> None:
    phone, _ = await joined(await visit(), ada, clock)
    visitor = await visit()
    held = await visitor.client.post("/dashboard/schedules/new", data={"text": "water the plants", "rule": "at"})
    assert (held.status_code, "Nothing you typed is lost" in held.text) == (401, True)
    assert 'name="held.text" value="water the plants"' in held.text
    again = {"next": "/dashboard/schedules/new", "held.text": "water the plants", "name": "Ada", "password": PASSWORD}
    wrong = await visitor.client.post("/dashboard/again", data={**again, "code": "000000"})
    assert (wrong.status_code, WRONG in wrong.text) == (401, True)
    assert 'name="held.text" value="water the plants"' in wrong.text
    right = await visitor.client.post("/dashboard/again", data={**again, "code": phone.code()})
    assert "Send it again" in right.text
    assert "water the plants" in right.text
    assert await visitor.is_in()
