"""Servers of tools, by HTTP: listed, tried, accepted and forgotten."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

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
    assert (await client.delete("/mcp/servers/good")).status_code == 409
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
    for action in ("test", "accept"):
        answer = await client.post(f"/mcp/servers/nope/{action}")
        assert answer.status_code == 404
        assert "there is no server 'nope' in `mcp.servers`; there are: bad, good" in answer.text
