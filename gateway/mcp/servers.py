"""All servers of the configuration: what they offer to the agent, and how they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gateway.config.mcp import McpConfig, McpServerConfig
from gateway.domain.provenance import as_data
from gateway.errors import StoreError
from gateway.mcp.catalogue import INSTRUCTIONS, CataloguedTool, CatalogueStore, Era, Listing, pin_of
from gateway.mcp.errors import SignInFailed
from gateway.mcp.groups import end_left_over
from gateway.mcp.lives import Lives
from gateway.mcp.server import McpServer, Standing, Times
from gateway.mcp.sign_ins import how_to
from gateway.mcp.tokens import Account
from gateway.mcp.tools import is_wanted, tool_of
from gateway.runtime.rhythm import until_next_moment
from gateway.tools.contract import Tool, ToolContext, ToolError, ToolUnavailable

if TYPE_CHECKING:
    from gateway.mcp.life import Link
    from gateway.mcp.sign_ins import SignIns
    from gateway.sandbox.tiers import Tier

# Settings of a server that say what its tools are to the agent, and nothing of the connection.
_OF_USE = ("effects", "trusted", "tools", "start", "approver", "timeout_s")
_log = structlog.get_logger(__name__)


class NoSuchTool(Exception):
    """A server has no such tool; the text says which it has."""


class ToolsChanged(Exception):
    """What a person saw of tools is not what they are now; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """A server, for people.

    Attributes:
        tools: those that it has now and that are wanted.
    """

    name: str
    config: McpServerConfig
    standing: Standing
    tools: Sequence[CataloguedTool]

    @property
    def pin(self) -> str:
        """A hash of all tools as they are."""
        return pin_of(self.tools)


