"""`client.system`: health, usage, configuration."""

from __future__ import annotations

from gateway.sdk.models.schema import Page
from gateway.sdk.models.system import ChannelHealth, Health, Settings, Usage
from gateway.sdk.styles import Namespace, S, operation


class System(Namespace[S]):
    """The gateway itself. Scope: `system:read`."""

    @operation
    async def health(self) -> Health:
        """The state of the gateway, also where it does not work."""
        return await self.sender.get("/system/health", Health)

    @operation
    async def channels(self) -> tuple[ChannelHealth, ...]:
        """The channels with their state."""
        return (await self.sender.get("/system/channels", Page[ChannelHealth])).items

    @operation
    async def usage(self, *, days: int = 30, user: str | None = None) -> Usage:
        """Turns, tokens and cost of the last days, today included, by day, person, personality and model."""
        return await self.sender.get("/system/usage", Usage, {"days": days, "user": user})

    @operation
    async def config(self) -> Settings:
        """The configuration in force; a secret is shown as `**********`."""
        return await self.sender.get("/system/config", Settings)
