"""`/settings`: every key is listed with what it may be; changes are previewed, saved, refused and undone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.way.conftest import House

from .conftest import WAIT_S

CANARY = "canary-that-nobody-sees"
MODELS = {"big": {"provider": "openai", "model": "m", "api_key": CANARY}}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with House(tmp_path / "home").served(models=MODELS, limits={"steps_per_turn": 3}) as gateway:
        headers = {"authorization": f"Bearer {(gateway.home / 'web-token').read_text().strip()}"}
        base_url = gateway.web.url + "api/v1"
        async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=WAIT_S) as client:
            yield client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "config.yaml"


async def listed(client: httpx.AsyncClient) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    answer = await client.get("/settings")
    assert answer.status_code == 200, answer.text
    assert CANARY not in answer.text
    return answer.json(), {one["key"]: one for one in answer.json()["settings"]}


async def test_every_key_is_listed_with_what_it_is_for_and_may_be(client: httpx.AsyncClient) -> None:
    found, settings = await listed(client)
    steps = settings["limits.steps_per_turn"]
    assert (steps["value"], steps["default"], steps["isSet"], steps["atRestart"]) == (3, 12, True, False)
    assert (steps["control"], steps["atLeast"], steps["atMost"], steps["isWhole"]) == ("number", 1, 1000, True)
    assert steps["group"] == "Limits" in found["groups"]
    assert steps["text"].startswith("Model calls in one turn")
    assert settings["log.level"]["choices"] == ["debug", "info", "warning", "error"]
    assert settings["model"]["choices"] == ["offline", "big"]
    key = settings["models.big.api_key"]
    assert (key["control"], key["value"], key["isSet"]) == ("secret", None, True)
    assert [one for one in settings.values() if not one["text"] and not one["key"].startswith("channels.")] == []
    assert [one for one in settings.values() if one["group"] not in found["groups"]] == []


async def test_changes_are_previewed_saved_in_force_and_undone(client: httpx.AsyncClient, path: Path) -> None:
    before = path.read_text()
    version = (await listed(client))[0]["version"]
    changes = [
        {"key": "limits.steps_per_turn", "value": 5},
        {"key": "limits.running_turns", "text": "9"},
        {"key": "models.big.api_key", "secret": "canary-new"},
    ]
    seen = (await client.post("/settings/propose", json={"changes": changes})).json()
    assert (seen["version"], seen["problems"], path.read_text()) == (version, [], before)
    assert set(seen["atOnce"]) == {"models.big", "limits.steps_per_turn"}
    assert seen["atRestart"] == ["limits.running_turns"]
    assert "canary" not in seen["difference"]
    saved = await client.patch("/settings", json={"version": version, "changes": changes})
    assert saved.status_code == 200, saved.text
    assert (saved.json()["isInUse"], saved.json()["difference"]) == (True, seen["difference"])
    assert "canary" not in saved.text
    assert (path.parent / "secrets" / "models-big-api_key").read_text() == "canary-new\n"
    config = (await client.get("/system/config")).json()["values"]
    assert (config["limits"]["steps_per_turn"], config["limits"]["running_turns"]) == (5, 64)
    found, _ = await listed(client)
    assert (found["atRestart"], found["canUndo"]) == (["limits.running_turns"], True)
    assert "-  running_turns: 9" in (await client.get("/settings/undo")).json()["difference"]
    late = await client.patch("/settings", json={"version": version, "changes": changes[:1]})
    assert (late.status_code, late.json()["title"]) == (409, "Conflict")
    undone = await client.post("/settings/undo", json={"version": found["version"]})
    assert undone.status_code == 200, undone.text
    assert path.read_text() == before
    assert (await client.get("/system/config")).json()["values"]["limits"]["steps_per_turn"] == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": "web.port", "value": 99_999}, "web.port: 99999 is too large"),
        ({"key": "web.prot", "value": 1}, "did you mean `port`?"),
        ({"key": "models.big", "isRemoved": True, "value": 1}, "give one of"),
        ({"key": "a..b", "value": 1}, "is not a key"),
        ({"key": "models.x.provider", "text": "none"}, "models.x.provider: 'none' is not a choice"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_written(
    client: httpx.AsyncClient, path: Path, change: dict[str, Any], said: str
) -> None:
    before = path.read_text()
    answer = await client.patch("/settings", json={"changes": [change]})
    assert answer.status_code == 422
    assert said in answer.text
    assert path.read_text() == before
    assert not path.with_name("config.yaml.before").exists()


async def test_no_key_opens_the_settings(client: httpx.AsyncClient) -> None:
    scopes = ["system:read", "people:write", "memory:write"]
    key = (await client.post("/keys", json={"name": "all", "scopes": scopes})).json()["key"]
    headers = {"authorization": f"Bearer {key}"}
    body = {"changes": [{"key": "model", "value": "big"}]}
    answers = [
        await client.get("/settings", headers=headers),
        await client.post("/settings/propose", json=body, headers=headers),
        await client.patch("/settings", json=body, headers=headers),
        await client.post("/settings/undo", headers=headers),
        await client.post("/settings/restart", headers=headers),
    ]
    assert [answer.status_code for answer in answers] == [403] * 5


async def test_there_is_nothing_to_undo_and_nothing_to_restart(client: httpx.AsyncClient) -> None:
    assert "there is nothing to undo" in (await client.post("/settings/undo")).text
    assert (await client.get("/settings/undo")).status_code == 409
    refused = await client.post("/settings/restart")
    assert refused.status_code == 409
    assert "was not started by `ethos serve`" in refused.text
