"""`/mcp/servers`: servers of the Model Context Protocol, and their tools."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

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
from gateway.services.caller import Caller
from gateway.web.api.access import Operator, Requires, WithServices
from gateway.web.api.answers import problems

router = APIRouter(prefix="/mcp/servers", tags=["mcp"])

Reader = Annotated[Caller, Depends(Requires("tools:read"))]
Name = Annotated[str, Path(pattern=r"^[a-z0-9_]{1,64}$", description="Name of a server.")]
_ALL = AcceptTools()
_SHARED = SignIn()
_NOBODY = SignOut()
_NONE = "There is no such server."
_NOT_WRITTEN = "The configuration cannot be changed so; says why."


@router.get("", summary="List servers")
async def list_(caller: Reader, services: WithServices) -> Page[McpServer]:
    """Servers of the configuration, with their state and their tools; not for the key of a person."""
    return Page(items=tuple(await services.mcp.listed(caller)))


@router.post("", responses=problems(not_possible=f"It is there. {_NOT_WRITTEN}"), summary="Add a server")
async def add(caller: Operator, services: WithServices, body: NewMcpServer) -> McpServerChange:  # noqa: ARG001 (the operator's alone)
    """Write it into `mcp.servers` in config.yaml, and use it from now on."""
    return await services.mcp.added(body)


@router.post(
    "/{server}/test",
    responses=problems(not_found=_NONE, not_possible="It is not reachable."),
    summary="Connect a server",
)
async def test(caller: Operator, services: WithServices, server: Name) -> McpServer:  # noqa: ARG001 (as above)
    """Connect it now, and read its tools."""
    return await services.mcp.tested(server)


@router.post(
    "/{server}/accept",
    responses=problems(not_found=_NONE, not_possible="They changed since they were seen."),
    summary="Accept tools",
)
async def accept(
    caller: Operator,  # noqa: ARG001 (as above)
    services: WithServices,
    server: Name,
    body: AcceptTools = _ALL,
) -> AcceptedTools:
    """Let the agent have tools that are withheld, as they are now, or as they were seen."""
    return await services.mcp.accepted(server, body.tool, body.pin)


@router.post(
    "/{server}/login",
    responses=problems(not_found=_NONE, not_possible="Nobody signs in to it, or not so."),
    summary="Sign in to a server",
)
async def login(caller: Operator, services: WithServices, server: Name, body: SignIn = _SHARED) -> SignInLink:
    """Make a link by which somebody signs in to it."""
    return await services.mcp.login(caller, server, body.user)


@router.post(
    "/{server}/logout",
    responses=problems(not_found=_NONE, not_possible="Nobody signs in to it, or not so, or nobody is signed in."),
    summary="Sign out of a server",
)
async def logout(caller: Operator, services: WithServices, server: Name, body: SignOut = _NOBODY) -> SignedOut:
    """Forget what somebody's sign-in to it gave, and have its authorization server revoke that."""
    return await services.mcp.logout(caller, server, body.user)


@router.delete(
    "/{server}",
    responses=problems(not_found="It is not there.", not_possible=_NOT_WRITTEN),
    summary="Remove a server",
)
async def remove(caller: Operator, services: WithServices, server: Name) -> McpServerChange:  # noqa: ARG001 (as above)
    """Take it out of `mcp.servers` in config.yaml, end it, and forget its tools."""
    return await services.mcp.removed(server)
