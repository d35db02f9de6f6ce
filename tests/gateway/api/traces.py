"""A gateway with a trace memory, two people in it, and clients of its API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gateway.app.gateway import Gateway
from gateway.services.caller import operator
from gateway.traces.trace_store import TraceStore
from tests.gateway.api.conftest import WAIT_S
from tests.gateway.way.conftest import House

ON = {"traces": {"enabled": True}}


@dataclass
class Traced:
    """A running gateway, and whoever asks it."""

    gateway: Gateway
    stack: AsyncExitStack
    api: httpx.AsyncClient
    ada: str
    ben: str

    @property
    def trace_store(self) -> TraceStore:
        assert self.gateway.trace_store is not None
        return self.gateway.trace_store

    async def client(self, token: str | None) -> httpx.AsyncClient:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        base_url = self.gateway.web.url + "api/v1"
        client = httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=WAIT_S)
        return await self.stack.enter_async_context(client)

    async def of(self, user_id: str, *scopes: str) -> httpx.AsyncClient:
        """The API with a key of one person."""
        keys = self.gateway.web.api.services.keys if self.gateway.web.api else None
        assert keys is not None
        wanted = scopes or ("traces:read", "traces:write")
        return await self.client((await keys.create(operator("test"), "a key", wanted, user_id)).key)

    async def add(self, content: str, **more: Any) -> dict[str, Any]:
        """A trace of Ada's, or as it is said."""
        answer = await self.api.post("/traces", json={"content": content, "user": self.ada, **more})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def contents(self, client: httpx.AsyncClient | None = None, **params: Any) -> list[str]:
        answer = await (client or self.api).get("/traces", params=params)
        assert answer.status_code == 200, answer.text
        return [item["content"] for item in answer.json()["items"]]


@asynccontextmanager
async def traced(home: Path, **settings: Any) -> AsyncIterator[Traced]:
    """Start it; `settings` are those of config.yaml."""
    settings.setdefault("memory", ON)
    settings.setdefault("channels", {"fake": {"kind": "tests.fake_channel"}})
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(House(home).served(**settings))
        await gateway.identities.resolve("local:operator", "Operator")
        ada = await gateway.identities.resolve("mail:ada@example.org", "Ada")
        ben = await gateway.identities.resolve("mail:ben@example.org", "Ben")
        found = Traced(gateway, stack, httpx.AsyncClient(), ada, ben)
        await found.api.aclose()
        found.api = await found.client((gateway.home / "web-token").read_text().strip())
        yield found
