"""`ethos init` and `ethos config`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from gateway.cli.errors import EXIT_CONFIG
from gateway.cli.options import AsJson

app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)

HIDDEN = "(hidden)"


def init(
    force: Annotated[bool, typer.Option("--force", help="Replace a configuration; the old one is kept.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, take the defaults.")] = False,
) -> None:
    """Ask some questions and write a configuration that works."""
    from gateway.cli.init import run_init
    from gateway.config.file import data_directory

    run_init(data_directory(), force=force, yes=yes)


@app.command()
def check(as_json: AsJson = False) -> None:
    """Say everything that is wrong with the configuration, at once."""
    from gateway.cli.output import print_json, say
    from gateway.config.file import CONFIG_NAME, data_directory
    from gateway.config.file import check as check_config

    path = data_directory() / CONFIG_NAME
    findings = check_config()
    if as_json:
        print_json({"problems": findings.problems, "warnings": findings.warnings})
    else:
        for problem in findings.problems:
            say(problem)
        for warning in findings.warnings:
            say(f"warning: {warning}")
        if not findings.problems:
            say(f"{path}: good." if path.exists() else f"There is no {path}; the defaults are in force.")
    if findings.problems:
        raise typer.Exit(EXIT_CONFIG)


@app.command()
def show(as_json: AsJson = False) -> None:
    """Print every setting with its value and where it comes from; secrets are hidden."""
    from gateway.cli.output import print_json, print_table
    from gateway.config.file import load_config

    loaded = load_config()
    values = dict(_values(loaded.config))
    settings = [
        # What was looked up elsewhere may be a secret even where the setting is not made for one.
        {"key": key, "value": HIDDEN if ", from " in source else values[key], "source": source}
        for key, source in loaded.sources.items()
    ]
    if as_json:
        print_json(settings)
    else:
        rows = [(one["key"], _written(one["value"]), one["source"]) for one in settings]
        print_table(("key", "value", "from"), rows, flexible=("value",))


def _values(config: Any) -> Iterator[tuple[str, Any]]:
    """Every setting under the name that `Loaded.sources` has for it."""
    from pydantic import BaseModel, SecretStr

    from gateway.config import ChannelConfig
    from gateway.marked.yaml import KeyPath, dotted

    def walk(value: Any, path: KeyPath) -> Iterator[tuple[str, Any]]:
        if isinstance(value, BaseModel):
            for name, item in value:
                is_own = isinstance(value, ChannelConfig) and name == "settings"
                yield from walk(item, path if is_own else (*path, name))
        elif isinstance(value, dict):
            for name, item in value.items():
                yield from walk(item, (*path, name))
        else:
            is_simple = value is None or isinstance(value, str | int | float | tuple | list)
            shown = value if is_simple else str(value)  # an adapter's own kinds of values
            yield dotted(path), HIDDEN if isinstance(value, SecretStr) else shown

    return walk(config, ())


def _written(value: Any) -> str | None:
    """As one would write it into the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list | frozenset | set):
        return "[" + ", ".join(map(str, value)) + "]"
    return None if value is None else str(value)
