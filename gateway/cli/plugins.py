"""`ethos plugins`: packages of other authors, those that are used and those that are only installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson
from gateway.cli.output import print_json, print_table, say

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.config import Config, ToolPackageConfig

app = typer.Typer(help="See which packages of other authors are used.", invoke_without_command=True)

Row = tuple[str, str, str]


@app.callback()
def plugins(context: typer.Context, as_json: AsJson = False) -> None:
    """List packages of other authors that the configuration names, and those that are installed and not named."""
    if context.invoked_subcommand is not None:
        return
    from gateway.config.file import load_config

    found = list(_rows(load_config().config))
    if as_json:
        print_json([dict(zip(("package", "for", "state"), row, strict=True)) for row in found])
    elif not found:
        say("Only what comes with the gateway is used.")
    else:
        print_table(("package", "for", "state"), found, flexible=("state",))


@app.command()
def check(
    package: Annotated[str, typer.Argument(help="Its dotted name, as in `tools.packages`.")], as_json: AsJson = False
) -> None:
    """Load a package of tools as the gateway would, and say what is wrong with its tools."""
    from gateway.app.tools import made_tools
    from gateway.config.file import load_config
    from gateway.config.packages import KindUnusable
    from gateway.errors import ConfigError
    from gateway.files.home import data_directory
    from gateway.tools.checking import faults_of

    configured = {one.package: one for one in load_config().config.tools.packages}
    try:
        chosen = configured.get(package) or _with_defaults(package)
        tools = made_tools(data_directory(), chosen)
    except KindUnusable as error:
        raise ConfigError([str(error)]) from error
    faults = list(faults_of(tools))
    if as_json:
        print_json({"package": package, "tools": {tool.name: tool.effect for tool in tools}, "faults": faults})
    for line in faults if not as_json else ():
        say(line)
    if faults:
        raise typer.Exit(1)
    if not as_json:
        named = ", ".join(f"{tool.name} ({tool.effect})" for tool in tools)
        say(f"{package} is good: {named or 'it has no tools'}.")


def _with_defaults(package: str) -> ToolPackageConfig:
    """As the configuration would have it that names the package alone."""
    from pydantic import ValidationError

    from gateway.config import ToolPackageConfig
    from gateway.config.packages import KindUnusable
    from gateway.config.tool_packages import load_tool_package

    try:
        return ToolPackageConfig(package=package, settings=load_tool_package(package).config())
    except ValidationError as error:
        keys = ", ".join(str(one["loc"][0]) for one in error.errors())
        raise KindUnusable(f"{package} needs {keys}; put it into `tools.packages` with these keys first") from error


def _rows(config: Config) -> Iterator[Row]:
    from gateway.config.tool_packages import installed_packages

    for name, channel in config.channels.items():
        if "." in channel.kind:
            yield channel.kind, f"channel {name}", "used" if channel.enabled else "switched off"
    if "." in config.memory.provider.kind:
        yield config.memory.provider.kind, "memory", "used"
    if config.web.search is not None and "." in config.web.search.kind:
        yield config.web.search.kind, "web search", _state(config.web.search.fault)
    for service in (config.speech.listen, config.speech.speak):
        if service is not None and "." in service.kind:
            yield service.kind, "speech", _state(service.fault)
    for chosen in config.tools.packages:
        yield chosen.package, "tools", _state(chosen.fault)
    named = {chosen.package for chosen in config.tools.packages}
    for package in installed_packages():
        if package not in named:
            yield package, "tools", "installed, and not used; name it in `tools.packages`"


def _state(fault: str) -> str:
    return f"left out: {fault}" if fault else "used"