class McpServers:
    """The servers, each with its own task."""

    def __init__(
        self,
        config: McpConfig,
        store: CatalogueStore,
        *,
        home: Path,
        tier: Callable[[], Awaitable[Tier | None]],
        hide: Callable[[str], str],
        is_quiet: Callable[[], bool] = lambda: True,
        refresh_s: float | None = None,
        times: Times | None = None,
        sign_ins: SignIns | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            home: the data directory.
            tier: finds what shuts commands in; asked before the first one is started.
            hide: strikes secrets from what servers say.
            is_quiet: whether no turn runs.
            sign_ins: to those servers that people sign in to; None: there are none.
            refresh_s: how often the catalogue is read again, where other workers may change it.
        """
        self._config = config
        self._store = store
        self._home = home
        self._tier = tier
        self._hide = hide
        self._refresh_s = refresh_s
        self._times = times or Times()
        self._is_quiet = is_quiet
        self.sign_ins = sign_ins
        if sign_ins is not None:
            sign_ins.on_signed_in = self._signed_in
        self.lives = Lives()
        self._servers = {Account(name): self._made(Account(name)) for name in _shared(config.servers)}
        """All people's, and those of persons who use them just now."""
        self._eras: Mapping[str, Era] = {}
        self._catalogue: Sequence[CataloguedTool] = ()
        self._owners: dict[Account, asyncio.Task[None]] = {}
        self._is_running = False
        self._instructions: Mapping[str, str] = {}
        self.tools: Sequence[Tool] = ()
        """Those that the agent has: accepted, and still there."""

    async def open(self) -> None:
        """Read the catalogue, and in which era each server was last asked.

        Raises:
            StoreUnavailable: they cannot be read.
        """
        if self._config.servers:
            await self._read()

    async def run(self) -> None:
        """Run until cancelled, then end all of them."""
        await asyncio.to_thread(end_left_over, self._home / "run")
        self._begin(_shared(self._config.servers))
        self._is_running = True
        try:
            while True:
                await until_next_moment(self._refresh_s or 3_600)
                if self._config.servers:
                    await self._load_if_possible()
        finally:
            self._is_running = False
            await self._end([*self._owners])

    async def take_over(self, config: McpConfig) -> None:
        """Another configuration: end the servers that it has not, or has otherwise, and begin those that are new.

        What a server may do and how its tools are used is taken over without a new connection.
        """
        old = self._config.servers
        kept = {name for name, one in config.servers.items() if name in old and _is_same_connection(old[name], one)}
        ended = [account for account in self._servers if account.server not in kept]
        for account in ended:
            self._servers[account].is_leaving = True
        await self._end(ended)
        for account in ended:
            if account in self._servers:
                await self._servers.pop(account).leave()
        self._config = config
        if self.sign_ins is not None:
            self.sign_ins.config = config
        begun = _shared({name: one for name, one in config.servers.items() if name not in kept})
        self._servers |= {Account(name): self._made(Account(name)) for name in begun}
        try:
            await self._read()
        except StoreError as error:
            _log.warning("mcp_catalogue_not_read", error=str(error))
        self._offer()
        if self._is_running:
            self._begin(begun)

    def _made(self, account: Account) -> McpServer:
        config = self._config.servers[account.server]
        return McpServer(
            account.server,
            link=partial(self._link, account, config),
            on_listing=self._list_also if account.user_id else self._list,
            is_quiet=self._is_quiet,
            protocol=config.protocol,
            is_stopped_when_idle=config.is_command or bool(account.user_id),
            times=self._times,
            lives=self.lives,
        )

    def _begin(self, names: Iterable[str]) -> None:
        known = {entry.server for entry in self._catalogue}
        for name in names:
            is_wanted_now = name not in known or self._config.servers[name].start == "eager"
            if is_wanted_now and not self._lacks_sign_in(name):
                self._servers[Account(name)].wake()
            self._own(Account(name))

    async def _end(self, accounts: Iterable[Account]) -> None:
        tasks = [self._owners.pop(account) for account in accounts if account in self._owners]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _own(self, account: Account) -> bool:
        """Begin the task that owns a server; False where there is one, or is to be none any more."""
        server = self._servers[account]
        if account in self._owners or server.is_leaving:
            return False
        keeping = self._keep_person(account, server) if account.user_id else self._keep(server)
        self._owners[account] = asyncio.create_task(keeping, name=f"mcp {account.server}")
        return True

    async def _keep(self, server: McpServer) -> None:
        while True:
            try:
                await server.run()
            except Exception:  # noqa: BLE001 (a fault of ours costs one server, not the gateway)
                _log.exception("mcp_fault", server=server.name)
                await asyncio.sleep(self._times.longest_rest)

    async def _keep_person(self, account: Account, server: McpServer) -> None:
        try:
            await server.run(is_for_ever=False)
        except Exception:  # noqa: BLE001 (as in `_keep`)
            _log.exception("mcp_fault", server=server.name)
        finally:
            self._owners.pop(account, None)
            if not server.is_leaving:
                del self._servers[account]

    def _of(self, account: Account) -> McpServer:
        """The server; with a connection of a person's own, its task ends when it is idle."""
        if account not in self._servers:
            self._servers[account] = self._made(account)
            self._servers[account].remember(self._eras.get(account.server))
            self._servers[account].wake()
            self._own(account)
        return self._servers[account]

    async def _reach(self, name: str, context: ToolContext, *, lacks_permission: bool = False) -> McpServer:
        """The server for whoever calls; `lacks_permission`: they must allow more first.

        Raises:
            ToolError: nobody is signed in.
            ToolUnavailable: it is configured no more.
        """
        config = self._config.servers.get(name)
        if config is None:
            raise ToolUnavailable(f"the server {name} is not reachable now: it was taken out of the configuration")
        if self.sign_ins is None or not config.needs_sign_in:
            return self._servers[Account(name)]
        if not config.is_per_person:
            account = Account(name)
        elif context.scope.user_id is None:
            raise ToolError(f"{name} works with an account of one person, so only in a direct chat with that person")
        else:
            account = Account(name, context.scope.user_id)
        try:
            problem = await self.sign_ins.problem(account, context, lacks_permission=lacks_permission)
        except SignInFailed as error:
            raise ToolError(str(error)) from error
        if problem is not None:
            raise ToolError(problem)
        return self._of(account)

    def _signed_in(self, account: Account) -> None:
        self._of(account).hurry()

    async def sign_out(self, account: Account) -> bool | None:
        """End a connection of a person's own, too. As `SignIns.sign_out`."""
        is_revoked = None if self.sign_ins is None else await self.sign_ins.sign_out(account)
        if account.user_id:
            await self._end([account])
        return is_revoked

    def _lacks_sign_in(self, name: str) -> bool:
        return (
            self.sign_ins is not None
            and self._config.servers[name].needs_sign_in
            and name not in self.sign_ins.tokens.servers
        )

    def turn_ended(self) -> None:
        """Lists that changed during a turn are read now."""
        for server in self._servers.values():
            server.reread()

    # ---- what people ask --------------------------------------------------------------------------------------------

    @property
    def names(self) -> Sequence[str]:
        """Of all of them."""
        return sorted(self._config.servers)

    def views(self) -> Sequence[ServerView]:
        """All of them, by name."""
        return [self.view(name) for name in self.names]

    def view(self, name: str) -> ServerView:
        """One of them, by a name that there is."""
        tools = [entry for entry in self._catalogue if entry.server == name and self._is_offered(entry)]
        now = self._standing(name)
        standing = replace(now, said=now.said.copy())
        return ServerView(name=name, config=self._config.servers[name], standing=standing, tools=tools)

    def _standing(self, name: str) -> Standing:
        if self._lacks_sign_in(name):
            command = how_to(name, is_per_person=self._config.servers[name].is_per_person)
            return Standing(state="resting", error=f"nobody has signed in yet; run {command}, and open the link")
        now = [server.standing for account, server in self._servers.items() if account.server == name]
        return max(now, key=lambda one: (one.state == "up", one.since), default=Standing())

    async def test(self, name: str) -> ServerView:
        """Connect it now and read its tools, also where a command asks and nothing runs.

        Raises:
            ToolUnavailable: it is not reachable; says why.
        """
        standing = self._standing(name)
        if self._lacks_sign_in(name):
            raise ToolUnavailable(f"{name}: {standing.error}")
        account = Account(name)
        if account not in self._servers:
            raise ToolUnavailable(f"each person has an account of their own at {name}; who signs in connects it")
        is_alone = self._own(account)
        try:
            await self._servers[account].tried()
            return self.view(name)
        finally:
            if is_alone and not self._is_running:
                await self._end([account])

    async def accept(self, name: str, tool: str | None = None, *, pin: str | None = None) -> Sequence[str]:
        """Accept what is withheld as it is now, all of it or one tool by either of its names; our names of them.

        Args:
            pin: what was seen, of the tool or of all of them (`ServerView.pin`); None: whatever there is now.

        Raises:
            NoSuchTool: it has no such tool.
            ToolsChanged: it is not what was seen any more; nothing was accepted.
            StoreUnavailable: it could not be kept.
        """
        await self._load()
        there = self.view(name).tools
        chosen = [entry for entry in there if tool in (None, entry.tool, entry.definition.name)]
        if tool is not None and not chosen:
            names = ", ".join(entry.definition.name for entry in there) or "none"
            raise NoSuchTool(f"the server {name} has no tool {tool!r}; there are: {names}")
        if pin is not None and pin != (pin_of(chosen) if tool is None else chosen[0].definition.pin):
            what = f"the tools of {name}" if tool is None else f"the tool {tool}"
            raise ToolsChanged(f"{what} changed since you looked, and nothing was accepted; look again")
        withheld = [entry for entry in chosen if not entry.is_accepted]
        await self._store.accept(name, [(entry.definition.name, entry.definition.pin) for entry in withheld])
        await self._load()
        accepted = {entry.tool for entry in self._catalogue if entry.is_accepted}
        return [entry.tool for entry in withheld if entry.tool in accepted]

    @property
    def problems(self) -> Sequence[str]:
        """Of servers that are down, one line each, with what to do."""
        lacking = [name for name in self.names if self._lacks_sign_in(name)]
        return [
            *(f"the server {name} (mcp): {self._standing(name).error}" for name in lacking),
            *(
                f"the server {name} (mcp) is not reachable since {one.since:%Y-%m-%d %H:%M} UTC: {one.error}"
                for name in _shared(self._config.servers)
                if (one := self._standing(name)).state == "resting" and name not in lacking
            ),
        ]

    # ---- what servers tell ------------------------------------------------------------------------------------------

    async def _list(self, name: str, listing: Listing) -> None:
        try:
            found = listing.kept(with_instructions=self._config.servers[name].instructions)
            await self._store.list_again(name, found, listing.era)
            await self._load()
        except StoreError as error:  # what is kept stays in force; the next connection tries it again
            _log.warning("mcp_list_not_kept", server=name, error=str(error))
            return
        withheld = [entry.tool for entry in self.view(name).tools if not entry.is_accepted]
        if withheld:
            remedy = f"ethos mcp accept {name}"
            _log.warning("mcp_tools_withheld", server=name, tools=len(withheld), remedy=remedy)

    async def _list_also(self, name: str, listing: Listing) -> None:
        """What one person has; another may have more, so nothing is gone by it."""
        here = {one.name for one in listing.tools}
        known = [entry for entry in self._catalogue if entry.server == name and entry.is_there]
        others = [entry.definition for entry in known if entry.definition.name not in here]
        await self._list(name, replace(listing, tools=[*listing.tools, *others]))

    async def _read(self) -> None:
        self._eras = await self._store.eras()
        for account, server in self._servers.items():
            server.remember(self._eras.get(account.server))
        await self._load()

    async def _load_if_possible(self) -> None:
        try:
            await self._load()
        except StoreError as error:
            _log.warning("mcp_catalogue_not_read", error=str(error))

    async def _load(self) -> None:
        before, self._catalogue = self._catalogue, await self._store.tools()
        if self.sign_ins is not None and self._config.has_oauth:
            await self.sign_ins.tokens.look()
        if self._catalogue != before:  # else what is made of it stays the same object
            self._offer()

    def _offer(self) -> None:
        """Make of the catalogue what the agent has."""
        offered = [
            entry
            for entry in self._catalogue
            if entry.server in self._config.servers and entry.is_accepted and self._is_offered(entry)
        ]
        self.tools = [
            tool_of(entry, self._config.servers[entry.server], partial(self._reach, entry.server))
            for entry in offered
            if entry.definition.name != INSTRUCTIONS
        ]
        self._instructions = {
            entry.server: entry.definition.description for entry in offered if entry.definition.name == INSTRUCTIONS
        }

    def instructions(self, names: Collection[str]) -> Mapping[str, str]:
        """By server, what it says of itself and a person has accepted; of servers that have one of these tools."""
        return {
            server: text if self._config.servers[server].trusted else as_data(f"the server {server}", text=text)
            for server, text in self._instructions.items()
            if any(name.startswith(f"{server}__") for name in names)
        }

    def _is_offered(self, entry: CataloguedTool) -> bool:
        return entry.is_there and is_wanted(entry.definition, self._config.servers[entry.server])

    def _link(self, account: Account, config: McpServerConfig, standing: Standing) -> AbstractAsyncContextManager[Link]:
        from gateway.mcp.links import Place, command_link, http_link  # noqa: PLC0415 (as in `McpServer`)

        if config.oauth is not None and self.sign_ins is not None:
            return http_link(config, partial(self.sign_ins.authorized, account))
        if not config.is_command:
            return http_link(config)
        return command_link(account.server, config, Place(data=self._home, tier=self._tier), standing.said, self._hide)


def _shared(servers: Mapping[str, McpServerConfig]) -> Sequence[str]:
    """Those that have one connection for all people."""
    return [name for name, one in servers.items() if not one.is_per_person]


def _is_same_connection(one: McpServerConfig, other: McpServerConfig) -> bool:
    return one.model_copy(update={name: getattr(other, name) for name in _OF_USE}) == other
