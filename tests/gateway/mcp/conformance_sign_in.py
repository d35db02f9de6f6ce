"""Our client with its sign-in, as the protocol's conformance program starts it; its authorization server asks nobody.

python -m tests.gateway.mcp.conformance_sign_in URL
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import httpx

from gateway.config.mcp import McpConfig
from gateway.mcp.oauth import Rules
from gateway.mcp.sign_ins import SignIns
from gateway.mcp.tokens import Account
from gateway.store.stores import open_store
from tests.gateway.mcp.conftest import QUICK, Servers

KEY = bytes(range(32))
EVERY_PORT = range(1 << 16)


async def _no_tier() -> None:
    return None


async def main(url: str) -> None:
    """Sign in as a browser would, connect, and call each tool once; the program may say who we are to its server."""
    told = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    known = {key: told[key] for key in ("client_id", "client_secret") if key in told}
    config = McpConfig.model_validate({"servers": {"s": {"url": url, "oauth": {"mode": "gateway", **known}}}})
    with tempfile.TemporaryDirectory() as home:
        store = open_store(Path(home) / "ethos.sqlite")
        sign_ins = SignIns(
            config,
            store.mcp_tokens,
            key=lambda: KEY,
            base=lambda: "http://127.0.0.1:1",
            rules=lambda: Rules(ports=EVERY_PORT, private_hosts=("localhost", "127.0.0.1")),
        )
        servers = Servers(
            config, store.mcp_tools, home=Path(home), tier=_no_tier, hide=str, times=QUICK, sign_ins=sign_ins
        )
        await servers.open()
        running = asyncio.create_task(servers.run())
        try:
            begun = await sign_ins.begin(Account("s"))
            async with httpx.AsyncClient(trust_env=False) as browser:
                back = httpx.URL((await browser.get(begun.address)).headers["location"])
            await sign_ins.finish(dict(back.params), begun.browser)
            await servers.connect()
            for tool in servers.tools:
                called = await servers.call(tool.name)
                assert called.outcome == "done", called.text
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
