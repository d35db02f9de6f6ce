"""`client.hooks`: addresses that services call."""

from __future__ import annotations

from gateway.sdk.models.hooks import CallHook, Hook, HookCalled
from gateway.sdk.models.schema import Page
from gateway.sdk.styles import Namespace, S, operation


class Hooks(Namespace[S]):
    """The hooks of the configuration. Scope: `system:read`, and no key of a person; calling one is the operator's."""

    @operation
    async def list(self) -> tuple[Hook, ...]:
        """All of them, with their addresses and last calls."""
        return (await self.sender.get("/hooks", Page[Hook])).items

    @operation
    async def call(self, hook: str, sent: str = "", *, idempotency_key: str | None = None) -> HookCalled:
        """Try one, as if a service had sent this.

        Raises:
            NotFoundError: there is no such hook.
            ConflictError: it is paused, too many calls wait, or its person cannot be told anything.
        """
        new = CallHook(sent=sent)
        return await self.sender.write("POST", "/hooks/{hook}/call", HookCalled, idempotency_key, new, hook=hook)
