"""`client.approvals`: calls of tools that wait for a yes."""

from __future__ import annotations

from gateway.sdk.models.approvals import ToolApproval
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
    async def yes(self, approval: int, *, idempotency_key: str | None = None) -> ToolApproval:
        """Have exactly this call made, once; `ConflictError` where it does not wait any more."""
        return await self.sender.write("POST", f"{_ONE}/yes", ToolApproval, idempotency_key, approval=approval)

    @operation
    async def no(self, approval: int, *, idempotency_key: str | None = None) -> ToolApproval:
        """Drop it; it is never done. `ConflictError` where it does not wait any more."""
        return await self.sender.write("POST", f"{_ONE}/no", ToolApproval, idempotency_key, approval=approval)
