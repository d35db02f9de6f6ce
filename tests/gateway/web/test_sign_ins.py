"""Browsers that are signed in: known by their cookie, until they are ended, too old, or the token is another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.people.sign_ins import MAX_AGE, SignIns, SignInStore
from gateway.store.stores import open_store
from gateway.web.dashboard.pages.sign_ins import browser_name
from tests.fake_sign_ins import FakeSignIns

TOKEN = "a-token-that-is-long-enough"


class FakeClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 22, 10, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture(params=["sqlite", "fake"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SignInStore]:
    if request.param == "fake":
        yield FakeSignIns()
        return
    opened = open_store(tmp_path / "ethos.sqlite")
    yield opened.sign_ins
    await opened.close()


async def test_a_browser_is_known_again_by_its_cookie(store: SignInStore) -> None:
    sign_ins = SignIns(store, TOKEN)
    cookie = await sign_ins.begin("Firefox/140")
    known = await sign_ins.known(cookie)
    assert known is not None
    assert (known.browser, [one.id for one in await sign_ins.all()]) == ("Firefox/140", [known.id])


async def test_the_store_has_nothing_that_signs_anybody_in(store: SignInStore) -> None:
    sign_ins = SignIns(store, TOKEN)
    cookie = await sign_ins.begin("x")
    kept = (await store.sign_ins())[0]
    secret = cookie.partition(".")[2]
    assert secret not in repr(kept)
    assert await sign_ins.known(f"{kept.id}.{kept.hash.hex()[:43]}") is None
    assert await SignIns(store, "another-token-of-20-and-more").known(cookie) is None, "a new token ends all"


@pytest.mark.parametrize("change", ["", "x", "{0}", "{0}x", "{1}.{2}", "{3}.{2} ", "{3}.", ".{2}", "operator.1.2"])
async def test_a_cookie_that_is_cut_or_made_up_is_nothing(store: SignInStore, change: str) -> None:
    sign_ins = SignIns(store, TOKEN)
    cookie = await sign_ins.begin("x")
    sign_in_id, _, secret = cookie.partition(".")
    assert await sign_ins.known(change.format(cookie[:-1], "0" * 12, secret, sign_in_id)) is None


async def test_what_is_ended_is_unknown_and_what_it_holds_open_is_told(store: SignInStore) -> None:
    sign_ins = SignIns(store, TOKEN)
    cookie, other = await sign_ins.begin("x"), await sign_ins.begin("y")
    known = await sign_ins.known(cookie)
    assert known is not None
    ended = asyncio.create_task(sign_ins.until_ended(known))
    assert not (await asyncio.wait({ended}, timeout=0.05))[0]
    assert await sign_ins.end(known.id)
    async with asyncio.timeout(5):
        await ended
        await sign_ins.until_ended(known)  # it ended while a request was on its way from the store
    assert not await sign_ins.end(known.id)
    assert await sign_ins.known(cookie) is None
    assert await sign_ins.known(other) is not None


async def test_what_was_ended_elsewhere_is_found_in_the_store(store: SignInStore) -> None:
    here, elsewhere = SignIns(store, TOKEN), SignIns(store, TOKEN)
    held = [await here.known(await here.begin(browser)) for browser in ("x", "y")]
    gone, kept = (asyncio.create_task(here.until_ended(one)) for one in held if one is not None)
    await asyncio.sleep(0)
    assert held[0] is not None
    await elsewhere.end(held[0].id)
    async with asyncio.timeout(5):
        await here.look()
        await gone
    assert not kept.done()
    kept.cancel()


async def test_a_sign_in_ends_with_its_age_and_the_next_one_clears_it_away(store: SignInStore) -> None:
    clock = FakeClock()
    sign_ins = SignIns(store, TOKEN, now=clock)
    cookie = await sign_ins.begin("x")
    clock.now += MAX_AGE
    known = await sign_ins.known(cookie)
    assert known is not None
    clock.now += timedelta(seconds=1)
    async with asyncio.timeout(5):
        await sign_ins.until_ended(known)
    assert await sign_ins.known(cookie) is None
    assert await sign_ins.all() == []
    await sign_ins.begin("y")
    assert [one.browser for one in await store.sign_ins()] == ["y"]


async def test_it_is_noted_to_the_minute_when_one_was_used(store: SignInStore) -> None:
    clock = FakeClock()
    sign_ins = SignIns(store, TOKEN, now=clock)
    cookie = await sign_ins.begin("x" * 1000)
    await sign_ins.begin("later")
    begun = clock.now
    clock.now += timedelta(seconds=59)
    await sign_ins.known(cookie)
    assert {one.last_seen_at for one in await sign_ins.all()} == {begun}
    clock.now += timedelta(seconds=1)
    await sign_ins.known(cookie)
    assert [one.last_seen_at for one in await sign_ins.all()] == [clock.now, begun]
    assert len((await sign_ins.all())[0].browser) == 300


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        (
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 "
                "Safari/537.36 Edg/142.0.0.0"
            ),
            "Edge on Windows",
        ),
        (
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
                "Version/18.5 Mobile/15E148 Safari/604.1"
            ),
            "Safari on iPhone",
        ),
        ("curl/8.9", "curl/8.9"),
        ("", "A browser that does not say its name"),
    ],
)
def test_a_browser_is_called_as_people_call_it(user_agent: str, name: str) -> None:
    assert browser_name(user_agent) == name
