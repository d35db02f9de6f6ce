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


async def _sign_in(sign_ins: SignIns) -> None:
    begun = await sign_ins.begin(Account("s"))
    async with httpx.AsyncClient(trust_env=False) as browser:
        back = httpx.URL((await browser.get(begun.address)).headers["location"])
    await sign_ins.finish(dict(back.params), begun.browser)


async def _issuer(url: str) -> str:
    """Of the authorization server, which an operator has to name where the gateway shows a secret of its own."""
    at = httpx.URL(url)
    async with httpx.AsyncClient(trust_env=False) as asking:
        said = (await asking.get(at.copy_with(path=f"/.well-known/oauth-protected-resource{at.path}"))).json()
    return str(said["authorization_servers"][0])


async def main(url: str) -> None:
    """Sign in as a browser would, connect, and call each tool once; the program may say who we are to its server."""
    told = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    oauth = {"mode": "gateway", **{key: told[key] for key in ("client_id", "client_secret") if key in told}}
    is_own = os.environ.get("MCP_CONFORMANCE_SCENARIO") == "auth/client-credentials-basic"
    if is_own:
        oauth |= {"mode": "client_credentials", "issuer": await _issuer(url)}
    config = McpConfig.model_validate({"servers": {"s": {"url": url, "oauth": oauth}}})
    with tempfile.TemporaryDirectory() as home:
        store = open_store(Path(home) / "ethos.sqlite")
        sign_ins = SignIns(
            config,
            store.mcp_tokens,
            key=lambda: KEY,
            base=lambda: "https://ethos.example.org",
            rules=lambda: Rules(ports=EVERY_PORT, private_hosts=("localhost", "127.0.0.1")),
        )
        servers = Servers(
            config, store.mcp_tools, home=Path(home), tier=_no_tier, hide=str, times=QUICK, sign_ins=sign_ins
        )
        await servers.open()
        running = asyncio.create_task(servers.run())
        try:
            if not is_own:
                await _sign_in(sign_ins)
            await servers.connect()
            for tool in servers.tools:
                called = await servers.call(tool.name)
                if "more must be allowed there" in called.text:
                    await _sign_in(sign_ins)
                    called = await servers.call(tool.name)
                assert called.outcome == "done", called.text
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
