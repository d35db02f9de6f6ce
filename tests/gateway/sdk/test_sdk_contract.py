"""The SDK against the OpenAPI document of the running server: every operation, every parameter, every model."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from ethos import AsyncEthos
from gateway.sdk.chat import SentMessage
from gateway.sdk.models.chat import EVENTS, AcceptedMessage, EventName
from gateway.sdk.models.mcp import NewMcpServer
from gateway.sdk.models.schedules import ChangeSchedule, NewSchedule
from gateway.sdk.models.settings import SettingChange
from gateway.sdk.models.traces import AddTrace
from gateway.sdk.request import IDEMPOTENCY_KEY, Downloaded, Request
from gateway.sdk.request_sender import RequestSender
from gateway.sdk.styles import Namespace, listing, operation

# What there is in the document, and deliberately not in the SDK.
NO_METHOD = {("GET", "/openapi.json"): "the document itself"}
NO_PARAMETER = {("PUT", "/memory", "if-match"): "says what `expectedVersion` says"}

# A value for every parameter of every method, by its name.
VALUES: dict[str, Any] = {
    "approval": 7,
    "after": 7,
    "attachments": (),
    "base": "text",
    "body": AddTrace(content="Ada likes tea"),
    "change": 3,
    "channel": "web",
    "confirm": "u_1",
    "content": "text",
    "copy_of": "engineer",
    "days": 3,
    "dedup": False,
    "deleted": True,
    "derive": False,
    "description": "About tea",
    "erasure": "er_1",
    "delivery": "t_9",
    "expected_version": "0" * 64,
    "explain": True,
    "file": Path("traces.json"),
    "format": "json",
    "hook": "ci",
    "sent": "text",
    "grant": {"yes": "always", "take_back": 3},
    "is_dry_run": True,
    "is_pinned": True,
    "is_one_kept": True,
    "is_replacing": True,
    "key": "k_1",
    "limit": 5,
    "line": "tea",
    "link": "l_1",
    "message": 4,
    "name": "Tea",
    "neighbours": 5,
    "one": "u_1",
    "other": "u_2",
    "path": "MEMORY.md",
    "personality": "assistant",
    "pinned": True,
    "points": 10,
    "prompt": "You are kind.",
    "query": "tea",
    "proposal": 2,
    "queue": "inbox",
    "role": "member",
    "scope": "user",
    "skill": "packing",
    "server": "notes",
    "new": {
        "Mcp": NewMcpServer(name="notes", url="http://127.0.0.1/"),
        "Schedules": NewSchedule(text="Tea", in_minutes=5),
    },
    "changes": {
        "Schedules": ChangeSchedule(text="Tea"),
        "Settings": (SettingChange(key="model", value="offline"),),
    },
    "pin": "0" * 64,
    "tool": "read_file",
    "scopes": ("memory:read",),
    "seen": "0" * 64,
    "session": "s_1",
    "conversation": "main",
    "last": 1,
    "settings": "name: Tea",
    "state": {"Proposals": "waiting", "Deliveries": "dead", "Schedules": "paused"},
    "schedule": 3,
    "store": "memory",
    "tags": ("tea",),
    "text": "Hello",
    "title": "Tea",
    "trace": "t_1",
    "traces": ("t_1", "t_2"),
    "type": "semantic",
    "user": "u_1",
    "version": "0" * 64,
    "wait": 3,
    "who": "ABCD",
    "with_conversations": True,
    "with_embeddings": True,
}


class Recorded(Exception):
    def __init__(self, request: Request[Any]) -> None:
        self.request = request


class RecordingSender(RequestSender):
    """Tells what it would send, and sends nothing."""

    async def send(self, request: Request[Any]) -> Any:
        raise Recorded(request)

    def events(self, request: Request[Any], after: int, **_more: Any) -> Any:
        raise Recorded(Request(**{**fields(request), "headers": {"last-event-id": str(after)}}))


def fields(request: Request[Any]) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


@dataclass(frozen=True)
class Method:
    name: str
    parameters: frozenset[str]
    request: Request[Any]


def namespaces(within: Any, name: str = "") -> Iterator[tuple[str, Namespace[Any]]]:
    for attribute in dir(within):
        if attribute.startswith("_") or isinstance(getattr(type(within), attribute, None), (operation, listing)):
            continue
        value = getattr(within, attribute)
        if isinstance(value, Namespace):
            yield f"{name}{attribute}", value
            yield from namespaces(value, f"{name}{attribute}.")


async def methods() -> list[Method]:
    """Every operation of the SDK, with the request that it makes when all its parameters are given."""
    client = AsyncEthos(api_key="key", base_url="http://localhost:1")
    await client.close()
    sender = client._sender
    recording = RecordingSender(sender._transport, sender._source, timeout_s=1, max_retries=0)
    for namespace in vars(client).values():
        if isinstance(namespace, Namespace):
            namespace.sender = recording
    found = []
    for name, namespace in namespaces(client):
        for attribute, described in vars(type(namespace)).items():
            if isinstance(described, (operation, listing)):
                found.append(await recorded(f"{name}.{attribute}", getattr(namespace, attribute)))
    return found


async def recorded(name: str, method: Any) -> Method:
    parameters = inspect.signature(method).parameters
    values = {}
    for parameter in parameters:
        if parameter not in ("idempotency_key", "wait_s"):
            value = VALUES[parameter]
            named = (part for part in method.__qualname__.split(".") if isinstance(value, dict) and part in value)
            values[parameter] = value[next(named)] if isinstance(value, dict) else value
    try:
        begun = method(**values)
        await (anext(begun) if isinstance(begun, AsyncIterator) else begun)
    except Recorded as one:
        return Method(name, frozenset(parameters), one.request)
    raise AssertionError(f"{name} made no request")


@pytest.fixture
async def document(client: AsyncEthos) -> dict[str, Any]:
    found: dict[str, Any] = await client._sender.send(Request("GET", "/openapi.json", AnyDocument))  # type: ignore[assignment]
    return found.model_extra  # type: ignore[attr-defined, no-any-return]


class AnyDocument(BaseModel, extra="allow"):
    pass


async def test_every_operation_of_the_server_has_a_method_with_its_parameters_and_models(
    document: dict[str, Any],
) -> None:
    by_operation: dict[tuple[str, str], list[Method]] = {}
    for method in await methods():
        by_operation.setdefault((method.request.method, method.request.path), []).append(method)
    wanted = {
        (verb.upper(), path): described
        for path, verbs in document["paths"].items()
        for verb, described in verbs.items()
        if (verb.upper(), path) not in NO_METHOD
    }
    assert set(by_operation) == set(wanted)
    schemas = document["components"]["schemas"]
    for key, described in wanted.items():
        assert described["operationId"] in {method.name for method in by_operation[key]}
        check_parameters(key, described, by_operation[key])
        check_models(key, described, by_operation[key], schemas)


def check_parameters(key: tuple[str, str], described: dict[str, Any], found: list[Method]) -> None:
    """The parameters of an operation are those that its methods send, all together."""
    wanted = {
        (one["in"], one["name"] if one["in"] != "header" else one["name"].lower())
        for one in described.get("parameters", [])
        if (*key, one["name"].lower()) not in NO_PARAMETER
    }
    sent: set[tuple[str, str]] = set()
    for method in found:
        sent |= {("path", name) for name in method.request.path_values}
        sent |= {("query", name) for name in method.request.query}
        sent |= {("header", name) for name in method.request.headers}
        if key[0] != "GET":
            assert "idempotency_key" in method.parameters, method.name
            sent.add(("header", IDEMPOTENCY_KEY))
        assert set(method.request.path_values) == set(re.findall(r"{(\w+)}", method.request.path)), method.name
    assert sent == wanted, key


def check_models(key: tuple[str, str], described: dict[str, Any], found: list[Method], schemas: dict[str, Any]) -> None:
    """Bodies and answers are the very models of the document."""
    body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    good = next(answer for status, answer in described["responses"].items() if status.startswith("2"))
    content = good.get("content", {})
    models = [one["schema"] for kind, one in content.items() if "json" in kind and "$ref" in one["schema"]]
    forms = [json_schema(schema, schemas) for schema in models]
    for method in found:
        sent = method.request.body
        assert (sent is None) == (body is None), key
        if sent is not None:
            assert json_schema(body, schemas) == json_schema_of(type(sent), "validation"), method.name
        answer = method.request.result
        if answer is NoneType:
            assert not content, key
        elif answer is Downloaded:
            is_binary = any(one["schema"].get("format") == "binary" for one in content.values())
            assert is_binary or "application/zip" in content, key
        elif answer is bytes:
            assert "application/zip" in content, key
        elif answer is str:
            assert any(kind.startswith("text/") for kind in content), key
        else:
            assert json_schema_of(answer, "serialization") in forms, method.name


def json_schema(reference: dict[str, Any], schemas: dict[str, Any]) -> Any:
    return essential(schemas[reference["$ref"].rpartition("/")[2]])


def json_schema_of(model: type[BaseModel], mode: Any) -> Any:
    schema = model.model_json_schema(mode=mode, ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return essential(schema)


def essential(value: Any) -> Any:
    """A schema to be compared: without what is for people, and without `null` where FastAPI does not spell it out."""
    if isinstance(value, dict):
        return {
            key: essential(below)
            for key, below in value.items()
            if not (key in ("title", "description") and isinstance(below, str)) and (key, below) != ("default", None)
        }
    if isinstance(value, list):
        return [essential(below) for below in value]
    return re.sub(r"-(Input|Output)$", "", value) if isinstance(value, str) else value


async def test_a_change_of_the_server_would_be_noticed(document: dict[str, Any]) -> None:
    """The test above can fail: for an operation, a parameter and a field more."""
    paths = document["paths"]
    paths["/memory"]["get"]["parameters"].append({"in": "query", "name": "more"})
    with pytest.raises(AssertionError):
        await test_every_operation_of_the_server_has_a_method_with_its_parameters_and_models(document)
    paths["/memory"]["get"]["parameters"].pop()
    document["components"]["schemas"]["Health"]["properties"]["more"] = {"type": "string"}
    with pytest.raises(AssertionError):
        await test_every_operation_of_the_server_has_a_method_with_its_parameters_and_models(document)
    del document["components"]["schemas"]["Health"]["properties"]["more"]
    paths["/more"] = {"get": paths["/memory"]["get"]}
    with pytest.raises(AssertionError):
        await test_every_operation_of_the_server_has_a_method_with_its_parameters_and_models(document)


async def test_every_event_has_its_model() -> None:
    assert set(EVENTS) == set(get_args(EventName))


async def test_every_method_says_what_it_does_and_what_it_returns() -> None:
    client = AsyncEthos(api_key="key", base_url="http://localhost:1")
    said = SentMessage[Any](client._sender, AcceptedMessage(session="s", message="m", sequence=0))
    for name, namespace in [*namespaces(client), ("said", said)]:
        for attribute, described in vars(type(namespace)).items():
            if isinstance(described, (operation, listing)):
                method = getattr(namespace, attribute)
                assert method.__doc__, f"{name}.{attribute}"
                assert "return" in method.__annotations__, f"{name}.{attribute}"
    await client.close()
