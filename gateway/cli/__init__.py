"""The `ethos` command. Each command loads what it needs when it is called, so that a short one is fast."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gateway import __version__
from gateway.cli import (
    approvals,
    backup,
    channels,
    config,
    doctor,
    files,
    hooks,
    keys,
    mcp,
    memory,
    models,
    opening,
    people,
    personalities,
    plugins,
    privacy,
    queues,
    reload,
    running,
    schedules,
    sessions,
    skills,
    status,
    store,
    tools,
    traces,
    usage,
    workers,
)

app = typer.Typer(
    name="ethos",
    help="Ethos Gateway: one AI agent on every channel you use.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # they may hold secrets
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(running.serve)
app.command("chat")(running.chat)
app.command("init")(config.init)
app.command("open")(opening.open_page)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.command("reload")(reload.reload)
app.command("restart")(config.restart)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("usage")(usage.usage)
app.command("retention")(privacy.retention)
app.command("workers")(workers.workers)
app.add_typer(channels.app, name="channels")
app.add_typer(config.app, name="config")
app.add_typer(memory.app, name="memory")
app.add_typer(traces.app, name="traces")
app.add_typer(store.app, name="store")
app.add_typer(keys.app, name="keys")
app.add_typer(sessions.app, name="sessions")
app.add_typer(people.app, name="people")
app.add_typer(queues.app, name="deliveries")
app.add_typer(tools.app, name="tools")
app.add_typer(approvals.app, name="approvals")
app.add_typer(schedules.app, name="schedules")
app.add_typer(mcp.app, name="mcp")
app.add_typer(models.app, name="models")
app.add_typer(skills.app, name="skills")
app.add_typer(hooks.app, name="hooks")
app.add_typer(plugins.app, name="plugins")
app.add_typer(personalities.app, name="personalities")
app.add_typer(files.app, name="files")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"ethos {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Run the command; an error on purpose is one line on standard error, and exit code 1."""
    from gateway.cli.errors import explained

    _open_closed_streams()
    with explained():
        app()


def _open_closed_streams() -> None:
    """Put `/dev/null` where a standard stream is closed when the command starts (`ethos status >&-`).

    Else the next file to be opened gets the stream's number, and what is meant for the screen is written into it: the
    database, perhaps.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (as long as we run)
