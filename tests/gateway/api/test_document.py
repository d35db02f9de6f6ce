"""The OpenAPI document, problem documents, and cursors."""

from __future__ import annotations

import base64
import json
import re

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.services.caller import PERMISSIONS
from gateway.web.api.paging import WrongCursor, cursor_of, place_of


async def test_the_document_is_openapi_3_1_and_says_what_every_call_needs(operator_api: httpx.AsyncClient) -> None:
    document = (await operator_api.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert document["servers"] == [{"url": "/api/v1"}]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    operations = [
        (path, method, operation) for path, found in document["paths"].items() for method, operation in found.items()
    ]
    assert len({operation["operationId"] for _, _, operation in operations}) == len(operations) > 15
    for path, method, operation in operations:
        assert operation["security"] == [{"token": []}], path
        assert operation["x-scope"] in (*PERMISSIONS, "anybody known", "operator"), path
        assert operation["description"], path
        assert re.fullmatch(r"[A-Z][a-z]+( [A-Za-z']+)+", operation["summary"]), path
        assert operation["tags"] == [path.split("/")[1]] or path == "/openapi.json"
        assert all(parameter["description"] for parameter in operation.get("parameters", [])), path
        assert "application/problem+json" in operation["responses"]["422"]["content"], path
        names = {parameter["name"] for parameter in operation.get("parameters", [])}
        assert ("Idempotency-Key" in names) == (method != "get"), path
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_every_reference_of_the_document_leads_somewhere(operator_api: httpx.AsyncClient) -> None:
    response = await operator_api.get("/openapi.json")
    wanted = set(re.findall(r'"#/components/schemas/([^"]+)"', response.text))
    assert wanted <= set(response.json()["components"]["schemas"])
    assert {"Problem", "ConflictProblem"} <= wanted


async def test_every_value_is_described_and_the_main_ones_have_examples(operator_api: httpx.AsyncClient) -> None:
    document = (await operator_api.get("/openapi.json")).json()
    assert document["info"]["license"] == {"name": "MIT", "identifier": "MIT"}
    assert document["info"]["contact"]
    assert {tag["name"] for tag in document["tags"] if tag["description"]} == {
        tag for found in document["paths"].values() for operation in found.values() for tag in operation["tags"]
    }
    schemas = document["components"]["schemas"]
    assert [name for name in schemas if "_" in name] == []
    assert "ChangePage" in schemas
    bare = [
        f"{name}.{key}"
        for name, schema in schemas.items()
        for key, value in schema.get("properties", {}).items()
        if not value.get("description") and not any(one.get("description") for one in value.get("anyOf", []))
    ]
    assert bare == []
    for name in ("SendMessage", "WriteDocument", "AddTrace", "Document", "Trace", "Session", "Person", "Problem"):
        assert '"examples"' in json.dumps(schemas[name]), name


async def test_values_are_in_camel_case(operator_api: httpx.AsyncClient) -> None:
    schemas = (await operator_api.get("/openapi.json")).json()["components"]["schemas"]
    names = {name for schema in schemas.values() for name in schema.get("properties", {})}
    assert {"expectedVersion", "modifiedAt", "nextCursor"} <= names
    assert [name for name in names if "_" in name] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("DELETE", "/memory", 405),
        ("GET", "/memory", 422),
        ("POST", "/memory/changes/0/undo", 422),
    ],
)
async def test_what_goes_wrong_is_a_problem_document(
    operator_api: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    response = await operator_api.request(method, path)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    problem = response.json()
    assert problem["status"] == status
    assert problem["type"].startswith("urn:ethos:problem:")
    assert problem["title"]
    assert problem["detail"]


async def test_a_write_that_is_no_json_is_refused(operator_api: httpx.AsyncClient) -> None:
    for content, media_type in ((b"{", "application/json"), (b"\xff", "application/json"), (b"{}", "text/plain")):
        response = await operator_api.put("/memory", content=content, headers={"content-type": media_type})
        assert response.status_code == 422, (content, media_type)
        assert response.headers["content-type"] == "application/problem+json"


async def test_a_fault_of_ours_tells_the_caller_nothing(
    gateway: Gateway, operator_api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise RuntimeError("a secret of the house")

    assert (await operator_api.get("/system/health")).status_code == 200
    monkeypatch.setattr(gateway.checkup, "health", broken)
    response = await operator_api.get("/system/health")
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    assert "secret" not in response.text


@pytest.mark.parametrize("place", [(1,), (2**62,)])
def test_a_cursor_brings_back_its_place(place: tuple[int]) -> None:
    assert place_of("list", cursor_of("list", place), int) == place


@pytest.mark.parametrize(
    "cursor",
    ["x", "é", "====", base64.urlsafe_b64encode(b"[]").decode(), base64.urlsafe_b64encode(b"{}").decode()]
    + [
        base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
        for value in (
            ["other", 1],
            ["list", "a"],
            ["list", None],
            ["list", 1, 2],
            ["list", True],
            ["list", 2**70],
            "[" * 400,
        )
    ],
)
def test_what_is_no_cursor_of_this_list_is_refused(cursor: str) -> None:
    with pytest.raises(WrongCursor, match="no such page"):
        place_of("list", cursor, int)
