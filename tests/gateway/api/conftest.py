"""A running gateway, and clients of its API over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.files.home import prepare_home
from gateway.services.caller import operator

WAIT_S = 60
OPERATOR = operator("test")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """With the gateway's own channel, and the offline model."""
    home = tmp_path / "home"
    prepare_home(home)
    (home / "config.yaml").write_text("web: {port: 0}\n", encoding="utf-8")
    async with Gateway(home, load_config(home=home).config, only=()) as running:
        await running.identities.resolve("local:operator", "Operator")
        stop = asyncio.Event()
        serving = asyncio.create_task(running.run(stop))
        await asyncio.wait_for(running.is_serving.wait(), WAIT_S)
        yield running
        stop.set()
        await asyncio.wait_for(serving, WAIT_S)


@pytest.fixture
def client_with(gateway: Gateway) -> Callable[[str | None], httpx.AsyncClient]:
    """Makes a client that sends this bearer token; None: nothing."""
    base_url = gateway.web.url + "api/v1"

    def make(token: str | None) -> httpx.AsyncClient:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=WAIT_S)

    return make


@pytest.fixture
async def operator_api(
    gateway: Gateway, client_with: Callable[[str | None], httpx.AsyncClient]
) -> AsyncIterator[httpx.AsyncClient]:
    """The API as the operator sees it."""
    async with client_with((gateway.home / "web-token").read_text().strip()) as client:
        yield client


@pytest.fixture
async def ada(gateway: Gateway) -> str:
    """A person beside the operator."""
    return await gateway.identities.resolve("mail:ada@example.org", "Ada")
