"""`ethos reload`: have the running gateway read its configuration again."""

from __future__ import annotations

import typer

from gateway.cli.client import connected
from gateway.cli.errors import EXIT_CONFIG, EXIT_UNAVAILABLE, fail
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, say
from gateway.files.home import data_directory
from gateway.files.running_gateway import running_gateway


@asynchronous
async def reload(as_json: AsJson = False) -> None:
    """Have the running gateway read config.yaml again; on any error it goes on with the last good one."""
    home = data_directory()
    if running_gateway(home) is None:
        fail(f"no gateway runs on {home}; `ethos serve` reads the configuration when it starts", EXIT_UNAVAILABLE)
    async with connected() as client:
        done = await client.system.reload()
    if as_json:
        print_json(done.model_dump(by_alias=False))
        raise typer.Exit(EXIT_CONFIG if done.problems else 0)
    if done.problems:
        told = [*done.problems, "nothing was taken over; the gateway goes on with the last good one"]
        fail("\n".join(told), EXIT_CONFIG)
    for warning in done.warnings:
        say(f"warning: {warning}")
    say(f"Taken over: {', '.join(done.at_once)}" if done.at_once else "Nothing has changed that can be taken over.")
    if done.at_restart:
        say(f"Waiting for a restart: {', '.join(done.at_restart)}")
