"""Servers of tools, by HTTP: added, listed, tried, accepted and removed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.way.conftest import House
from tests.mcp_servers import misbehaving

from .conftest import WAIT_S

SCRIPT = misbehaving.__file__


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    folder = str(Path(SCRIPT).parent)
    good = {"command": [sys.executable, SCRIPT], "sandbox": {"read": [folder]}, "effects": "hints"}
    bad = {
        "command": [sys.executable, SCRIPT, "exits"],
        "sandbox": {"read": [folder]},
        "env": {"TOKEN": "canary-secret"},
    }
    async with House(tmp_path / "home").served(mcp={"servers": {"good": good, "bad": bad}}) as gateway:
        await gateway.identities.resolve("local:operator", "Operator")
        headers = {"authorization": f"Bearer {(gateway.home / 'web-token').read_text().strip()}"}
        base_url = gateway.web.url + "api/v1"
        async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=WAIT_S) as client:
            yield client


async def test_a_server_is_tried_and_its_tools_are_accepted(client: httpx.AsyncClient) -> None:
    tried = (await client.post("/mcp/servers/good/test")).json()
    assert (tried["name"], tried["state"], tried["error"]) == ("good", "up", None)
    [echo] = [tool for tool in tried["tools"] if tool["serverName"] == "echo"]
    assert (echo["name"], echo["effect"], echo["state"]) == ("good__echo", "read", "new")
    assert (await client.post("/mcp/servers/good/accept", json={"tool": "echo"})).json() == {"tools": ["good__echo"]}
    assert len((await client.post("/mcp/servers/good/accept")).json()["tools"]) == 16
    assert (await client.post("/mcp/servers/good/accept")).json() == {"tools": []}
    assert (await client.post("/mcp/servers/good/accept", json={"tool": "nope"})).status_code == 404
    assert (await client.delete("/mcp/servers/gone")).status_code == 404


async def test_a_server_that_is_down_says_why_without_its_secrets(client: httpx.AsyncClient) -> None:
    refused = await client.post("/mcp/servers/bad/test")
    assert refused.status_code == 409
    assert "the server bad is not reachable now: it ended with the exit code 3: No such account: ***" in refused.text
    listed = (await client.get("/mcp/servers")).json()["items"]
    assert [one["name"] for one in listed] == ["bad", "good"]
    assert listed[0]["said"] == ["No such account: ***"]
    assert "canary" not in str(listed)


async def test_the_key_of_a_person_sees_no_servers(client: httpx.AsyncClient) -> None:
    """What a server says, and where it is, belongs to nobody alone."""
    whole = (await client.post("/keys", json={"name": "all", "scopes": ["tools:read"]})).json()["key"]
    wanted = {"name": "one", "scopes": ["tools:read"], "user": "local:operator"}
    own = (await client.post("/keys", json=wanted)).json()["key"]
    for key, status in ((whole, 200), (own, 403)):
        answer = await client.get("/mcp/servers", headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == status, answer.text


async def test_there_is_no_other_server(client: httpx.AsyncClient) -> None:
    for action in ("test", "accept", "login", "logout"):
        answer = await client.post(f"/mcp/servers/nope/{action}")
        assert answer.status_code == 404
        assert "there is no server 'nope' in `mcp.servers`; there are: bad, good" in answer.text


def program(mode: str = "", **more: Any) -> dict[str, Any]:
    folder = str(Path(SCRIPT).parent)
    return {"name": "new", "command": [sys.executable, SCRIPT, mode], "sandbox": {"read": [folder]}, **more}


async def test_a_server_is_added_used_and_removed_while_the_gateway_runs(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    path = tmp_path / "home" / "config.yaml"
    before = path.read_text()
    added = await client.post("/mcp/servers", json=program(env={"API_TOKEN": "canary-typed"}, effects="hints"))
    assert added.status_code == 200, added.text
    assert added.json() == {
        "server": "new",
        "isInUse": True,
        "notes": [
            (
                "the secret of mcp.servers.new.env.API_TOKEN is kept in "
                "secrets/mcp-servers-new-env-API_TOKEN, not in config.yaml"
            )
        ],
    }
    assert "canary-typed" not in path.read_text()
    tried = (await client.post("/mcp/servers/new/test")).json()
    assert {(tool["effect"], tool["state"]) for tool in tried["tools"]} == {("read", "new"), ("act", "new")}
    assert len((await client.post("/mcp/servers/new/accept", json={"pin": tried["pin"]})).json()["tools"]) == 17
    assert [one["name"] for one in (await client.get("/mcp/servers")).json()["items"]] == ["bad", "good", "new"]
    again = await client.post("/mcp/servers", json=program())
    assert again.status_code == 409
    assert "there is a server new in config.yaml; remove it first" in again.text
    removed = (await client.delete("/mcp/servers/new")).json()
    assert removed["isInUse"]
    assert path.read_text() == before
    assert [one["name"] for one in (await client.get("/mcp/servers")).json()["items"]] == ["bad", "good"]
    assert (await client.delete("/mcp/servers/new")).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "status", "says"),
    [
        ({"url": "nowhere"}, 409, "mcp.servers.new."),
        ({"timeoutS": 0}, 422, "timeoutS"),
        ({"start": "never"}, 422, "start"),
        ({"approver": "all"}, 422, "approver"),
        ({"instructions": "some"}, 422, "instructions"),
        ({"sandbox": {}, "tools": [""]}, 409, "mcp.servers.new.tools"),
        ({"name": "New"}, 422, "name"),
        ({"env": {"TOKEN": "${NOT_HERE_AT_ALL}"}}, 409, "variable NOT_HERE_AT_ALL is not set"),
    ],
)
async def test_what_is_wrong_with_a_new_server_is_named_and_changes_nothing(
    client: httpx.AsyncClient, tmp_path: Path, wrong: dict[str, Any], status: int, says: str
) -> None:
    before = (tmp_path / "home" / "config.yaml").read_text()
    answer = await client.post("/mcp/servers", json=program(**wrong))
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert (tmp_path / "home" / "config.yaml").read_text() == before


async def test_only_what_was_seen_is_accepted(client: httpx.AsyncClient) -> None:
    seen = (await client.post("/mcp/servers/good/test")).json()
    [echo] = [tool for tool in seen["tools"] if tool["serverName"] == "echo"]
    for body in ({"pin": "another"}, {"tool": "echo", "pin": seen["pin"]}):
        answer = await client.post("/mcp/servers/good/accept", json=body)
        assert answer.status_code == 409
        assert "changed since you looked, and nothing was accepted; look again" in answer.text
    assert {tool["state"] for tool in (await client.get("/mcp/servers")).json()["items"][1]["tools"]} == {"new"}
    body = {"tool": "echo", "pin": echo["pin"]}
    assert (await client.post("/mcp/servers/good/accept", json=body)).json() == {"tools": ["good__echo"]}


async def test_no_key_adds_or_removes_a_server(client: httpx.AsyncClient) -> None:
    key = (await client.post("/keys", json={"name": "all", "scopes": ["tools:read"]})).json()["key"]
    headers = {"authorization": f"Bearer {key}"}
    assert (await client.post("/mcp/servers", json=program(), headers=headers)).status_code == 403
    assert (await client.delete("/mcp/servers/good", headers=headers)).status_code == 403
