"""Gathers the tools that turns have; a part of the composition root."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gateway.config import Config, ToolPackageConfig, ToolsConfig
from gateway.config.packages import KindUnusable
from gateway.config.tool_packages import load_tool_package
from gateway.runtime.logs import hiding, secrets_in
from gateway.tools.contract import Tool, ToolServices
from gateway.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from gateway.app.wiring import Composition
    from gateway.mcp.servers import McpServers
    from gateway.sandbox.probing import Sandbox
    from gateway.sandbox.tiers import Tier

_REFRESH_S = 30.0
_NAME = re.compile(r"[a-z0-9_]{1,64}")

_log = structlog.get_logger(__name__)


async def sandbox_of(config: Config) -> Sandbox | None:
    """Try at the start where programs can run; None where nothing needs it."""
    if not (config.tools.has_programs or config.mcp.has_commands):
        return None
    from gateway.sandbox.probing import find_sandbox  # noqa: PLC0415 (only where it is switched on)

    sandbox = await find_sandbox(config.sandbox.command)
    if sandbox.tier is None:
        _log.error("no_sandbox", left_out=_left_out(config), remedy=sandbox.remedy)
    else:
        _log.info("sandbox", tier=sandbox.tier.name)
    return sandbox


def _left_out(config: Config) -> str:
    what = ("run_python, run_shell", config.tools.has_programs), ("the sandbox of MCP servers", config.mcp.has_commands)
    return "; ".join(name for name, is_wanted in what if is_wanted)


def servers_of(gateway: Composition) -> McpServers | None:
    """The servers whose tools the agent has; None where there are none."""
    config = gateway.config.mcp
    if not config.servers:
        return None
    from gateway.mcp.servers import McpServers  # noqa: PLC0415 (only where there are any)

    async def tier() -> Tier | None:
        gateway.sandbox = gateway.sandbox or await sandbox_of(gateway.config)
        return None if gateway.sandbox is None else gateway.sandbox.tier

    return McpServers(
        config,
        gateway.store.mcp_tools,
        home=gateway.home,
        tier=tier,
        hide=gateway.reloading.hide,
        is_quiet=lambda: gateway.dispatcher.running == 0,
        refresh_s=_REFRESH_S if gateway.store.is_shared else None,
    )


def with_servers(box: Toolbox, servers: McpServers | None) -> Callable[[], Toolbox]:
    """The tools that there are when it is called: those of servers come and go."""
    if servers is None:
        return lambda: box
    return lambda: Toolbox([*box.tools, *(tool for tool in servers.tools if box.find(tool.name) is None)])


def make_toolbox(home: Path, own: Sequence[Tool], config: ToolsConfig, programs: Sequence[Tool] = ()) -> Toolbox:
    """The gateway's own tools, and those of packages; a package that is broken is left out, and the log says why."""
    tools = [*own, *programs]
    if config.files:
        from gateway.tools.files import FILE_TOOLS  # noqa: PLC0415 (only where it is switched on)

        tools += FILE_TOOLS
    for chosen in config.packages:
        try:
            tools += made_tools(home, chosen, taken=[tool.name for tool in tools])
        except KindUnusable as error:
            _log.error("tools_left_out", package=chosen.package, error=str(error))
    return Toolbox(tools)


def program_tools(config: Config, sandbox: Sandbox | None) -> Sequence[Tool]:
    """Those that run programs; none where there is no sandbox for them."""
    if sandbox is None or sandbox.tier is None:
        return ()
    from gateway.tools.programs import Programs  # noqa: PLC0415 (only where it is switched on)

    programs = Programs(tier=sandbox.tier, network=config.sandbox.network)
    return programs.tools(python=config.tools.python, shell=config.tools.shell)


def made_tools(home: Path, chosen: ToolPackageConfig, *, taken: Sequence[str] = ()) -> Sequence[Tool]:
    """The tools of one package.

    Args:
        taken: names that other tools have.

    Raises:
        KindUnusable: it cannot be loaded, or its tools cannot be used; says what to do.
    """
    if chosen.fault:
        raise KindUnusable(chosen.fault)
    package = load_tool_package(chosen.package)
    try:
        made = [*package.tools(chosen.settings, ToolServices(state_dir=home / "tools" / chosen.package))]
    except Exception as error:
        hide = hiding(secrets_in(chosen.settings))  # a library may quote an address
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        text = f"`tools` of {chosen.package} failed ({hide(reason)}); correct its keys, or ask its author"
        raise KindUnusable(text) from error
    names: list[str] = []
    for tool in made:
        if not isinstance(tool, Tool):
            raise KindUnusable(f"{chosen.package} gives a {type(tool).__name__}; expected `Tool`s, ask its author")
        if not _NAME.fullmatch(tool.name):
            raise KindUnusable(f"{tool.name!r} is not a tool's name; expected 1 to 64 of a-z 0-9 _, ask its author")
        if tool.name in (*taken, *names):
            raise KindUnusable(f"there is a tool {tool.name} already; take one of the two packages out")
        names.append(tool.name)
    return made
