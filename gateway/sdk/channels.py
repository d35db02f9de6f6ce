"""`client.channels`: channels of the configuration, and the kinds that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.sdk.models.channels import (
    ChangeChannel,
    Channel,
    ChannelChange,
    ChannelDetail,
    ChannelKind,
    ChannelKindDetail,
    ChannelLogin,
    ChannelTrial,
    NewChannel,
)
from gateway.sdk.models.schema import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, operation

_ONE = "/channels/{channel}"


class Channels(Namespace[S]):
    """Channels: what connects the agent to a platform. The operator's only.

    Operations on a channel raise `NotFoundError` where there is no such channel, and those that change one
    `ConflictError` where the configuration cannot be changed so, with the reason.
    """

    @operation
    async def list(self) -> tuple[Channel, ...]:
        """All channels of the configuration, paused ones too."""
        return (await self.sender.get("/channels", Page[Channel])).items

    @operation
    async def kinds(self) -> tuple[ChannelKind, ...]:
        """The kinds that come with the gateway."""
        return (await self.sender.get("/channels/kinds", Page[ChannelKind])).items

    @operation
    async def kind(self, kind: str) -> ChannelKindDetail:
        """One kind with its keys and the way to a login; `NotFoundError` where there is none."""
        return await self.sender.get("/channels/kinds/{kind}", ChannelKindDetail, kind=kind)

    @operation
    async def get(self, channel: str) -> ChannelDetail:
        """One channel with its keys; of a secret only that it is there."""
        return await self.sender.get(_ONE, ChannelDetail, channel=channel)

    @operation
    async def try_login(
        self,
        kind: str,
        settings: Mapping[str, Any],
        *,
        channel: str | None = None,
        idempotency_key: str | None = None,
    ) -> ChannelTrial:
        """Ask the platform who a login is; nothing is written, sent or changed.

        Args:
            channel: one that is there, which has the keys that are left out.
        """
        body = ChannelLogin(kind=kind, settings=dict(settings), channel=channel)
        return await self.sender.write("POST", "/channels/try", ChannelTrial, idempotency_key, body)

    @operation
    async def add(self, new: NewChannel, *, idempotency_key: str | None = None) -> ChannelChange:
        """Write it into config.yaml, and connect it."""
        return await self.sender.write("POST", "/channels", ChannelChange, idempotency_key, new)

    @operation
    async def change(
        self, channel: str, settings: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> ChannelChange:
        """Change keys of a channel; None removes a key."""
        body = ChangeChannel(settings=dict(settings))
        return await self.sender.write("PATCH", _ONE, ChannelChange, idempotency_key, body, channel=channel)

    @operation
    async def test(self, channel: str, *, idempotency_key: str | None = None) -> ChannelTrial:
        """Ask the platform who the login of a channel is."""
        return await self.sender.write("POST", f"{_ONE}/test", ChannelTrial, idempotency_key, channel=channel)

    @operation
    async def pause(self, channel: str, *, idempotency_key: str | None = None) -> ChannelChange:
        """Disconnect it and keep it."""
        return await self.sender.write("POST", f"{_ONE}/pause", ChannelChange, idempotency_key, channel=channel)

    @operation
    async def resume(self, channel: str, *, idempotency_key: str | None = None) -> ChannelChange:
        """Connect it again."""
        return await self.sender.write("POST", f"{_ONE}/resume", ChannelChange, idempotency_key, channel=channel)

    @operation
    async def remove(
        self, channel: str, *, drop_waiting: bool = False, idempotency_key: str | None = None
    ) -> ChannelChange:
        """Take it out of config.yaml and disconnect it.

        Args:
            drop_waiting: drop what waits for it; else that waits for a channel of its name.
        """
        query = {"dropWaiting": drop_waiting}
        request = Request("DELETE", _ONE, ChannelChange, {"channel": channel}, query, idempotency_key=idempotency_key)
        return await self.sender.send(request)
