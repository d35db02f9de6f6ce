"""`ethos workers` and `ethos channels`: who serves from the database, and who has which channel."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.completing import channels
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say
from gateway.services.caller import NotNamed

app = typer.Typer(help="Channels, and the workers that have them.", no_args_is_help=True)


@asynchronous
async def workers(as_json: AsJson = False) -> None:
    """List the workers of the database: version, state, turns and channels of each."""
    async with connected() as client:
        found = await client.system.workers()
    if as_json:
        print_json([worker.model_dump(by_alias=False, mode="json") for worker in found])
        return
    columns = ("name", "version", "since", "state", "roles", "configuration", "turns", "channels")
    rows = [
        (
            worker.name,
            worker.version,
            worker.started_at,
            worker.state,
            ", ".join(worker.roles),
            worker.config_hash,
            worker.turns,
            ", ".join(worker.channels),
        )
        for worker in found
    ]
    print_table(columns, rows, flexible=("channels", "name"))
    if len({worker.config_hash for worker in found}) > 1:
        say("The workers have different configurations.")
    if len({worker.version for worker in found}) > 1:
        say("The workers have different versions.")


@app.command()
@asynchronous
async def release(
    channel: Annotated[str, typer.Argument(autocompletion=channels, help="Its name in the configuration.")],
    as_json: AsJson = False,
) -> None:
    """Have another worker take a channel; the one that has it stops it first."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected() as client:
        try:
            await client.system.release(channel)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json({"channel": channel})
        return
    say(f"The channel {channel} goes to another worker within seconds; `ethos workers` shows which.")
