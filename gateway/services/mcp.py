"""Servers of the Model Context Protocol: seen, tried, and their tools accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from gateway.config.mcp import McpServerConfig
from gateway.mcp.catalogue import CataloguedTool, CatalogueStore
from gateway.mcp.tools import effect_of
from gateway.sdk.models import mcp as wire
from gateway.services.caller import Caller, NotFound, Refused
from gateway.tools.contract import ToolUnavailable

if TYPE_CHECKING:
    from gateway.mcp.servers import McpServers, ServerView


class McpService:
    """The servers, for the operator."""

    def __init__(self, servers: McpServers | None, store: CatalogueStore, hide: Callable[[str], str]) -> None:
        """`servers`: None where the configuration has none; `hide` strikes secrets from a text."""
        self._servers = servers
        self._store = store
        self._hide = hide

    async def listed(self, caller: Caller) -> Sequence[wire.McpServer]:
        """All of them, by name.

        Raises:
            NotAllowed: the caller sees one person only, and what servers say belongs to no person alone.
        """
        caller.refuse_others(None)
        return [] if self._servers is None else [self._shown(one) for one in self._servers.views()]

    async def tested(self, name: str) -> wire.McpServer:
        """One, connected now.

        Raises:
            NotFound: there is none of that name.
            Refused: it is not reachable; says why.
        """
        servers = self._known(name)
        try:
            return self._shown(await servers.test(name))
        except ToolUnavailable as error:
            raise Refused(self._hide(str(error))) from error

    async def accepted(self, name: str, tool: str | None) -> wire.AcceptedTools:
        """Tools that the agent has from now on, as they are.

        Raises:
            NotFound: there is no such server, or it has no such tool.
        """
        from gateway.mcp.servers import NoSuchTool  # noqa: PLC0415 (it is loaded where there are servers)

        servers = self._known(name)
        try:
            return wire.AcceptedTools(tools=tuple(await servers.accept(name, tool)))
        except NoSuchTool as error:
            raise NotFound(str(error)) from error

    async def forget(self, name: str) -> None:
        """Forget the tools of a server that is configured no more.

        Raises:
            NotFound: nothing is known of it.
            Refused: it is configured.
        """
        if self._servers is not None and name in self._servers.names:
            raise Refused(f"take {name} out of `mcp.servers` in config.yaml and restart the gateway first")
        if not await self._store.forget(name):
            raise NotFound(f"nothing is kept of a server {name}")

    def _known(self, name: str) -> McpServers:
        if self._servers is None or name not in self._servers.names:
            _refuse_unknown(name, () if self._servers is None else self._servers.names)
        return self._servers

    def _shown(self, view: ServerView) -> wire.McpServer:
        config, standing = view.config, view.standing
        return wire.McpServer(
            name=view.name,
            place=_place(config),
            state=standing.state,
            since=standing.since,
            error=standing.error and self._hide(standing.error),
            said=tuple(standing.said),
            left_out=tuple(f"{name}: {why}" for name, why in standing.left_out.items()),
            tools=tuple(_shown_tool(entry, view) for entry in view.tools),
        )


def _place(config: McpServerConfig) -> str:
    """Without arguments and queries, in which secrets may be."""
    if config.url is not None:
        return urlsplit(config.url)._replace(query="", fragment="").geturl()
    return config.command[0] + (" …" if config.command[1:] else "")


def _refuse_unknown(name: str, there: Sequence[str]) -> NoReturn:
    raise NotFound(f"there is no server {name!r} in `mcp.servers`; there are: {', '.join(there) or 'none'}")


def _shown_tool(entry: CataloguedTool, view: ServerView) -> wire.McpTool:
    state: wire.Acceptance = "accepted" if entry.is_accepted else "changed" if entry.is_changed else "new"
    return wire.McpTool(
        name=entry.tool,
        server_name=entry.definition.name,
        description=entry.definition.description,
        arguments=entry.definition.schema,
        effect=effect_of(entry.definition, view.config),
        state=state,
    )
