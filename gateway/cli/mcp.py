"""`ethos mcp`: servers of the Model Context Protocol and their tools, and the gateway as such a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import fields, local, print_json, print_table, say
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.mcp import McpServer

app = typer.Typer(help="See servers of tools (MCP), and accept what they offer.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(help="Its name in `mcp.servers`.")]
_MARKS = {"accepted": "", "new": " (withheld: new)", "changed": " (withheld: changed)"}
_LAST_LINES = 5


@app.callback()
def mcp(context: typer.Context, as_json: AsJson = False) -> None:
    """List the servers of the configuration: their state, their tools, and what is withheld."""
    if context.invoked_subcommand is None:
        _list(as_json)


@asynchronous
async def _list(as_json: bool) -> None:
    async with connected(is_whole=True) as client:
        found = await client.mcp.list()
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        say("There are no servers; name one in `mcp.servers` of config.yaml.")
    for one in found if not as_json else ():
        _show(one)


@app.command("test")
@asynchronous
async def try_out(name: Name, as_json: AsJson = False) -> None:
    """Connect a server now, and list its tools."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            found = await client.mcp.test(name)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    print_json(fields(found)) if as_json else _show(found)


@app.command()
@asynchronous
async def accept(
    name: Name,
    tool: Annotated[str | None, typer.Argument(help="One tool; without it, all that are withheld.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let the agent have tools that are withheld, as they are now."""
    from gateway.sdk.errors import NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            accepted = await client.mcp.accept(name, tool)
        except NotFoundError as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json(fields(accepted))
    else:
        say(f"The agent has now: {', '.join(accepted.tools)}." if accepted.tools else "Nothing was withheld.")


@app.command()
@asynchronous
async def remove(name: Name, as_json: AsJson = False) -> None:
    """Forget the tools of a server that you have taken out of the configuration."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            await client.mcp.forget(name)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    print_json({"forgotten": name}) if as_json else say(f"Nothing is kept of {name} any more.")


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


def _show(server: McpServer) -> None:
    say(f"{server.name}: {server.state} since {local(server.since)}, {server.place}")
    if server.error:
        say(f"  {server.error}")
    for line in server.said[-_LAST_LINES:] if server.error else ():
        say(f"  | {line}")
    rows = [(one.name, one.effect, one.description + _MARKS[one.state]) for one in server.tools]
    if rows:
        print_table(("tool", "class", "what it says of itself"), rows, flexible=("what it says of itself",))
    for line in server.left_out:
        say(f"  left out: {line}")
    if any(one.state != "accepted" for one in server.tools):
        say(f"  To let the agent have what is withheld: ethos mcp accept {server.name}")
