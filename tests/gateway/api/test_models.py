"""`/models`: which there are, what servers offer, what one answers, and how one is added, changed, used and removed."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.app.gateway import Gateway
from tests.model_formats import Failure
from tests.model_server import ModelServer

KEY = "canary-of-the-key"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


def in_file(gateway: Gateway) -> Any:
    return yaml.safe_load((gateway.home / "config.yaml").read_text())


def kept_keys(home: Path) -> list[str]:
    place = home / "secrets"
    found = sorted(place.iterdir()) if place.is_dir() else []
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} <= {0o600}
    return [path.read_text().strip() for path in found]


async def posted(api: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await api.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(api: httpx.AsyncClient, path: str, status: int, **body: Any) -> Any:
    answer = await api.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_the_offline_model_is_listed_and_answers_when_it_is_tested(operator_api: httpx.AsyncClient) -> None:
    [offline] = (await operator_api.get("/models")).json()["items"]
    assert (offline["name"], offline["provider"], offline["isDefault"]) == ("offline", "offline", True)
    assert (offline["state"], offline["hasKey"], offline["usedBy"]) == ("unknown", False, [])
    trial = await posted(operator_api, "/models/offline/test")
    assert trial["isAnswered"]
    assert trial["costUsd"] == 0
    assert (await operator_api.get("/models")).json()["items"][0]["state"] == "up"


async def test_a_server_says_what_it_offers_at_the_address_that_it_completes(
    operator_api: httpx.AsyncClient, server: ModelServer
) -> None:
    offered = await posted(operator_api, "/models/offers", baseUrl=server.url)
    assert offered == {"baseUrl": server.openai_url, "models": ["echo-1", "echo-2"]}
    offered = await posted(operator_api, "/models/offers", provider="anthropic", baseUrl=server.url, apiKey=KEY)
    assert offered == {"baseUrl": server.url, "models": ["echo-1", "echo-2"]}
    assert (await posted(operator_api, "/models/offers", baseUrl=f"{server.url}/api"))["models"] is None


async def test_a_model_that_is_tried_says_what_it_answered_how_long_it_took_and_what_it_cost(
    operator_api: httpx.AsyncClient, gateway: Gateway, server: ModelServer
) -> None:
    before = (gateway.home / "config.yaml").read_text()
    trial = await posted(operator_api, "/models/try", baseUrl=server.url, model="echo-1", apiKey=KEY)
    assert trial["isAnswered"]
    assert trial["text"] == "You said: Say hello in one word."
    assert trial["baseUrl"] == server.openai_url
    assert trial["durationS"] > 0
    assert trial["inputTokens"] > 0
    assert trial["outputTokens"] > 0
    assert trial["costUsd"] is None, "nobody knows what a server of one's own asks"
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert (gateway.home / "config.yaml").read_text() == before


@pytest.mark.parametrize(
    ("status", "about", "says"),
    [
        (401, "api_key", "The API key was refused (HTTP 401). Type the key again"),
        (404, "model", "There is no model 'echo-9'"),
        (402, None, "quota or credit is used up (HTTP 402)"),
    ],
)
async def test_a_model_that_does_not_answer_says_which_value_is_most_likely_wrong(
    operator_api: httpx.AsyncClient, server: ModelServer, status: int, about: str | None, says: str
) -> None:
    server.script([Failure(status=status)])
    trial = await posted(operator_api, "/models/try", baseUrl=server.url, model="echo-9", apiKey=KEY)
    assert (trial["isAnswered"], trial["text"], trial["about"]) == (False, "", about)
    assert says in trial["error"]
    assert KEY not in str(trial)


async def test_a_name_that_the_server_does_not_have_is_answered_with_the_nearest(
    operator_api: httpx.AsyncClient, server: ModelServer
) -> None:
    server.script([Failure(status=404)])
    trial = await posted(operator_api, "/models/try", baseUrl=server.url, model="echo_1")
    assert trial["error"].endswith("Choose another model (did you mean `echo-1`?).")


async def test_a_server_that_is_down_and_an_address_that_is_none_are_wrong_addresses(
    operator_api: httpx.AsyncClient, server: ModelServer
) -> None:
    async with ModelServer() as gone:
        url = gone.url
    trial = await posted(operator_api, "/models/try", baseUrl=url, model="any")
    assert trial["about"] == "base_url"
    assert f"The connection to {url}/v1 failed" in trial["error"]
    assert "Start the server, or correct the address." in trial["error"]
    trial = await posted(operator_api, "/models/try", baseUrl=f"{server.url}/api", model="echo-1")
    assert trial["about"] == "base_url"
    assert "most end in /v1" in trial["error"]
    problem = await refused(operator_api, "/models/try", 422, baseUrl="ftp://here", model="any")
    assert [one["where"] for one in problem["errors"]] == ["body.baseUrl"]
    problem = await refused(operator_api, "/models/offers", 422, baseUrl=url)
    assert [one["where"] for one in problem["errors"]] == ["body.baseUrl"]


async def test_a_key_that_is_missing_or_cannot_be_one_is_refused_before_anybody_is_asked(
    operator_api: httpx.AsyncClient, server: ModelServer
) -> None:
    for values, says in (
        ({"provider": "anthropic", "model": "claude"}, "missing"),
        ({"model": "gpt"}, "missing"),
        ({"baseUrl": server.url, "model": "echo-1", "apiKey": "schlüssel"}, "no key has"),
        ({"baseUrl": server.url, "model": "echo-1", "apiKey": "${NOT_HERE_AT_ALL}"}, "no variable NOT_HERE_AT_ALL"),
    ):
        problem = await refused(operator_api, "/models/try", 422, **values)
        assert [one["where"] for one in problem["errors"]] == ["body.apiKey"]
        assert says in problem["errors"][0]["problem"]
    assert server.requests == []


async def test_a_model_is_added_with_its_key_in_a_file_and_answers_from_then_on(
    operator_api: httpx.AsyncClient, gateway: Gateway, server: ModelServer
) -> None:
    new = {"name": "main", "model": "echo-1", "baseUrl": server.url, "apiKey": KEY, "isDefault": True}
    change = await posted(operator_api, "/models", **new)
    assert (change["model"], change["isInUse"]) == ("main", True)
    file = in_file(gateway)
    key = file["models"]["main"].pop("api_key")
    assert file["model"] == "main"
    assert file["models"] == {"main": {"provider": "openai", "model": "echo-1", "base_url": server.openai_url}}
    assert kept_keys(gateway.home) == [KEY]
    assert (gateway.home / key["file"]).read_text().strip() == KEY
    listed = {one["name"]: one for one in (await operator_api.get("/models")).json()["items"]}
    assert (listed["main"]["isDefault"], listed["main"]["hasKey"]) == (True, True)
    assert KEY not in str(listed)
    assert gateway.models.current.get(None).name == "main"
    assert (await posted(operator_api, "/models/main/test"))["isAnswered"]
    problem = await refused(operator_api, "/models", 422, **new)
    assert [one["where"] for one in problem["errors"]] == ["body.name"]


async def test_a_key_may_be_a_variable_of_the_gateway(
    operator_api: httpx.AsyncClient, gateway: Gateway, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_A_TEST", KEY)
    new = {"name": "main", "model": "echo-1", "baseUrl": server.url, "apiKey": "${KEY_OF_A_TEST}"}
    await posted(operator_api, "/models", **new)
    assert in_file(gateway)["models"]["main"]["api_key"] == "${KEY_OF_A_TEST}"
    assert kept_keys(gateway.home) == []
    await posted(operator_api, "/models/main/test")
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_a_model_is_changed_and_its_key_goes_to_no_other_address(
    operator_api: httpx.AsyncClient, gateway: Gateway, server: ModelServer
) -> None:
    new = {"name": "main", "model": "echo-1", "baseUrl": server.openai_url, "apiKey": KEY}
    await posted(operator_api, "/models", **new)
    same = {"baseUrl": server.openai_url, "keyOf": "main"}
    trial = await posted(operator_api, "/models/try", **same, model="echo-2")
    assert trial["isAnswered"]
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    answer = await operator_api.put("/models/main", json={**same, "model": "echo-2"})
    assert answer.status_code == 200, answer.text
    assert in_file(gateway)["models"]["main"]["model"] == "echo-2"
    assert "api_key" in in_file(gateway)["models"]["main"]
    asked = len(server.requests)
    for method, path in (("POST", "/models/try"), ("PUT", "/models/main")):
        elsewhere = {"baseUrl": f"{server.url}/v2", "keyOf": "main", "model": "echo-2"}
        answer = await operator_api.request(method, path, json=elsewhere)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["where"] == "body.apiKey"
    assert len(server.requests) == asked
    answer = await operator_api.put("/models/main", json={"baseUrl": server.openai_url, "model": "echo-1"})
    assert answer.status_code == 200, answer.text
    assert "api_key" not in in_file(gateway)["models"]["main"], "no key was said, so there is none"


async def test_what_is_in_use_is_not_removed_and_all_else_is(
    operator_api: httpx.AsyncClient, gateway: Gateway, server: ModelServer
) -> None:
    before = (gateway.home / "config.yaml").read_text()
    await posted(operator_api, "/models", name="main", model="echo-1", baseUrl=server.url)
    await posted(operator_api, "/models", name="second", model="echo-2", baseUrl=server.url)
    await posted(operator_api, "/models/main/use")
    answer = await operator_api.delete("/models/main")
    assert (answer.status_code, "the default" in answer.text) == (409, True)
    assert (await operator_api.delete("/models/offline")).status_code == 409
    await posted(operator_api, "/models/second/use")
    assert (await operator_api.delete("/models/main")).status_code == 200
    assert list(in_file(gateway)["models"]) == ["second"]
    await posted(operator_api, "/models/offline/use")
    assert (await operator_api.delete("/models/second")).status_code == 200
    left = in_file(gateway)
    assert left.pop("model") == "offline"
    assert not left.pop("models", None)
    assert left == yaml.safe_load(before)


async def test_there_is_no_such_model(operator_api: httpx.AsyncClient) -> None:
    assert (await operator_api.post("/models/nobody/test")).status_code == 404
    assert (await operator_api.post("/models/nobody/use")).status_code == 404
    assert (await operator_api.delete("/models/nobody")).status_code == 404
    answer = await operator_api.put("/models/nobody", json={"model": "echo-1", "baseUrl": "http://127.0.0.1:1/v1"})
    assert answer.status_code == 404
    await refused(operator_api, "/models/try", 404, model="echo-1", keyOf="nobody")


async def test_a_configured_model_that_fails_is_down_and_says_why(
    operator_api: httpx.AsyncClient, server: ModelServer
) -> None:
    await posted(operator_api, "/models", name="main", model="echo-1", baseUrl=server.url)
    server.script([Failure(status=401)])
    trial = await posted(operator_api, "/models/main/test")
    assert (trial["isAnswered"], trial["about"]) == (False, "api_key")
    found = {one["name"]: one for one in (await operator_api.get("/models")).json()["items"]}
    assert found["main"]["state"] == "down"
    assert "the API key is missing (HTTP 401)" in found["main"]["error"]
