"""Servers of the Model Context Protocol: added, seen, tried, removed, and their tools accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from gateway.config.editing import REMOVED, Secret, file_now
from gateway.config.mcp import McpServerConfig, names_secret
from gateway.errors import FileError
from gateway.files.positions.yaml import value_at
from gateway.mcp.catalogue import CataloguedTool, CatalogueStore
from gateway.mcp.errors import SignInFailed
from gateway.mcp.servers import McpServers, NoSuchTool, ServerView, ToolsChanged
from gateway.mcp.tokens import Account, TokenStore
from gateway.mcp.tools import effect_of
from gateway.sdk.models import mcp as wire
from gateway.services.caller import Caller, NotFound, Refused
from gateway.services.config_writing import ConfigWriting
from gateway.tools.contract import ToolUnavailable

if TYPE_CHECKING:
    from gateway.mcp.sign_ins import SignIns
    from gateway.services.naming import Naming

_SERVERS = ("mcp", "servers")


class McpService:
    """The servers, for the operator."""

    def __init__(
        self,
        servers: McpServers,
        store: CatalogueStore,
        hide: Callable[[str], str],
        *,
        home: Path,
        writing: ConfigWriting,
        is_running: Callable[[], bool],
        tokens: TokenStore,
        naming: Naming,
    ) -> None:
        """`hide` strikes secrets from a text."""
        self._tokens = tokens
        self._naming = naming
        self._servers = servers
        self._store = store
        self._hide = hide
        self._home = home
        self._writing = writing
        self._is_running = is_running
        self._changing = asyncio.Lock()

    async def listed(self, caller: Caller) -> Sequence[wire.McpServer]:
        """All of them, by name.

        Raises:
            NotAllowed: the caller sees one person only, and what servers say belongs to no person alone.
        """
        caller.refuse_others(None)
        accounts = await self._tokens.signed_in()
        return [self._shown(one, accounts) for one in self._servers.views()]

    async def tested(self, name: str) -> wire.McpServer:
        """One, connected now.

        Raises:
            NotFound: there is none of that name.
            Refused: it is not reachable; says why.
        """
        self._check_name(name)
        try:
            return self._shown(await self._servers.test(name), await self._tokens.signed_in())
        except ToolUnavailable as error:
            raise Refused(self._hide(str(error))) from error

    async def accepted(self, name: str, tool: str | None, pin: str | None = None) -> wire.AcceptedTools:
        """Tools that the agent has from now on, as they are.

        Args:
            pin: of the tool, or else of the server, as the person saw it; None: whatever there is now.

        Raises:
            NotFound: there is no such server, or it has no such tool.
            Refused: it is not what the person saw any more.
        """
        self._check_name(name)
        try:
            return wire.AcceptedTools(tools=tuple(await self._servers.accept(name, tool, pin=pin)))
        except NoSuchTool as error:
            raise NotFound(str(error)) from error
        except ToolsChanged as error:
            raise Refused(str(error)) from error

    async def login(self, caller: Caller, name: str, user: str | None) -> wire.SignInLink:
        """The link by which to sign in, as all people together or as one.

        Args:
            user: an id or an account, where each person has an account of their own.

        Raises:
            NotFound: there is no such server.
            NotNamed: there is no such user.
            Refused: nobody signs in to it, or the gateway does not run.
        """
        account, sign_ins = await self._account(caller, name, user)
        try:
            link = sign_ins.link(account)
        except SignInFailed as error:
            raise Refused(str(error)) from error
        return wire.SignInLink(url=link, expires_at=datetime.now(UTC) + timedelta(seconds=sign_ins.lifetime_s))

    async def logout(self, caller: Caller, name: str, user: str | None) -> wire.SignedOut:
        """Forget what somebody's sign-in gave, and tell the authorization server.

        Args:
            user: as in `login`.

        Raises:
            NotFound, NotNamed: as `login`.
            Refused: nobody signs in to it, or nobody is signed in.
        """
        account, _ = await self._account(caller, name, user)
        is_revoked = await self._servers.sign_out(account)
        if is_revoked is None:
            raise Refused(f"nobody is signed in to {name}" if user is None else f"{user} is not signed in to {name}")
        return wire.SignedOut(server=name, is_revoked=is_revoked)

    async def _account(self, caller: Caller, name: str, user: str | None) -> tuple[Account, SignIns]:
        self._check_name(name)
        config, sign_ins = self._servers.view(name).config, self._servers.sign_ins
        if sign_ins is None or not config.needs_sign_in:
            raise Refused(
                f"nobody signs in to {name}; `oauth: gateway` or `oauth: per_person` in its keys changes that"
            )
        if config.is_per_person is (user is None):
            wanted = "name the person with `--user`" if user is None else "leave the person out"
            raise Refused(f"{name} has `oauth: {'per_person' if config.is_per_person else 'gateway'}`; {wanted}")
        return Account(name, "" if user is None else await self._naming.user(caller, user)), sign_ins

    async def added(self, server: wire.NewMcpServer) -> wire.McpServerChange:
        """Write a server into config.yaml, and use it.

        Raises:
            Refused: there is one of that name, or the configuration cannot be changed so; says which key is wrong.
        """
        entry = server.model_dump(mode="json", by_alias=False, exclude={"name"}, exclude_defaults=True)
        async with self._changing:
            if await self._is_in_file(server.name):
                raise Refused(f"there is a server {server.name} in config.yaml; remove it first, or take another name")
            return await self._written(server.name, _with_secrets(entry))

    async def removed(self, name: str) -> wire.McpServerChange:
        """Take a server out of config.yaml, end it, and forget its tools and who signed in to it.

        Raises:
            NotFound: it is not there, and nothing is known of it.
            Refused: the configuration cannot be changed.
        """
        async with self._changing:
            is_there = await self._is_in_file(name)
            done = await self._written(name, REMOVED) if is_there else None
            signed_out = await self._tokens.forget_server(name)
            if not await self._store.forget(name) and not signed_out and done is None:
                self._refuse_unknown(name)
            return done or wire.McpServerChange(server=name, is_in_use=self._is_running(), notes=())

    async def _is_in_file(self, name: str) -> bool:
        try:
            now = await asyncio.to_thread(file_now, self._home)
            return value_at(now.values, (*_SERVERS, name)) is not None
        except FileError as error:
            raise Refused(str(error)) from error

    async def _written(self, name: str, entry: object) -> wire.McpServerChange:
        written = await self._writing.write({(*_SERVERS, name): entry})
        return wire.McpServerChange(server=name, is_in_use=written.is_in_use, notes=tuple(written.notes))

    def _check_name(self, name: str) -> None:
        if name not in self._servers.names:
            self._refuse_unknown(name)

    def _refuse_unknown(self, name: str) -> NoReturn:
        there = ", ".join(self._servers.names) or "none"
        raise NotFound(f"there is no server {name!r} in `mcp.servers`; there are: {there}")

    def _shown(self, view: ServerView, accounts: Sequence[Account]) -> wire.McpServer:
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
            pin=view.pin,
            signed_in=tuple(account.user_id for account in accounts if account.server == view.name),
        )


def _with_secrets(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry, with what its name says is secret in a file of its own."""
    parts = {
        part: {
            key: Secret(value) if names_secret(key) and "${" not in value else value
            for key, value in entry[part].items()
        }
        for part in ("headers", "env")
        if entry.get(part)
    }
    return {**entry, **parts}


def _place(config: McpServerConfig) -> str:
    """Without arguments and queries, in which secrets may be."""
    if config.url is not None:
        return urlsplit(config.url)._replace(query="", fragment="").geturl()
    return config.command[0] + (" …" if config.command[1:] else "")


def _shown_tool(entry: CataloguedTool, view: ServerView) -> wire.McpTool:
    state: wire.Acceptance = "accepted" if entry.is_accepted else "changed" if entry.is_changed else "new"
    return wire.McpTool(
        name=entry.tool,
        server_name=entry.definition.name,
        description=entry.definition.description,
        arguments=entry.definition.schema,
        effect=effect_of(entry.definition, view.config),
        state=state,
        difference=entry.difference,
        pin=entry.definition.pin,
    )
