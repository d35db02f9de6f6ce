"""Personalities by HTTP: what is written is valid, and nobody writes over another's edit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from gateway.app.gateway import Gateway

from .conftest import OPERATOR


async def test_the_built_in_ones_are_listed_and_shown_with_their_texts(operator_api: httpx.AsyncClient) -> None:
    items = (await operator_api.get("/personalities")).json()["items"]
    assert [one["id"] for one in items] == ["assistant", "engineer", "researcher"]
    assert {one["source"] for one in items} == {"built-in"}
    response = await operator_api.get("/personalities/engineer")
    found = response.json()
    assert found["personality"]["id"] == "engineer"
    assert found["prompt"].strip()
    assert response.headers["etag"] == f'"{found["version"]}"'
    assert (await operator_api.get("/personalities/nobody")).status_code == 404


async def test_one_is_made_changed_and_answers(gateway: Gateway, operator_api: httpx.AsyncClient) -> None:
    made = await operator_api.post("/personalities", json={"id": "cook", "name": "Cook", "copyOf": "engineer"})
    assert made.status_code == 201
    assert (await operator_api.post("/personalities", json={"id": "cook"})).status_code == 409
    assert (await operator_api.post("/personalities", json={"id": "x", "copyOf": "nobody"})).status_code == 404
    version = made.json()["version"]
    changed = await operator_api.patch(
        "/personalities/cook",
        json={"expectedVersion": version, "prompt": "# Cook\n\nYou cook.\n", "settings": "memory_scope: global\n"},
    )
    assert changed.status_code == 200
    assert changed.json()["personality"]["memoryScope"] == "global"
    assert gateway.personalities.get("cook").prompt == "# Cook\n\nYou cook."
    late = await operator_api.patch("/personalities/cook", json={"expectedVersion": version, "prompt": "Other"})
    assert (late.status_code, "have changed since they were read" in late.json()["detail"]) == (409, True)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": "memory_scope: everywhere\n"},
        {"settings": "a: [\n"},
        {"settings": "unknown: 1\n"},
        {"prompt": " \n"},
        {"prompt": "a\0b"},
        {"prompt": ""},
    ],
)
async def test_what_would_not_be_valid_is_refused_with_its_place(
    gateway: Gateway, operator_api: httpx.AsyncClient, change: dict[str, str]
) -> None:
    version = (await operator_api.get("/personalities/assistant")).json()["version"]
    response = await operator_api.patch("/personalities/assistant", json={"expectedVersion": version, **change})
    assert response.status_code == 422
    assert not (gateway.home / "personalities" / "assistant" / "SOUL.md").exists()
    assert (await operator_api.get("/personalities/assistant")).json()["version"] == version


async def test_a_built_in_one_is_overridden_file_by_file(gateway: Gateway, operator_api: httpx.AsyncClient) -> None:
    before = (await operator_api.get("/personalities/assistant")).json()
    body = {"expectedVersion": before["version"], "prompt": "You are brief.\n"}
    after = (await operator_api.patch("/personalities/assistant", json=body)).json()
    assert (after["prompt"], after["settings"]) == ("You are brief.\n", before["settings"])
    assert after["personality"]["source"] == "personalities/assistant"
    assert gateway.personalities.get("assistant").prompt == "You are brief."


async def test_of_ten_edits_of_one_version_one_wins(operator_api: httpx.AsyncClient) -> None:
    version = (await operator_api.get("/personalities/assistant")).json()["version"]
    calls = [
        operator_api.patch("/personalities/assistant", json={"expectedVersion": version, "prompt": f"You are {n}.\n"})
        for n in range(10)
    ]
    statuses = sorted(response.status_code for response in await asyncio.gather(*calls))
    assert statuses == [200, *[409] * 9]


async def test_a_broken_one_is_shown_with_what_is_wrong(gateway: Gateway, operator_api: httpx.AsyncClient) -> None:
    directory = gateway.home / "personalities" / "odd"
    directory.mkdir(parents=True)
    (directory / "SOUL.md").write_bytes(b"\xff")
    items = {one["id"]: one for one in (await operator_api.get("/personalities")).json()["items"]}
    assert "UTF-8" in items["odd"]["problem"]
    version = (await operator_api.get("/personalities/odd")).json()["version"]
    mended = await operator_api.patch("/personalities/odd", json={"expectedVersion": version, "prompt": "Well.\n"})
    assert mended.json()["personality"]["problem"] is None


async def test_a_person_sees_who_there_is_and_no_prompt_and_changes_none(
    gateway: Gateway, client_with: Callable[[str | None], httpx.AsyncClient], ada: str
) -> None:
    assert gateway.web.api is not None
    key = (await gateway.web.api.services.keys.create(OPERATOR, "a", ("personalities:read",), ada)).key
    async with client_with(key) as api:
        assert "assistant" in [one["id"] for one in (await api.get("/personalities")).json()["items"]]
        assert (await api.get("/personalities/assistant")).status_code == 403
        body = {"expectedVersion": "0" * 64, "prompt": "x"}
        assert (await api.patch("/personalities/assistant", json=body)).status_code == 403
        assert (await api.post("/personalities", json={"id": "x"})).status_code == 403
