"""Channels by HTTP: the kinds, a login tried, and channels added, changed, paused, tested and removed."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.app.gateway import Gateway
from gateway.messages import ConversationRef, OutboundMessage
from gateway.services import channels as service
from tests.adapters.telegram.fake_telegram import TOKEN, FakeTelegram
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House

from .conftest import WAIT_S

OTHER_TOKEN = "999999:AAH-canary_of_another_token_012345"


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    fake = FakeTelegram()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with House(tmp_path / "home").served(model=None) as gateway:
        await gateway.supervisor.all_tried.wait()
        yield gateway


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    assert gateway.web is not None
    headers = {"authorization": f"Bearer {(gateway.home / 'web-token').read_text().strip()}"}
    base_url = gateway.web.url + "api/v1"
    async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=WAIT_S) as client:
        yield client


def login(telegram: FakeTelegram, **more: Any) -> dict[str, Any]:
    return {"kind": "telegram", "settings": {"token": TOKEN, "api_url": telegram.url, "poll_timeout_s": 1, **more}}


def written(gateway: Gateway) -> Any:
    return yaml.safe_load((gateway.home / "config.yaml").read_text())["channels"]


async def state(client: httpx.AsyncClient, name: str, wanted: str) -> dict[str, Any]:
    """Wait until a channel has this state."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found: dict[str, Any] = (await client.get(f"/channels/{name}")).json()
            if found["state"] == wanted:
                return found
            await asyncio.sleep(0.02)


async def test_the_kinds_are_listed_without_loading_one_and_one_is_shown_with_keys_and_steps(
    client: httpx.AsyncClient,
) -> None:
    kinds = (await client.get("/channels/kinds")).json()["items"]
    assert [kind["kind"] for kind in kinds] == ["discord", "email", "slack", "telegram", "webhook"]
    assert all(kind["title"] and kind["summary"] for kind in kinds)
    found = (await client.get("/channels/kinds/telegram")).json()
    assert found["canTry"]
    assert found["keys"][0] == {
        "name": "token", "description": "the bot's token, from @BotFather", "type": "secret", "choices": [],
        "default": None, "isRequired": True, "isCommon": True,
    }  # fmt: skip
    assert [key["name"] for key in found["keys"] if key["isCommon"]] == ["token"]
    assert found["steps"][0]["title"] == "Make a bot"
    assert found["then"]
    mail = (await client.get("/channels/kinds/email")).json()["keys"]
    assert {"oauth.client_id": "text", "oauth.refresh_token": "secret"}.items() <= {
        key["name"]: key["type"] for key in mail
    }.items()
    assert (await client.get("/channels/kinds/carrier_pigeon")).status_code == 404


async def test_a_kind_whose_library_is_missing_says_what_to_run(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "is_installed", lambda kind: kind != "slack")
    kinds = {kind["kind"]: kind["install"] for kind in (await client.get("/channels/kinds")).json()["items"]}
    assert "'slack-bolt<2,>=1.30'" in kinds["slack"]
    assert kinds["telegram"] is None


async def test_a_login_is_tried_and_nothing_is_written(
    client: httpx.AsyncClient, gateway: Gateway, telegram: FakeTelegram
) -> None:
    before = (gateway.home / "config.yaml").read_bytes()
    tried = (await client.post("/channels/try", json=login(telegram))).json()
    assert (tried["isTaken"], tried["account"]) == (True, "@ethos_test_bot")
    assert tried["address"] == "https://t.me/ethos_test_bot"
    refused = (await client.post("/channels/try", json=login(telegram, token=OTHER_TOKEN))).json()
    assert (refused["isTaken"], refused["account"]) == (False, None)
    assert "@BotFather" in refused["problems"][0]
    assert "canary" not in str(refused)
    assert (gateway.home / "config.yaml").read_bytes() == before
    assert not (gateway.home / "secrets").exists() or not list((gateway.home / "secrets").iterdir())


async def test_what_is_wrong_is_said_by_its_key_without_the_secret(
    client: httpx.AsyncClient, telegram: FakeTelegram
) -> None:
    wrong = await client.post("/channels/try", json=login(telegram, poll_timeout_s=99, tokn="canary"))
    assert wrong.status_code == 422
    said = {one["where"]: one["problem"] for one in wrong.json()["errors"]}
    assert said.keys() == {"body.settings.poll_timeout_s", "body.settings.tokn"}
    assert "canary" not in wrong.text
    assert (await client.post("/channels/try", json={"kind": "no such"})).status_code == 404
    assert (await client.post("/channels/try", json={"kind": "tests.fake_channel"})).status_code == 409


