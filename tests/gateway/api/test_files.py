"""Memory and personalities as files, by HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.memory import rules

from .conftest import OPERATOR

MEMORY = "personalities/assistant/MEMORY.md"


async def put(api: httpx.AsyncClient, path: str, content: str, base: str | None = None) -> httpx.Response:
    return await api.put("/files", json={"path": path, "content": content, "base": base})


async def test_a_file_is_put_listed_and_read(operator_api: httpx.AsyncClient, ada: str) -> None:
    profile = f"users/{ada}/USER.md"
    for path in (MEMORY, profile, "personalities/poet/SOUL.md"):
        assert (await put(operator_api, path, "Tea.\n")).json() == {
            "path": path,
            "content": "Tea.\n",
            "version": rules.version(b"Tea.\n"),
        }
    first = (await operator_api.get("/files", params={"limit": 2})).json()
    rest = (await operator_api.get("/files", params={"limit": 2, "cursor": first["nextCursor"]})).json()
    assert rest["nextCursor"] is None
    assert [one["path"] for one in (*first["items"], *rest["items"])] == [MEMORY, "personalities/poet/SOUL.md", profile]
    assert (await operator_api.get("/files/text", params={"path": profile})).json()["content"] == "Tea.\n"


@pytest.mark.parametrize(
    "path",
    [
        "../MEMORY.md",
        "/etc/passwd",
        "users/../../x/USER.md",
        "users/u_1/personalities/../MEMORY.md",
        "personalities/../SOUL.md",
        "personalities/a b/SOUL.md",
        "personalities/assistant/.previous/SOUL.md",
        "config.yaml",
        "users/identity-map.json",
        "MEMORY.md/",
        "x" * 300,
    ],
)
async def test_a_path_that_leads_anywhere_else_is_refused(
    gateway: Gateway, operator_api: httpx.AsyncClient, path: str
) -> None:
    before = {
        one: one.read_bytes() for one in gateway.home.rglob("*") if one.is_file() and one.suffix in (".md", ".yaml")
    }
    assert (await put(operator_api, path, "x")).status_code == 422
    assert (await operator_api.get("/files/text", params={"path": path})).status_code == 422
    after = {
        one: one.read_bytes() for one in gateway.home.rglob("*") if one.is_file() and one.suffix in (".md", ".yaml")
    }
    assert after == before


async def test_a_text_that_cannot_be_merged_comes_back_with_the_other(operator_api: httpx.AsyncClient) -> None:
    await put(operator_api, MEMORY, "Tea at four.\n")
    refused = await put(operator_api, MEMORY, "Tea at six.\n", base="Tea at five.\n")
    assert refused.status_code == 409
    assert (refused.json()["current"], refused.json()["proposed"]) == ("Tea at four.\n", "Tea at six.\n")
    assert refused.json()["currentVersion"] == rules.version(b"Tea at four.\n")


@pytest.mark.parametrize(
    ("content", "status"), [("a\0b", 422), ("<<<<<<< yours\nx", 422), ("x" * 524_289, 413), ("\ud800", 422)]
)
async def test_what_is_no_text_for_a_document_is_refused(
    operator_api: httpx.AsyncClient, content: str, status: int
) -> None:
    body = b'{"path": "%s", "content": "\\ud800"}' % MEMORY.encode()
    if content == "\ud800":
        answer = await operator_api.put("/files", content=body, headers={"content-type": "application/json"})
    else:
        answer = await put(operator_api, MEMORY, content)
    assert answer.status_code == status


async def test_many_edits_at_once_are_all_there(operator_api: httpx.AsyncClient) -> None:
    base = "".join(f"Line {number}.\n\n" for number in range(10))
    await put(operator_api, MEMORY, base)
    edits = [base.replace(f"Line {number}.", f"Edited {number}.") for number in range(10)]
    answers = await asyncio.gather(*(put(operator_api, MEMORY, edit, base=base) for edit in edits))
    assert {answer.status_code for answer in answers} == {200}
    text = (await operator_api.get("/files/text", params={"path": MEMORY})).json()["content"]
    assert [line for line in text.split("\n") if line] == [f"Edited {number}." for number in range(10)]


async def test_who_waits_hears_of_a_change_at_once_where_there_is_news(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    assert gateway.web.api is not None
    seen = (await operator_api.get("/files/revision")).json()["revision"]
    waiting = asyncio.create_task(operator_api.get("/files/revision", params={"seen": seen, "wait": 10}))
    await put(operator_api, MEMORY, "Tea.\n")
    gateway.web.api.services.files.tell()
    assert (await waiting).json()["revision"] != seen


async def test_who_waits_for_nothing_is_answered(operator_api: httpx.AsyncClient) -> None:
    seen = (await operator_api.get("/files/revision")).json()["revision"]
    assert (await operator_api.get("/files/revision", params={"seen": seen, "wait": 1})).json()["revision"] == seen


@pytest.mark.parametrize("scopes", [("memory:read",), ("personalities:read", "personalities:write")])
async def test_a_key_that_may_not_see_all_of_it_sees_none(
    gateway: Gateway, client_with: Callable[[str | None], httpx.AsyncClient], scopes: tuple[str, ...]
) -> None:
    assert gateway.web.api is not None
    key = (await gateway.web.api.services.keys.create(OPERATOR, "a", scopes, None)).key
    async with client_with(key) as api:
        for path in ("/files", "/files/revision", f"/files/text?path={MEMORY}"):
            assert (await api.get(path)).status_code == 403
        assert (await put(api, MEMORY, "x")).status_code == 403


async def test_the_key_of_one_person_sees_none(
    gateway: Gateway, client_with: Callable[[str | None], httpx.AsyncClient], ada: str
) -> None:
    assert gateway.web.api is not None
    scopes = ("memory:read", "memory:write", "personalities:read")
    key = (await gateway.web.api.services.keys.create(OPERATOR, "a", scopes, ada)).key
    async with client_with(key) as api:
        assert (await api.get("/files")).status_code == 403
        assert (await put(api, f"users/{ada}/USER.md", "x")).status_code == 403
