"""Servers at an address, over streamable HTTP: what became of a call follows from how far its request came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from gateway.mcp.tokens import Account
from tests.gateway.mcp.conftest import Room
from tests.mcp_servers.misbehaving import answer
from tests.servers import free_port


class Site:
    """A server over HTTP; `fault` is what it does with the next call of a tool, once."""

    def __init__(self) -> None:
        self.port = free_port()
        self.fault = ""
        self.calls: list[str] = []
        self.session = "one"
        self.to_the_unknown = 404
        self.headers: list[str] = []
        self._runner: web.AppRunner | None = None

    @property
    def config(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}/mcp", "headers": {"Authorization": "Bearer canary"}}

    async def begin(self) -> None:
        app = web.Application()
        app.router.add_post("/mcp", self._post)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def end(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _post(self, request: web.Request) -> web.StreamResponse:
        message = await request.json()
        method, params = message["method"], message.get("params") or {}
        self.headers.append(request.headers.get("Authorization", ""))
        if "id" not in message:
            return web.Response(status=202)
        begins = method in ("initialize", "server/discover")
        if not begins and request.headers.get("Mcp-Session-Id") != self.session:
            error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            return web.json_response({"jsonrpc": "2.0", "error": error, "id": None}, status=self.to_the_unknown)
        if method == "tools/call":
            self.calls.append(params["name"])
            fault, self.fault = self.fault, ""
            if fault:
                return await self._break(request, fault)
        if self.fault == "refuses":
            return web.Response(status=401)
        result = answer(method, params)
        body = {"jsonrpc": "2.0", "id": message["id"], **(result if "error" in result else {"result": result})}
        return web.json_response(body, headers={"Mcp-Session-Id": self.session})

    async def _break(self, request: web.Request, fault: str) -> web.StreamResponse:
        if fault == "cuts":
            assert request.transport is not None
            request.transport.close()
            raise web.HTTPInternalServerError
        if fault == "cuts a stream":
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            assert request.transport is not None
            request.transport.close()
            return response
        if fault == "huge":
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": "x" * (20 << 20)}).encode()
            return web.Response(body=body, content_type="application/json")
        return web.Response(status=int(fault), text="<html>", content_type="text/html")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.begin()
    try:
        yield site
    finally:
        await site.end()


async def test_a_tool_is_called_with_the_headers_of_the_configuration(room: Room, site: Site) -> None:
    async with room.servers(s=site.config) as servers:
        await servers.connect()
        called = await servers.call("s__post", text="tea")
        assert (called.outcome, called.text) == ("done", "tea")
    assert set(site.headers) == {"Bearer canary"}


@pytest.mark.parametrize("fault", ["500", "503", "200", "cuts", "cuts a stream", "huge"])
async def test_what_fails_after_the_request_is_uncertain_and_the_next_call_works(
    room: Room, site: Site, fault: str
) -> None:
    async with room.servers(s=site.config) as servers:
        await servers.connect()
        site.fault = fault
        assert (await servers.call("s__post", text="tea")).outcome == "uncertain"
        assert (await servers.call("s__post", text="tea")).text == "tea"
        assert site.calls == ["post", "post"]


async def test_a_server_that_is_away_is_unavailable_and_found_again(room: Room, site: Site) -> None:
    async with room.servers(s=site.config) as servers:
        await servers.connect()
        await site.end()
        called = await servers.call("s__post", text="tea")
        assert (called.outcome, called.is_fault) == ("failed", True)
        assert "this was not done: its server cannot be reached" in called.text
        again = await servers.call("s__post", text="tea")
        assert "the server s is not reachable now: it cannot be reached" in again.text
        assert "look whether it runs, and at its `url`" in again.text
        await site.begin()
        servers._servers[Account("s")].wake()
        await servers.until("up")
        assert (await servers.call("s__post", text="tea")).text == "tea"


async def test_a_name_that_nobody_knows_is_unavailable(room: Room) -> None:
    async with room.servers(s={"url": "http://nobody.invalid/mcp"}) as servers:
        await servers.until("resting")
        [problem] = servers.problems
        assert "it cannot be reached" in problem


async def test_refused_credentials_name_the_headers(room: Room, site: Site) -> None:
    site.fault = "refuses"
    async with room.servers(s=site.config) as servers:
        await servers.until("resting")
        [problem] = servers.problems
        assert problem.endswith("(HTTP 401); correct its `headers`, or the `scopes` of its `oauth`")
        assert "canary" not in problem


@pytest.mark.parametrize("status", [404, 400])
async def test_what_only_looks_is_asked_again_of_a_restarted_server(room: Room, site: Site, status: int) -> None:
    site.to_the_unknown = status
    async with room.servers(s={**site.config, "effects": {"look": "read"}}) as servers:
        await servers.connect()
        site.session = "two"
        assert (await servers.call("s__look")).outcome == "done"
        site.session = "three"
        called = await servers.call("s__post", text="tea")
        assert (called.outcome, called.is_fault) == ("failed", True)
        assert "the server s was restarted; call it again" in called.text
        assert (await servers.call("s__post", text="tea")).text == "tea"
        assert site.calls == ["look", "post"]


async def test_calls_run_at_once_and_the_end_of_one_caller_is_no_matter_of_the_others(room: Room, site: Site) -> None:
    async with room.servers(s=site.config) as servers:
        await servers.connect()
        one = asyncio.create_task(servers.call("s__post", text="one"))
        two = asyncio.create_task(servers.call("s__post", text="two"))
        await asyncio.sleep(0)
        one.cancel()
        assert (await two).text == "two"
