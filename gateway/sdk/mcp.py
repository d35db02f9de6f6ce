"""`client.mcp`: servers of the Model Context Protocol."""

from __future__ import annotations

from gateway.sdk.models.mcp import (
    AcceptedTools,
    AcceptTools,
    McpServer,
    McpServerChange,
    NewMcpServer,
    SignedOut,
    SignIn,
    SignInLink,
    SignOut,
)
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
        self, server: str, tool: str | None = None, *, pin: str | None = None, idempotency_key: str | None = None
    ) -> AcceptedTools:
        """Let the agent have one tool, or all that are withheld, as they are now.

        Args:
            pin: of the tool, or else of the server, as it was seen; `ConflictError` where it is another by now.
        """
        body = AcceptTools(tool=tool, pin=pin)
        return await self.sender.write("POST", f"{_ONE}/accept", AcceptedTools, idempotency_key, body, server=server)

    @operation
    async def login(self, server: str, user: str | None = None, *, idempotency_key: str | None = None) -> SignInLink:
        """Make a link by which to sign in to it; `ConflictError` where nobody does, or not so, with the reason."""
        body = SignIn(user=user)
        return await self.sender.write("POST", f"{_ONE}/login", SignInLink, idempotency_key, body, server=server)

    @operation
    async def logout(self, server: str, user: str | None = None, *, idempotency_key: str | None = None) -> SignedOut:
        """Forget what somebody's sign-in to it gave; `ConflictError` where nobody is signed in, or not so."""
        body = SignOut(user=user)
        return await self.sender.write("POST", f"{_ONE}/logout", SignedOut, idempotency_key, body, server=server)

    @operation
    async def add(self, new: NewMcpServer, *, idempotency_key: str | None = None) -> McpServerChange:
        """Write it into config.yaml, and use it; `ConflictError` where it is there already, or cannot be written."""
        return await self.sender.write("POST", "/mcp/servers", McpServerChange, idempotency_key, new)

    @operation
    async def remove(self, server: str, *, idempotency_key: str | None = None) -> McpServerChange:
        """Take it out of config.yaml, end it, and forget its tools and who signed in to it."""
        return await self.sender.write("DELETE", _ONE, McpServerChange, idempotency_key, server=server)
