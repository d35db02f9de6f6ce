"""Gathers the tools that turns have; a part of the composition root."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gateway.config import Config, ToolPackageConfig, ToolsConfig
from gateway.config.packages import KindUnusable
from gateway.config.tool_packages import load_tool_package
from gateway.domain.key_files import load_key
from gateway.mcp.servers import McpServers
from gateway.mcp.sign_ins import SignIns
from gateway.mcp.tokens import KEY_NAME
from gateway.runtime.logs import hiding, secrets_in
from gateway.tools.contract import Tool, ToolServices
from gateway.tools.documents import Documents
from gateway.tools.questions import ASK_PERSON
from gateway.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from gateway.app.wiring import Composition
    from gateway.mcp.oauth import Rules
    from gateway.sandbox.probing import Sandbox
    from gateway.sandbox.tiers import Tier

_REFRESH_S = 30.0
_NAME = re.compile(r"[a-z0-9_]{1,64}")

_log = structlog.get_logger(__name__)


async def sandbox_of(config: Config) -> Sandbox | None:
    """Try at the start where programs can run; None where nothing needs it."""
    parts = {
        "run_python": config.tools.python,
        "run_shell": config.tools.shell,
        "reading PDFs": config.web.fetch,
        "the sandbox of MCP servers": config.mcp.has_commands,
    }
    needed = [*filter(parts.get, parts)]
    return await _tried(config, needed) if needed else None


async def _tried(config: Config, needed: Sequence[str]) -> Sandbox:
    from gateway.sandbox.probing import find_sandbox, keep_memory_private  # noqa: PLC0415 (only where it is needed)

    keep_memory_private()
    sandbox = await find_sandbox(config.sandbox.command)
    if sandbox.tier is not None:
        _log.info("sandbox", tier=sandbox.tier.name)
    else:
        _log.error("no_sandbox", left_out=", ".join(needed), remedy=sandbox.remedy)
    return sandbox


async def tier_of(gateway: Composition) -> Tier | None:
    """Where programs run; tried now where the start had no need of it."""
    async with gateway.trying_sandbox:
        if gateway.sandbox is None:
            needs = "PDFs, large pictures, sounds, scripts of skills, the sandbox of MCP servers"
            gateway.sandbox = await _tried(gateway.config, [needs])
        return gateway.sandbox.tier


def documents_of(gateway: Composition) -> Documents:
    """What reads PDFs and pictures; a sandbox is looked for with the first of them."""
    return Documents(partial(tier_of, gateway))


def servers_of(gateway: Composition) -> McpServers:
    """The servers whose tools the agent has; a reload may give the first of them."""
    return McpServers(
        gateway.config.mcp,
        gateway.store.mcp_tools,
        home=gateway.home,
        tier=partial(tier_of, gateway),
        hide=gateway.reloading.hide,
        is_quiet=lambda: gateway.dispatcher.running == 0,
        refresh_s=_REFRESH_S if gateway.store.is_shared else None,
        sign_ins=sign_ins_of(gateway),
    )


def sign_ins_of(gateway: Composition) -> SignIns:
    """How people sign in to servers."""
    remedy = "remove it, and a new one is made. Then people sign in to servers (mcp) again"

    def rules() -> Rules:
        from gateway.mcp.oauth import Rules  # noqa: PLC0415 (the SDK is loaded with the first server)

        web = gateway.live.current.web
        return Rules(ports=web.ports, private_hosts=web.allow_private)

    return SignIns(
        gateway.config.mcp,
        gateway.store.mcp_tokens,
        key=lambda: load_key(gateway.home / KEY_NAME, "mcp-tokens", gateway.secret, remedy=remedy),
        base=lambda: gateway.browser_url and gateway.browser_url.rstrip("/"),
        rules=rules,
    )


def tools_for_messages(gateway: Composition) -> Sequence[Tool]:
    """Those that send messages to other conversations; none where they are off."""
    if not gateway.config.tools.messages:
        return ()
    from gateway.tools.messages import message_tools  # noqa: PLC0415 (only where they are switched on)

    return message_tools(gateway.reaching, gateway.outbox.post)


def tools_for_schedules(gateway: Composition) -> Sequence[Tool]:
    """Those that plan what is done at a time; none where that is off."""
    if not gateway.config.schedules.enabled:
        return ()
    from gateway.schedules.tools import schedule_tools  # noqa: PLC0415 (only where they are switched on)

    return schedule_tools(gateway.schedules, gateway.linking.people.ids, gateway.reaching)


def with_servers(box: Toolbox, servers: McpServers) -> Callable[[], Toolbox]:
    """The tools that there are when it is called: those of servers come and go, and between that nothing is made."""
    made: list[tuple[Sequence[Tool], Toolbox]] = []

    def all_tools() -> Toolbox:
        if not servers.tools:
            return box
        if not made or made[-1][0] is not servers.tools:
            theirs = [tool for tool in servers.tools if box.find(tool.name) is None]
            whole = Toolbox(sorted([*box.tools, *theirs], key=lambda tool: tool.name))
            made[:] = [(servers.tools, whole)]
        return made[-1][1]

    return all_tools


def make_toolbox(
    home: Path,
    own: Sequence[Tool],
    config: ToolsConfig,
    programs: Sequence[Tool] = (),
    left_out: Callable[[str], None] = lambda _why: None,
) -> Toolbox:
    """The gateway's own tools, and those of packages.

    Args:
        left_out: told of each package that is broken, in a line for people.
    """
    tools = [*own, *programs, *([ASK_PERSON] if config.questions else [])]
    if config.delegate:
        from gateway.tools.delegate import DELEGATE_TOOL  # noqa: PLC0415 (only where it is switched on)

        tools.append(DELEGATE_TOOL)
    if config.files:
        from gateway.tools.files import FILE_TOOLS  # noqa: PLC0415 (only where it is switched on)

        tools += FILE_TOOLS
    for chosen in config.packages:
        try:
            tools += made_tools(home, chosen, taken=[tool.name for tool in tools])
        except KindUnusable as error:
            _log.error("tools_left_out", package=chosen.package, error=str(error))
            left_out(f"the tools of {chosen.package} are left out: {error}")
    return Toolbox(sorted(tools, key=lambda tool: tool.name))  # always the same, so that a provider's cache holds


def program_tools(
    config: Config, sandbox: Sandbox | None, left_out: Callable[[str], None] = lambda _why: None
) -> Sequence[Tool]:
    """Those that run programs; none where there is no sandbox for them, and then `left_out` is told."""
    if sandbox is None or not config.tools.has_programs:
        return ()
    if sandbox.tier is None:
        left_out(f"no sandbox works here, so tools that run programs are left out ({sandbox.remedy})")
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
    return [replace(tool, is_findable=True) for tool in made]
