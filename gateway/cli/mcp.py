"""`ethos mcp`: the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.options import asynchronous

app = typer.Typer(help="Connect programs that speak the Model Context Protocol.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """A group, also while it has one command."""


@app.command("serve")
@asynchronous
async def serve(
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="Only as this person: a user id or an account, `kind:id`.")
    ] = None,
) -> None:
    """Serve a desktop program over standard input and output, by the gateway that runs."""
    from gateway.cli.mcp_bridge import Bridge

    async with Bridge(user) as bridge:
        await bridge.run()
