"""`client.system`: health, usage, configuration."""

from __future__ import annotations

from types import NoneType

from gateway.sdk.models.schema import Page
from gateway.sdk.models.system import (
    ChannelHealth,
    Findings,
    ForgetOld,
    Forgotten,
    Health,
    PutAside,
    Reloaded,
    Repaired,
    Settings,
    Usage,
    WorkerHealth,
)
from gateway.sdk.request import LONG_TIMEOUT_S, Request
from gateway.sdk.styles import Namespace, S, operation


class System(Namespace[S]):
    """The gateway itself. Scope: `system:read`; `reload` and `forget_old` are only for the operator."""

    @operation
    async def health(self) -> Health:
        """The state of the gateway, also where it does not work."""
        return await self.sender.get("/system/health", Health)

    @operation
    async def channels(self) -> tuple[ChannelHealth, ...]:
        """The channels with their state."""
        return (await self.sender.get("/system/channels", Page[ChannelHealth])).items

    @operation
    async def workers(self) -> tuple[WorkerHealth, ...]:
        """The processes that serve from the database, the oldest first."""
        return (await self.sender.get("/system/workers", Page[WorkerHealth])).items

    @operation
    async def release(self, channel: str, *, idempotency_key: str | None = None) -> None:
        """Have another worker take a channel, which the one that has it stops first."""
        await self.sender.write(
            "POST", "/system/channels/{channel}/release", NoneType, idempotency_key, channel=channel
        )

    @operation
    async def findings(self, *, thorough: bool = False, ask: bool = False) -> Findings:
        """What is wrong and what to do; thorough, also what takes a while; `ask` calls the models, for the operator."""
        query = {"thorough": thorough, "ask": ask}
        return await self.sender.send(
            Request("GET", "/system/findings", Findings, query=query, timeout_s=LONG_TIMEOUT_S)
        )

    @operation
    async def repair(self, finding: str, *, idempotency_key: str | None = None) -> Repaired:
        """Repair what a look has found, by its id; `NotFoundError` where it is not found any more."""
        return await self.sender.write(
            "POST", "/system/repairs/{finding}", Repaired, idempotency_key, timeout_s=LONG_TIMEOUT_S, finding=finding
        )

    @operation
    async def put_aside(self, finding: str, *, is_put_aside: bool = True, idempotency_key: str | None = None) -> None:
        """Let a finding count no more until it changes, or count again."""
        body = PutAside(is_put_aside=is_put_aside)
        await self.sender.write(
            "POST", "/system/findings/{finding}/aside", NoneType, idempotency_key, body, finding=finding
        )

    @operation
    async def usage(self, *, days: int = 30, user: str | None = None) -> Usage:
        """Turns, tokens and cost of the last days, today included, by day, person, personality and model."""
        return await self.sender.get("/system/usage", Usage, {"days": days, "user": user})

    @operation
    async def config(self) -> Settings:
        """The configuration in force; a secret is shown as `**********`."""
        return await self.sender.get("/system/config", Settings)

    @operation
    async def reload(self, *, idempotency_key: str | None = None) -> Reloaded:
        """Have the gateway read its configuration again; where that has `problems`, nothing is taken over."""
        return await self.sender.write("POST", "/system/reload", Reloaded, idempotency_key, timeout_s=LONG_TIMEOUT_S)

    @operation
    async def forget_old(
        self, *, is_dry_run: bool = False, idempotency_key: str | None = None
    ) -> tuple[Forgotten, ...]:
        """Delete what is older than the configuration allows, or only count it."""
        body = ForgetOld(is_dry_run=is_dry_run)
        page = await self.sender.write(
            "POST", "/system/retention", Page[Forgotten], idempotency_key, body, timeout_s=LONG_TIMEOUT_S
        )
        return page.items
