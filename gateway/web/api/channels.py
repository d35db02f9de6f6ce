"""`/channels`: what the platforms are, a login tried, and channels added, changed, paused, tested and removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

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
from gateway.web.api.access import Operator, WithServices
from gateway.web.api.answers import problems

router = APIRouter(prefix="/channels", tags=["channels"])

Name = Annotated[str, Path(max_length=64, description="Name of a channel.")]
Kind = Annotated[str, Path(max_length=200, description="Name of a kind.")]
DropWaiting = Annotated[
    bool, Query(alias="dropWaiting", description="Drop what waits for it; else that waits for a channel of its name.")
]
_NONE = "There is no such channel."
_NOT_WRITTEN = "The configuration cannot be changed so; says why."
_NO_TRIAL = "A library is missing, or the kind cannot try a login."


@router.get("", summary="List channels of the configuration")
async def list_(caller: Operator, services: WithServices) -> Page[Channel]:
    """All channels of the configuration, paused ones too, with their state and what waits for them."""
    return Page(items=tuple(await services.channels.listed(caller)))


@router.get("/kinds", summary="List kinds of channels")
async def kinds(caller: Operator, services: WithServices) -> Page[ChannelKind]:
    """The kinds that come with the gateway, and what to install for those that lack a library."""
    return Page(items=tuple(await services.channels.kinds(caller)))


@router.get("/kinds/{kind}", responses=problems(not_found="There is no such kind."), summary="Get a kind of channel")
async def kind(caller: Operator, services: WithServices, kind: Kind) -> ChannelKindDetail:
    """A kind with its keys, and the steps of the platform's own console that lead to a login."""
    return await services.channels.kind(caller, kind)


@router.post(
    "/try",
    responses=problems(not_found="There is no such kind, or no such channel.", not_possible=_NO_TRIAL),
    summary="Try a login",
)
async def try_login(caller: Operator, services: WithServices, body: ChannelLogin) -> ChannelTrial:
    """Ask the platform who a login is; nothing is written, sent or changed."""
    return await services.channels.tried(caller, body)


@router.post(
    "", responses=problems(not_found="There is no such kind.", not_possible=_NOT_WRITTEN), summary="Add a channel"
)
async def add(caller: Operator, services: WithServices, body: NewChannel) -> ChannelChange:
    """Write it into `channels` in config.yaml, and connect it."""
    return await services.channels.added(caller, body)


@router.get("/{channel}", responses=problems(not_found=_NONE), summary="Get a channel")
async def get(caller: Operator, services: WithServices, channel: Name) -> ChannelDetail:
    """A channel with its keys; of a secret only that it is there."""
    return await services.channels.get(caller, channel)


@router.patch(
    "/{channel}", responses=problems(not_found=_NONE, not_possible=_NOT_WRITTEN), summary="Change keys of a channel"
)
async def change(caller: Operator, services: WithServices, channel: Name, body: ChangeChannel) -> ChannelChange:
    """Change keys of a channel in config.yaml; it is connected again where that needs it."""
    return await services.channels.changed(caller, channel, body)


@router.post(
    "/{channel}/test",
    responses=problems(not_found=_NONE, not_possible=_NO_TRIAL),
    summary="Test the login of a channel",
)
async def test(caller: Operator, services: WithServices, channel: Name) -> ChannelTrial:
    """Ask the platform who the login of a channel is; the channel may be connected or paused."""
    return await services.channels.tested(caller, channel)


@router.post(
    "/{channel}/pause", responses=problems(not_found=_NONE, not_possible=_NOT_WRITTEN), summary="Pause a channel"
)
async def pause(caller: Operator, services: WithServices, channel: Name) -> ChannelChange:
    """Disconnect it and keep it (`enabled: false`); what waits for it waits on."""
    return await services.channels.paused(caller, channel)


@router.post(
    "/{channel}/resume", responses=problems(not_found=_NONE, not_possible=_NOT_WRITTEN), summary="Resume a channel"
)
async def resume(caller: Operator, services: WithServices, channel: Name) -> ChannelChange:
    """Connect a paused channel again."""
    return await services.channels.resumed(caller, channel)


@router.delete("/{channel}", responses=problems(not_found=_NONE, not_possible=_NOT_WRITTEN), summary="Remove a channel")
async def remove(
    caller: Operator,
    services: WithServices,
    channel: Name,
    *,
    drop_waiting: DropWaiting = False,
) -> ChannelChange:
    """Take it out of config.yaml and disconnect it; conversations and people stay."""
    return await services.channels.removed(caller, channel, drop_waiting=drop_waiting)
