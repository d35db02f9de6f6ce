"""Gathers the tools that turns have; a part of the composition root."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import structlog

from gateway.config import ToolPackageConfig, ToolsConfig
from gateway.config.packages import KindUnusable
from gateway.config.tool_packages import load_tool_package
from gateway.runtime.logs import hiding, secrets_in
from gateway.tools.contract import Tool, ToolServices
from gateway.tools.toolbox import Toolbox

_NAME = re.compile(r"[a-z0-9_]{1,64}")

_log = structlog.get_logger(__name__)


def make_toolbox(home: Path, own: Sequence[Tool], config: ToolsConfig) -> Toolbox:
    """The gateway's own tools, and those of packages; a package that is broken is left out, and the log says why."""
    tools = [*own]
    if config.files:
        from gateway.tools.files import FILE_TOOLS  # noqa: PLC0415 (only where it is switched on)

        tools += FILE_TOOLS
    for chosen in config.packages:
        try:
            tools += made_tools(home, chosen, taken=[tool.name for tool in tools])
        except KindUnusable as error:
            _log.error("tools_left_out", package=chosen.package, error=str(error))
    return Toolbox(tools)


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
