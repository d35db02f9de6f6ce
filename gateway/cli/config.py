"""`ethos init` and `ethos config`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gateway.cli.errors import EXIT_CONFIG

app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


def init(
    force: Annotated[bool, typer.Option("--force", help="Replace a configuration; the old one is kept.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, take the defaults.")] = False,
) -> None:
    """Ask some questions and write a configuration that works."""
    from gateway.cli.init import run_init
    from gateway.config_file import data_directory

    run_init(data_directory(), force=force, yes=yes)


@app.command()
def check(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say everything that is wrong with the configuration, at once."""
    from gateway.config_file import CONFIG_NAME, data_directory
    from gateway.config_file import check as check_config

    path = data_directory() / CONFIG_NAME
    findings = check_config()
    if as_json:
        typer.echo(json.dumps({"problems": findings.problems, "warnings": findings.warnings}, ensure_ascii=False))
    else:
        for problem in findings.problems:
            typer.echo(problem)
        for warning in findings.warnings:
            typer.echo(f"warning: {warning}")
        if not findings.problems:
            typer.echo(f"{path}: good." if path.exists() else f"There is no {path}; the defaults are in force.")
    if findings.problems:
        raise typer.Exit(EXIT_CONFIG)