async def test_a_channel_is_added_connected_paused_resumed_changed_and_removed(
    client: httpx.AsyncClient, gateway: Gateway, telegram: FakeTelegram
) -> None:
    before = written(gateway)
    added = await client.post("/channels", json={"name": "phone", **login(telegram, access="owner")})
    assert added.status_code == 200, added.text
    assert added.json()["isInUse"]
    up = await state(client, "phone", "up")
    assert (up["kind"], up["access"], up["error"]) == ("telegram", "owner", None)
    assert up["settings"]["token"] == {"file": "secrets/channels-phone-token"}
    secret = gateway.home / "secrets" / "channels-phone-token"
    assert secret.read_text().strip() == TOKEN
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert TOKEN not in (gateway.home / "config.yaml").read_text()

    again = await client.post("/channels", json={"name": "phone", **login(telegram)})
    assert again.status_code == 422
    assert "there is a channel of this name already" in again.text
    twice = await client.post("/channels", json={"name": "other", **login(telegram)})
    assert twice.status_code == 422
    assert "has the same login or secret as the channel" in twice.text

    tested = (await client.post("/channels/phone/test")).json()
    assert (tested["isTaken"], tested["account"]) == (True, "@ethos_test_bot")

    assert (await client.post("/channels/phone/pause")).json()["isInUse"]
    assert (await client.get("/channels/phone")).json()["state"] == "paused"
    assert written(gateway)["phone"]["enabled"] is False
    assert (await client.post("/channels/phone/test")).json()["isTaken"], "also while it is paused"
    await client.post("/channels/phone/resume")
    await state(client, "phone", "up")

    changed = await client.patch("/channels/phone", json={"settings": {"markup": "plain", "access": None}})
    assert changed.status_code == 200, changed.text
    now = await state(client, "phone", "up")
    assert (now["settings"]["markup"], now["access"]) == ("plain", "pairing")
    assert now["settings"]["token"] == {"file": "secrets/channels-phone-token"}
    wrong = await client.patch("/channels/phone", json={"settings": {"markup": "blink"}})
    assert wrong.status_code == 422
    assert written(gateway)["phone"]["markup"] == "plain"

    removed = (await client.delete("/channels/phone")).json()
    assert (removed["isInUse"], removed["dropped"]) == (True, 0)
    assert written(gateway) == before
    for answer in (await client.get("/channels/phone"), await client.delete("/channels/phone")):
        assert answer.status_code == 404
        assert "there is no channel 'phone' in config.yaml; there are: fake" in answer.text


async def test_a_login_of_a_channel_that_is_there_is_tried_with_what_is_different(
    client: httpx.AsyncClient, telegram: FakeTelegram
) -> None:
    await client.post("/channels", json={"name": "phone", **login(telegram)})
    body = {"kind": "telegram", "channel": "phone", "settings": {"markup": "plain"}}
    assert (await client.post("/channels/try", json=body)).json()["account"] == "@ethos_test_bot"
    body["settings"] = {"token": OTHER_TOKEN}
    assert not (await client.post("/channels/try", json=body)).json()["isTaken"]
    assert (await client.get("/channels/phone")).json()["settings"]["token"] == {"file": "secrets/channels-phone-token"}


async def test_what_waits_is_said_and_kept_or_dropped_with_the_channel(
    client: httpx.AsyncClient, gateway: Gateway
) -> None:
    await client.post("/channels/fake/pause")
    for number in range(2):
        place = ConversationRef(channel="fake", conversation=f"c{number}")
        await gateway.outbox.post(OutboundMessage(id=f"note-{number}", conversation=place, text="later"))
    assert (await client.get("/channels/fake")).json()["waitingOut"] == 2
    entry = written(gateway)["fake"]
    assert (await client.delete("/channels/fake")).json()["dropped"] == 0
    settings = {key: value for key, value in entry.items() if key not in ("kind", "enabled")}
    await client.post("/channels", json={"name": "fake", "kind": entry["kind"], "settings": settings})
    await state(client, "fake", "up")
    adapter = gateway.channels.find("fake")
    assert isinstance(adapter, FakeChannel)
    await adapter.until(lambda: len(adapter.sent) == 2)  # what was kept goes out through the channel of the same name

    await client.post("/channels/fake/pause")
    await gateway.outbox.post(
        OutboundMessage(id="last", conversation=ConversationRef(channel="fake", conversation="c0"), text="never")
    )
    assert (await client.delete("/channels/fake", params={"dropWaiting": True})).json()["dropped"] == 1


async def test_no_key_sees_or_changes_channels(client: httpx.AsyncClient) -> None:
    key = (await client.post("/keys", json={"name": "all", "scopes": ["system:read"]})).json()["key"]
    for method, path in (("GET", "/channels"), ("GET", "/channels/kinds"), ("DELETE", "/channels/fake")):
        answer = await client.request(method, path, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 403, path


BAD_PACKAGE = """
from pydantic import BaseModel, SecretStr

class Config(BaseModel):
    token: SecretStr

async def trial(config):
    raise RuntimeError(f"nothing at https://telex.example/{config.token.get_secret_value()}")

def build(config, services):
    raise NotImplementedError
"""


async def test_a_package_whose_trial_breaks_shows_and_logs_no_secret(
    client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "acme_bad").mkdir()
    (tmp_path / "acme_bad" / "__init__.py").touch()
    (tmp_path / "acme_bad" / "telex.py").write_text(BAD_PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    body = {"kind": "acme_bad.telex", "settings": {"token": "canary-of-a-token"}}
    tried = await client.post("/channels/try", json=body)
    assert tried.json()["problems"] == ["the package acme_bad.telex is faulty (RuntimeError); see the log"]
    assert "RuntimeError: nothing at https://telex.example/***" in caplog.text
    assert "canary" not in caplog.text + tried.text
