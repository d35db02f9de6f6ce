"""`ethos init` and `ethos config`."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.errors import EXIT_CONFIG
from gateway.cli.options import AsJson
from gateway.cli.output import print_json, print_table, say
from gateway.files.home import data_directory

app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


def init(
    force: Annotated[bool, typer.Option("--force", help="Replace a configuration; the old one is kept.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, take the defaults.")] = False,
    no_try: Annotated[bool, typer.Option("--no-try", help="Do not call the model now.")] = False,
) -> None:
    """Ask some questions and write a configuration that works."""
    from gateway.cli.init import run_init

    run_init(data_directory(), force=force, yes=yes, tries=not no_try)


@app.command()
def check(as_json: AsJson = False) -> None:
    """Say everything that is wrong with the configuration, at once."""
    from gateway.config.file import CONFIG_NAME
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
    from dataclasses import asdict

    from gateway.config.file import load_config
    from gateway.config.listing import settings_of, written

    loaded = load_config()
    settings = settings_of(loaded.config, loaded.sources)
    if as_json:
        print_json([asdict(one) for one in settings])
    else:
        rows = [(one.key, written(one.value), one.source) for one in settings]
        print_table(("key", "value", "from"), rows, flexible=("value",))
