"""`ethos workers`: who serves from the database."""

from __future__ import annotations

from gateway.cli.client import connected
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say


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
