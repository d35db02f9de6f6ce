"""The two ways to a server: a command that runs here, shut in, and an address."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.mcp import McpServerConfig
from gateway.files.atomic import make_private_directory
from gateway.mcp.errors import CannotStart
from gateway.mcp.http import Authorize, http_streams
from gateway.mcp.stdio import Launch, StdioProcess
from gateway.sandbox.running import temporary
from gateway.sandbox.tiers import Limits, Plan, Tier

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

# A server runs for days, and some reserve far more memory than they use.
_LIMITS = Limits(cpu_s=1 << 30, memory_bytes=1 << 46, processes=256, file_bytes=1 << 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where commands run.

    Attributes:
        data: the data directory; relative paths of the configuration are below it.
        tier: what shuts them in; None where nothing works here.
    """

    data: Path
    tier: Callable[[], Awaitable[Tier | None]]

    def paths(self, named: Sequence[str]) -> Sequence[Path]:
        """Files and directories that the configuration names."""
        return [self.data / Path(one).expanduser() for one in named]


@asynccontextmanager
async def command_link(
    name: str, config: McpServerConfig, place: Place, said: deque[str], hide: Callable[[str], str]
) -> AsyncIterator[StdioProcess]:
    """A command, which is not started yet.

    Raises:
        CannotStart: it is to be without a network, and nothing here can see to that.
    """
    tier = await place.tier()
    if tier is None and config.sandbox.network == "none":
        raise CannotStart("no sandbox works here, so its network cannot be closed; `ethos doctor` says what to do")
    home = place.data / "mcp" / name
    for directory in (home, place.data / "run"):
        await asyncio.to_thread(make_private_directory, directory)
    async with temporary() as empty:
        plan = Plan(
            workspace=home,
            temporary=empty,
            readable=place.paths(config.sandbox.read),
            writable=place.paths(config.sandbox.write),
            variables={key: value.get_secret_value() for key, value in config.env.items()},
            network=config.sandbox.network == "open",
            limits=_LIMITS,
        )
        command = config.command if tier is None else tier.command(plan, config.command)
        note = place.data / "run" / f"{name}.group"
        launch = Launch(command=command, directory=home, environment=plan.environment, note=note)
        yield StdioProcess(launch, said=said, hide=hide)


@dataclass(frozen=True, slots=True)
class HttpLink:
    """An address."""

    config: McpServerConfig
    authorize: Authorize
    fault: None = None

    def streams(self) -> AbstractAsyncContextManager[TransportStreams]:
        """Open it."""
        headers = {key: value.get_secret_value() for key, value in self.config.headers.items()}
        return http_streams(self.config.url or "", headers, self.authorize)


@asynccontextmanager
async def http_link(config: McpServerConfig, authorize: Authorize = lambda inner: inner) -> AsyncIterator[HttpLink]:
    """An address, which is not connected yet."""
    yield HttpLink(config, authorize)
