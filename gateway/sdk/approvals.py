"""`client.approvals`: calls of tools that wait for a yes."""

from __future__ import annotations

from types import NoneType

from gateway.sdk.models.approvals import GrantScope, SayYes, ToolApproval, ToolGrant
from gateway.sdk.models.schema import Page
from gateway.sdk.styles import Namespace, S, operation

_ONE = "/approvals/{approval}"


class Approvals(Namespace[S]):
    """Questions, and the operator's decisions. Scope: `tools:read`; a yes and a no are the operator's only.

    Every operation raises `NotFoundError` where there is no such number.
    """

    @operation
    async def list(self) -> tuple[ToolApproval, ...]:
        """What waits, the oldest first."""
        return (await self.sender.get("/approvals", Page[ToolApproval])).items

    @operation
    async def get(self, approval: int) -> ToolApproval:
        """One, also one that is decided."""
        return await self.sender.get(_ONE, ToolApproval, approval=approval)

    @operation
    async def yes(
        self, approval: int, *, grant: GrantScope | None = None, idempotency_key: str | None = None
    ) -> ToolApproval:
        """Have exactly this call made, once; `ConflictError` where it does not wait any more.

        With `grant` the next calls of the same tool and destination are not asked for: in this conversation, or always.
        """
        body = SayYes(grant=grant)
        return await self.sender.write("POST", f"{_ONE}/yes", ToolApproval, idempotency_key, body, approval=approval)

    @operation
    async def no(self, approval: int, *, idempotency_key: str | None = None) -> ToolApproval:
        """Drop it; it is never done. `ConflictError` where it does not wait any more."""
        return await self.sender.write("POST", f"{_ONE}/no", ToolApproval, idempotency_key, approval=approval)

    @operation
    async def ask_again(self, approval: int, *, idempotency_key: str | None = None) -> ToolApproval:
        """Ask for exactly this call once more, under a new number, where it has expired; else `ConflictError`."""
        return await self.sender.write("POST", f"{_ONE}/again", ToolApproval, idempotency_key, approval=approval)

    @operation
    async def grants(self) -> tuple[ToolGrant, ...]:
        """What is not asked for any more."""
        return (await self.sender.get("/approvals/grants", Page[ToolGrant])).items

    @operation
    async def take_back(self, grant: int, *, idempotency_key: str | None = None) -> None:
        """Ask again for the calls that a grant covered."""
        await self.sender.write("DELETE", "/approvals/grants/{grant}", NoneType, idempotency_key, grant=grant)
