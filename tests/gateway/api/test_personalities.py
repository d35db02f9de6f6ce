"""Personalities by HTTP: made, read, changed by whoever has read the last version, and checked before they count."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable

import httpx

from gateway.app import Gateway

from .conftest import OPERATOR

SETTINGS = "name: Pirate\ndescription: Speaks like one.\n"


async def made(api: httpx.AsyncClient) -> httpx.Response:
    return await api.post("/personalities", json={"id": "pirate", "name": "Pirate", "description": "Arr."})


async def test_all_are_listed_and_a_broken_one_with_its_reason(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    directory = gateway.home / "personalities" / "broken"
    directory.mkdir(parents=True)
    (directory / "SOUL.md").write_text("You are broken.\n")
    (directory / "personality.yaml").write_text("name: x\ntraits:\n  openness: 7\n")
    found = {one["id"]: one for one in (await operator_api.get("/personalities")).json()["items"]}
    assert set(found) == {"assistant", "engineer", "researcher", "broken"}
    assert found["assistant"]["source"] == "built-in"
    assert found["broken"]["problem"].startswith("personalities/broken/personality.yaml:3:13: traits.openness:")


async def test_a_new_one_can_be_chosen_at_once_and_is_private(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    response = await made(operator_api)
    assert response.status_code == 201
    assert response.headers["location"] == "/api/v1/personalities/pirate"
    assert response.headers["etag"] == f'"{response.json()["version"]}"'
    assert gateway.personalities.get("pirate").name == "Pirate"
    directory = gateway.home / "personalities" / "pirate"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE((directory / name).stat().st_mode) for name in ("SOUL.md", "personality.yaml")} == {0o600}

    again = await made(operator_api)
    assert (again.status_code, again.json()["type"]) == (409, "urn:ethos:problem:not-possible")
    built_in = await operator_api.post("/personalities", json={"id": "assistant"})
    assert (built_in.status_code, "copy it onto itself" in built_in.json()["detail"]) == (409, True)
    assert (await operator_api.post("/personalities", json={"id": "x", "copyOf": "nobody"})).status_code == 404
    assert (await operator_api.post("/personalities", json={"id": "../x"})).status_code == 422


async def test_a_built_in_one_is_copied_to_be_changed_and_then_answers_as_changed(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    before = (await operator_api.get("/personalities/assistant")).json()
    assert before["isOwn"] is False
    copy = await operator_api.post("/personalities", json={"id": "assistant", "copyOf": "assistant"})
    assert copy.json()["isOwn"] is True
    body = {"soul": "You speak in rhymes.", "settings": copy.json()["settings"]}
    changed = await operator_api.put("/personalities/assistant", json=body, headers={"if-match": copy.headers["etag"]})
    assert changed.status_code == 200
    assert gateway.personalities.get("assistant").prompt == "You speak in rhymes."


async def test_a_version_that_is_known_is_not_sent_again(operator_api: httpx.AsyncClient) -> None:
    first = await operator_api.get("/personalities/engineer")
    again = await operator_api.get("/personalities/engineer", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await operator_api.get("/personalities/nobody")).status_code == 404


async def test_of_two_who_write_at_once_one_is_told_what_the_other_wrote(operator_api: httpx.AsyncClient) -> None:
    version = (await made(operator_api)).json()["version"]
    bodies = [{"soul": f"You are {word}.", "settings": SETTINGS, "expectedVersion": version} for word in ("A", "B")]
    answers = await asyncio.gather(*(operator_api.put("/personalities/pirate", json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    [won] = [answer for answer in answers if answer.status_code == 200]
    [lost] = [answer for answer in answers if answer.status_code == 409]
    assert lost.json()["type"] == "urn:ethos:problem:conflict"
    assert lost.json()["current"]["soul"] == won.json()["soul"]
    assert lost.json()["current"]["version"] == won.json()["version"]


async def test_a_write_says_which_version_it_read(operator_api: httpx.AsyncClient) -> None:
    await made(operator_api)
    body = {"soul": "You.", "settings": SETTINGS}
    assert (await operator_api.put("/personalities/pirate", json=body)).status_code == 428
    unquoted = await operator_api.put("/personalities/pirate", json=body, headers={"if-match": "x"})
    assert unquoted.status_code == 412


async def test_what_is_not_valid_is_named_with_file_line_and_column_and_not_written(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    version = (await made(operator_api)).json()["version"]
    body = {
        "soul": " \n",
        "settings": "name: Pirate\ntraits:\n  openness: 7\ncolour: red\n",
        "expectedVersion": version,
    }
    response = await operator_api.put("/personalities/pirate", json=body)
    assert response.status_code == 422
    errors = {one["where"]: one["problem"] for one in response.json()["errors"]}
    assert set(errors) == {"SOUL.md:1:1", "personality.yaml:3:13", "personality.yaml:4:1"}
    assert errors["personality.yaml:3:13"].startswith("traits.openness:")
    assert gateway.personalities.get("pirate").description == "Arr."
    assert (await operator_api.get("/personalities/pirate")).json()["version"] == version


async def test_a_key_reads_or_writes_as_its_scopes_say_and_one_person_sees_only_the_list(
    gateway: Gateway, client_with: Callable[[str | None], httpx.AsyncClient], ada: str
) -> None:
    assert gateway.web is not None
    keys = gateway.web.api.desks.keys
    async with client_with((await keys.create(OPERATOR, "reads", ["personalities:read"])).key) as client:
        assert (await client.get("/personalities/assistant")).status_code == 200
        assert (await made(client)).status_code == 403
    async with client_with((await keys.create(OPERATOR, "ada's", ["personalities:read"], ada)).key) as client:
        assert len((await client.get("/personalities")).json()["items"]) == 3
        assert (await client.get("/personalities/assistant")).status_code == 403, "a prompt is the operator's"
