"""`client.system`: how the gateway is, what was spent, what it was told."""

from __future__ import annotations

from gateway.sdk.models.schema import Page
from gateway.sdk.models.system import Channel, Health, Settings, Usage
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, operation


class System(Namespace[S]):
    """The gateway itself. Scope: `system:read`."""

    @operation
    async def health(self) -> Health:
        """How it is, now; also where it is not well."""
        return await self.courier.ask(Request("GET", "/system/health", Health))

    @operation
    async def channels(self) -> tuple[Channel, ...]:
        """The channels in their true state."""
        return (await self.courier.ask(Request("GET", "/system/channels", Page[Channel]))).items

    @operation
    async def usage(self, *, days: int = 30, user: str | None = None) -> Usage:
        """What was spent in so many days, today included, by day, person, personality and model."""
        return await self.courier.ask(Request("GET", "/system/usage", Usage, query={"days": days, "user": user}))

    @operation
    async def config(self) -> Settings:
        """The configuration in force; in the place of a secret stands `**********`."""
        return await self.courier.ask(Request("GET", "/system/config", Settings))
