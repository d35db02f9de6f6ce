"""`ethos upgrade-check`: what the next start would change, said by the program that would do it.

It is no operation of a service: the gateway that runs is of the version before, and cannot answer for this one.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, say
from gateway.errors import ConfigError
from gateway.files.home import data_directory

if TYPE_CHECKING:
    from gateway.config.workers import StoreConfig

EXIT_PROBLEMS = 1
_MARKS = {"problem": "✗", "warning": "!", "note": "·"}


@asynchronous
async def upgrade_check(as_json: AsJson = False) -> None:
    """Say what an upgrade to this version would change, without changing it: exit code 1 when it is not possible."""
    from gateway.ops.upgrading import look

    home = data_directory()
    running = _running(home)
    found = await asyncio.to_thread(look, home, running, _database(home))
    if as_json:
        last = None if found.last is None else {"version": found.last.version, "at": found.last.at}
        print_json({**asdict(found), "last": last, "running": running, "is_possible": found.is_possible})
    else:
        for point in found.points:
            say(f"{_MARKS[point.level]} {point.what}")
            if point.advice:
                say(f"  → {point.advice}")
        say("\nThe upgrade can be done." if found.is_possible else "\nThe upgrade cannot be done as things are.")
    if not found.is_possible:
        raise typer.Exit(EXIT_PROBLEMS)


def _database(home: Path) -> StoreConfig | ConfigError:
    """Where the database is, or why that cannot be read."""
    from gateway.cli.data import configured_database

    try:
        return configured_database(home)
    except ConfigError as error:
        return error


def _running(home: Path) -> str | None:
    """The version of the gateway that runs; None where none does, or it does not say."""
    from gateway.cli.process import HealthUnknown, ask_health
    from gateway.files.running_gateway import running_gateway

    if running_gateway(home) is None:
        return None
    try:
        version = ask_health(home).get("version")
    except HealthUnknown:
        return None
    return None if version is None else str(version)
