"""`ethos tools`: what tools did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gateway.cli.client import connected
from gateway.cli.names import check_names, labels
from gateway.cli.options import AsJson, LimitOption, UserFilter, asynchronous
from gateway.cli.output import fields, print_json, print_table, say

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.tools import ToolUse

app = typer.Typer(help="See what the agent's tools did.", no_args_is_help=True)


@app.command("log")
@asynchronous
async def log(user: UserFilter = None, limit: LimitOption = 50, as_json: AsJson = False) -> None:
    """List calls of tools, the newest first: for whom, with what, and what became of them."""
    check_names(user=user)
    async with connected() as client:
        found = [row async for row in client.tools.calls(user=user, limit=limit)]
        names = await labels(client) if found and not as_json else {}
    if as_json:
        print_json([fields(row) for row in found])
    elif not found:
        say("No tool was called.")
    else:
        columns = ("when", "person", "tool", "effect", "state", "seconds", "arguments")
        table = [
            (
                row.at,
                names.get(row.user, row.user),
                row.tool,
                row.effect,
                row.state,
                _seconds(row),
                row.arguments,
            )
            for row in found
        ]
        print_table(columns, table, flexible=("person", "arguments"))


def _seconds(call: ToolUse) -> str:
    return "" if call.took_s is None else f"{call.took_s:.1f}"
