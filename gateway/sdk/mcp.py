"""`client.mcp`: servers of the Model Context Protocol."""

from __future__ import annotations

from types import NoneType

from gateway.sdk.models.mcp import AcceptedTools, AcceptTools, McpServer
from gateway.sdk.models.schema import Page
from gateway.sdk.styles import Namespace, S, operation

_ONE = "/mcp/servers/{server}"


class Mcp(Namespace[S]):
    """Servers and their tools. Scope: `tools:read`, and no key of a person; all but the list is the operator's only.

    Every operation on a server raises `NotFoundError` where there is no such server.
    """

    @operation
    async def list(self) -> tuple[McpServer, ...]:
        """All servers of the configuration."""
        return (await self.sender.get("/mcp/servers", Page[McpServer])).items

    @operation
    async def test(self, server: str, *, idempotency_key: str | None = None) -> McpServer:
        """Connect it now, and read its tools; `ConflictError` where it is not reachable, with the reason."""
        return await self.sender.write("POST", f"{_ONE}/test", McpServer, idempotency_key, server=server)

    @operation
    async def accept(
        self, server: str, tool: str | None = None, *, idempotency_key: str | None = None
    ) -> AcceptedTools:
        """Let the agent have one tool, or all that are withheld, as they are now."""
        body = AcceptTools(tool=tool)
        return await self.sender.write("POST", f"{_ONE}/accept", AcceptedTools, idempotency_key, body, server=server)

    @operation
    async def forget(self, server: str, *, idempotency_key: str | None = None) -> None:
        """Forget the tools of a server that is configured no more; `ConflictError` where it still is."""
        await self.sender.write("DELETE", _ONE, NoneType, idempotency_key, server=server)
