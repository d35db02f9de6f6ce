"""Where one `secret` is configured, the web token, the cookies' key and the key for codes come from it, and no file."""

from __future__ import annotations

import base64

import httpx
import pytest

from ethos import AsyncEthos
from gateway.app.gateway import Gateway
from gateway.domain.codes import PEPPER_NAME, hash_code, load_pepper
from gateway.domain.root_secret import derived
from gateway.files.home import TOKEN_NAME
from gateway.web.auth import OperatorAuth
from gateway.web.token import load_token, token_of
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House

SECRET = bytes(range(32))
ANOTHER = bytes(range(100, 132))


def browser(gateway: Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.web.url or "", headers={"accept": "text/html"}, trust_env=False)


async def is_operator(gateway: Gateway, token: str) -> bool:
    async with browser(gateway) as client:
        answer = await client.get("/health", headers={"authorization": f"Bearer {token}"})
        return "channels" in answer.text and answer.status_code == 200


async def claimed(channel: FakeChannel, code: str, user: str) -> str:
    """The answer to the owner's code, of a person who wrote nothing before."""
    said = channel.message(f"/owner {code}", user=user, conversation=f"dm-{user}", id=user, event_id=user)
    await channel.deliver(said)
    return (await channel.answers_to(said))[0]


def auth(gateway: Gateway) -> OperatorAuth:
    return gateway.web._auth


def test_the_token_and_the_pepper_are_derived_each_for_itself(house: House) -> None:
    token, pepper = load_token(house.home, SECRET), load_pepper(house.home, SECRET)
    assert base64.urlsafe_b64decode(token + "=") == derived(SECRET, "token")
    assert pepper == derived(SECRET, "pepper")
    assert len(token) == 43
    assert (load_token(house.home, ANOTHER), load_pepper(house.home, ANOTHER)) != (token, pepper)
    assert not house.home.exists()


async def test_with_a_secret_no_file_is_made_or_needed(house: House) -> None:
    async with house.served(secret=SECRET.hex()) as gateway:
        await gateway.admission.pairing.offer_owner()
        assert await is_operator(gateway, token_of(SECRET))
        assert (gateway.web.login_url or "").endswith(f"/?token={token_of(SECRET)}")
    assert not (house.home / TOKEN_NAME).exists()
    assert not (house.home / PEPPER_NAME).exists()


async def test_without_a_secret_both_files_are_made_as_ever(house: House) -> None:
    async with house.served() as gateway:
        await gateway.admission.pairing.offer_owner()
        token = (house.home / TOKEN_NAME).read_text().strip()
        assert await is_operator(gateway, token)
        assert len((house.home / PEPPER_NAME).read_bytes()) == 32


async def test_files_that_are_left_from_before_open_nothing_and_stay(house: House) -> None:
    async with house.served() as gateway:
        offered = await gateway.admission.pairing.offer_owner()
        old = (house.home / TOKEN_NAME).read_text().strip()
        pepper = (house.home / PEPPER_NAME).read_bytes()
    async with house.served(secret=SECRET.hex()) as gateway:
        assert not await is_operator(gateway, old)
        assert await is_operator(gateway, token_of(SECRET))
        assert hash_code(offered, await gateway.linking._pepper()) != hash_code(offered, pepper)
    assert (house.home / TOKEN_NAME).read_text().strip() == old
    async with house.served() as gateway:
        assert await is_operator(gateway, old), "without the secret they count again"


@pytest.mark.parametrize(("then", "is_known"), [(SECRET, True), (ANOTHER, False)], ids=["the same", "another"])
async def test_a_browser_stays_signed_in_for_as_long_as_the_secret_is_the_same(
    house: House, then: bytes, *, is_known: bool
) -> None:
    async with house.served(secret=SECRET.hex()) as gateway:
        cookie = await auth(gateway).sign_ins.begin("Firefox/140")
        name = auth(gateway).cookie_name
    async with house.served(secret=base64.b64encode(then).decode()) as gateway, browser(gateway) as client:
        answer = await client.get("/health", headers={"cookie": f"{name}={cookie}"})
        assert ("channels" in answer.text) is is_known
        assert (auth(gateway).cookie_name == name) is is_known


async def test_an_owner_s_code_is_good_on_the_next_worker_with_the_same_secret_only(house: House) -> None:
    async with house.gateway(secret=SECRET.hex(), fake={"access": "pairing"}) as (gateway, _):
        code = await gateway.admission.pairing.offer_owner()
    async with house.gateway(secret=ANOTHER.hex(), fake={"access": "pairing"}) as (_, channel):
        assert "This is not the code" in await claimed(channel, code, "7")
    async with house.gateway(secret=SECRET.hex(), fake={"access": "pairing"}) as (_, channel):
        assert "You are an owner" in await claimed(channel, code, "8")


async def test_the_unix_socket_asks_for_no_token_with_a_secret_too(house: House) -> None:
    async with house.served(secret=SECRET.hex()), AsyncEthos(home=house.home, max_retries=0) as client:
        assert (await client.system.health()).is_ready


async def test_another_secret_waits_for_a_restart(house: House) -> None:
    async with house.served(secret=SECRET.hex()) as gateway:
        text = (house.home / "config.yaml").read_text()
        (house.home / "config.yaml").write_text(text.replace(SECRET.hex(), ANOTHER.hex()))
        done = await gateway.reloading.reload()
        assert (done.at_once, done.at_restart) == ((), ("secret",))
        assert await is_operator(gateway, token_of(SECRET))
        assert not await is_operator(gateway, token_of(ANOTHER))
