"""A login is tried without a channel: who it is, and what is missing, in words for people."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapters.telegram import Config, trial
from gateway.errors import AdapterAuthFailed
from gateway.protocols import Trial
from tests.adapters.telegram.fake_telegram import TOKEN, FakeTelegram
from tests.adapters.telegram.harness import WEBHOOK_URL


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    fake = FakeTelegram()
    await fake.start()
    yield fake
    await fake.stop()


async def tried(fake: FakeTelegram, **keys: object) -> Trial:
    return await trial(Config.model_validate({"token": TOKEN, "api_url": fake.url, **keys}))


async def test_it_names_the_bot_its_link_and_what_it_reads_in_groups(fake: FakeTelegram) -> None:
    found = await tried(fake)
    assert (found.account, found.address) == ("@ethos_test_bot", "https://t.me/ethos_test_bot")
    assert found.problems == ()
    assert "privacy mode is on" in found.hints[0]
    assert {name for name, _ in fake.calls} == {"getMe", "getWebhookInfo"}, "nothing is changed"


@pytest.mark.parametrize(
    ("abilities", "words"),
    [({"can_read_all_group_messages": True}, "privacy mode is off"), ({"can_join_groups": False}, "/setjoingroups")],
    ids=["without privacy mode", "not for groups"],
)
async def test_it_says_what_botfather_was_told_about_groups(
    fake: FakeTelegram, abilities: dict[str, bool], words: str
) -> None:
    fake.abilities |= abilities
    assert words in (await tried(fake)).hints[0]


async def test_it_warns_of_another_program_that_would_lose_its_messages(fake: FakeTelegram) -> None:
    fake.webhook = {"url": "https://shop.example/bot?key=canary"}
    (problem,) = (await tried(fake)).problems
    assert "shop.example" in problem
    assert "canary" not in problem
    assert fake.webhook["url"], "it is still set"


async def test_it_says_why_telegram_cannot_call_the_gateway(fake: FakeTelegram) -> None:
    fake.webhook = {"url": f"{WEBHOOK_URL}/phone/updates"}
    assert (await tried(fake, webhook_url=WEBHOOK_URL)).problems == ()
    fake.webhook_error = "SSL error {error:0A000086:SSL routines::certificate verify failed}"
    assert "certificate verify failed" in (await tried(fake, webhook_url=WEBHOOK_URL)).problems[0]


@pytest.mark.parametrize("token", ["no token at all", "999999:AAH-somebody_elses_token_0123456789"])
async def test_a_token_that_telegram_does_not_know_is_refused_with_what_to_do(fake: FakeTelegram, token: str) -> None:
    with pytest.raises(AdapterAuthFailed, match="@BotFather") as caught:
        await tried(fake, token=token)
    assert token not in str(caught.value)
