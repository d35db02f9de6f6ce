"""Personalities by HTTP: what is written is valid, and nobody writes over another's edit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from gateway.app import Gateway

from .conftest import OPERATOR


async def test_the_built_in_ones_are_listed_and_shown_with_their_texts(operator_api: httpx.AsyncClient) -> None:
    items = (await operator_api.get("/personalities")).json()["items"]
    assert [one["id"] for one in items] == ["assistant", "engineer", "researcher"]
    assert {one["source"] for one in items} == {"built-in"}
    response = await operator_api.get("/personalities/engineer")
    found = response.json()
    assert found["id"] == "engineer"
    assert found["soul"].strip()
    assert response.headers["etag"] == f'"{found["version"]}"'
    assert (await operator_api.get("/personalities/nobody")).status_code == 404


async def test_one_is_made_changed_and_answers(gateway: Gateway, operator_api: httpx.AsyncClient) -> None:
    made = await operator_api.post("/personalities", json={"id": "cook", "name": "Cook", "copyOf": "engineer"})
    assert made.status_code == 201
    assert (await operator_api.post("/personalities", json={"id": "cook"})).status_code == 409
    assert (await operator_api.post("/personalities", json={"id": "x", "copyOf": "nobody"})).status_code == 404
    version = made.json()["version"]
    changed = await operator_api.put(
        "/personalities/cook",
        json={"expectedVersion": version, "soul": "# Cook\n\nYou cook.\n", "settings": "memory_scope: global\n"},
    )
    assert changed.status_code == 200
    assert gateway.personalities.get("cook").memory_scope == "global"
    assert gateway.personalities.get("cook").prompt == "# Cook\n\nYou cook."
    late = await operator_api.put(
        "/personalities/cook", json={"expectedVersion": version, "soul": "Other", "settings": ""}
    )
    assert late.status_code == 409
    now = changed.json()["version"]
    assert (await operator_api.post("/personalities/cook/undo", json={"expectedVersion": now})).status_code == 204
    assert gateway.personalities.get("cook").prompt != "# Cook\n\nYou cook."


@pytest.mark.parametrize(
    "change",
    [
        {"settings": "memory_scope: everywhere\n"},
        {"settings": "a: [\n"},
        {"settings": "unknown: 1\n"},
        {"soul": " \n"},
        {"soul": "a\0b"},
        {"soul": ""},
    ],
)
async def test_what_would_not_be_valid_is_refused_with_its_place(
    gateway: Gateway, operator_api: httpx.AsyncClient, change: dict[str, str]
) -> None:
    found = (await operator_api.get("/personalities/assistant")).json()
    version = found["version"]
    whole = {"soul": found["soul"], "settings": found["settings"], "expectedVersion": version}
    response = await operator_api.put("/personalities/assistant", json={**whole, **change})
    assert response.status_code == 422
    assert not (gateway.home / "personalities" / "assistant" / "SOUL.md").exists()
    assert (await operator_api.get("/personalities/assistant")).json()["version"] == version


async def test_a_built_in_one_is_overridden(gateway: Gateway, operator_api: httpx.AsyncClient) -> None:
    before = (await operator_api.get("/personalities/assistant")).json()
    body = {"expectedVersion": before["version"], "soul": "You are brief.\n", "settings": before["settings"]}
    after = (await operator_api.put("/personalities/assistant", json=body)).json()
    assert (after["soul"].strip(), before["isOwn"], after["isOwn"]) == ("You are brief.", False, True)
    assert gateway.personalities.get("assistant").prompt == "You are brief."


async def test_of_ten_edits_of_one_version_one_wins(operator_api: httpx.AsyncClient) -> None:
    version = (await operator_api.get("/personalities/assistant")).json()["version"]
    calls = [
        operator_api.put(
            "/personalities/assistant", json={"expectedVersion": version, "soul": f"You are {n}.\n", "settings": ""}
        )
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


async def test_a_person_sees_them_and_changes_none(
    gateway: Gateway, client_with: Callable[[str | None], httpx.AsyncClient], ada: str
) -> None:
    assert gateway.web is not None
    assert gateway.web.api is not None
    key = (await gateway.web.api.desks.keys.create(OPERATOR, "a", ("personalities:read",), ada)).key
    async with client_with(key) as api:
        assert len((await api.get("/personalities")).json()["items"]) == 3
        assert (await api.get("/personalities/assistant")).status_code == 403
        body = {"expectedVersion": "0" * 64, "soul": "x", "settings": ""}
        assert (await api.put("/personalities/assistant", json=body)).status_code == 403
        assert (await api.post("/personalities", json={"id": "x"})).status_code == 403
