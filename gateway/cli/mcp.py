"""`ethos mcp`: servers of the Model Context Protocol and their tools, and the gateway as such a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from gateway.cli.client import connected
from gateway.cli.completing import people, servers
from gateway.cli.errors import fail
from gateway.cli.options import AsJson, asynchronous, confirm
from gateway.cli.output import fields, local, print_json, print_table, say
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.mcp import Effect, McpServer, McpServerChange, McpTool

app = typer.Typer(help="Add servers of tools (MCP), see them, and accept what they offer.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(autocompletion=servers, help="Its name in `mcp.servers`.")]
_MARKS = {"accepted": "", "new": " (withheld: new)", "changed": " (withheld: changed)"}
_LAST_LINES = 5
_UNSEEN = "unseen"
"""No pin is this, so what comes after the look is not accepted."""


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
        say("There are no servers; `ethos mcp add` adds one.")
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


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List them, as `ethos mcp` does."""
    _list(as_json)


@app.command()
@asynchronous
async def add(
    name: Annotated[str, typer.Argument(help="A new name: a-z 0-9 _")],
    command: Annotated[list[str] | None, typer.Argument(help="Behind `--`: the program and its arguments.")] = None,
    *,
    url: Annotated[str | None, typer.Option(help="The address of a server, in place of a program.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="`Name: value`, sent to the address.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="`NAME=value`, or NAME of a variable of the gateway.")] = None,
    write: Annotated[list[str] | None, typer.Option(help="A file or directory that the program may change.")] = None,
    read: Annotated[list[str] | None, typer.Option(help="One that it may read.")] = None,
    no_network: Annotated[bool, typer.Option("--no-network", help="The program may not use the network.")] = False,
    hints: Annotated[bool, typer.Option("--hints", help="Believe what it says its tools do.")] = False,
    effect: Annotated[list[str] | None, typer.Option(help="`PATTERN=CLASS` for its tools.")] = None,
    tool: Annotated[list[str] | None, typer.Option(help="A pattern of the tools that you want.")] = None,
    trusted: Annotated[bool, typer.Option("--trusted", help="What it returns is not words of others.")] = False,
    instructions: Annotated[
        bool, typer.Option("--instructions", help="Show the model what it says of itself, once you accept that.")
    ] = False,
    protocol: Annotated[Literal["auto", "legacy", "2026-07-28"], typer.Option(help="Which it speaks.")] = "auto",
    start: Annotated[Literal["on_need", "eager"], typer.Option(help="eager: with the gateway.")] = "on_need",
    approver: Annotated[Literal["owner", "asker"], typer.Option(help="Who may say yes to a call.")] = "owner",
    timeout_s: Annotated[float, typer.Option(min=1, max=600, help="Seconds for one call.")] = 60,
    as_json: AsJson = False,
) -> None:
    """Write a server into config.yaml, use it, and list its tools."""
    from gateway.sdk.errors import ConflictError
    from gateway.sdk.models.mcp import McpSandbox, NewMcpServer

    new = NewMcpServer(
        name=name,
        command=tuple(command or ()),
        url=url,
        headers=dict(_pair(each, ":", "--header 'Name: value'") for each in header or ()),
        env=dict(_variable(each) for each in env or ()),
        sandbox=McpSandbox(write=tuple(write or ()), read=tuple(read or ()), network="none" if no_network else "open"),
        effects=_effects(effect or (), are_believed=hints),
        tools=tuple(tool) if tool else None,
        trusted=trusted,
        instructions=instructions,
        protocol=protocol,
        start=start,
        approver=approver,
        timeout_s=timeout_s,
    )
    async with connected(makes=True, is_whole=True) as client:
        try:
            change = await client.mcp.add(new)
        except ConflictError as error:
            raise NotNamed(str(error)) from error
    await _tell_added(change, as_json=as_json)


async def _tell_added(change: McpServerChange, *, as_json: bool) -> None:
    """Say what became of it, and list its tools, or why they are not known."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    found, why = None, None
    async with connected(makes=True, is_whole=True) as client:
        try:
            found = await client.mcp.test(change.server)
        except (NotFoundError, ConflictError) as error:
            why = str(error)
    if as_json:
        print_json({**fields(change), "found": found and fields(found), "error": why})
    else:
        _tell_change(change, f"{change.server} is in config.yaml")
    if found is None:
        fail(f"its tools are not known yet: {why}; `ethos mcp test {change.server}` tries it again")
    elif not as_json:
        _show(found)


@app.command()
@asynchronous
async def accept(
    name: Name,
    tool: Annotated[str | None, typer.Argument(help="One tool; without it, all that are withheld.")] = None,
    pin: Annotated[str | None, typer.Option(help="`pin` of `ethos mcp --json`: only what was seen there.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let the agent have tools that are withheld, as they are shown now."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        if pin is None:
            pin, is_withheld = _seen(await client.mcp.list(), name, tool, is_shown=not as_json)
            confirm("Let the agent have them?", yes=yes or not is_withheld, otherwise="nothing was accepted")
        try:
            accepted = await client.mcp.accept(name, tool, pin=pin)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json(fields(accepted))
    else:
        say(f"The agent has now: {', '.join(accepted.tools)}." if accepted.tools else "Nothing was withheld.")


@app.command()
@asynchronous
async def login(
    name: Name,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "-u",
            autocompletion=people,
            help="Who signs in, where each person does: a user id or an account, `kind:id`.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a link by which somebody signs in to a server, in a browser."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            link = await client.mcp.login(name, user)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json(fields(link))
    else:
        say(f"Open this in a browser until {local(link.expires_at)}:\n{link.url}")


@app.command()
@asynchronous
async def logout(
    name: Name,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "-u",
            autocompletion=people,
            help="Who is signed out, where each person signs in: a user id or an account.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Forget what somebody's sign-in to a server gave, and have it revoked."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            done = await client.mcp.logout(name, user)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json(fields(done))
    else:
        what = "The tokens are revoked" if done.is_revoked else "Its tokens could not be revoked and end by their age"
        say(f"Signed out of {name}. {what}.")


@app.command()
@asynchronous
async def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a server out of config.yaml, end it, and forget its tools."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    confirm(f"Take {name} out of config.yaml, and forget its tools?", yes=yes, otherwise="nothing was removed")
    async with connected(makes=True, is_whole=True) as client:
        try:
            change = await client.mcp.remove(name)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    print_json(fields(change)) if as_json else _tell_change(change, f"{name} is removed")


@app.command("serve")
@asynchronous
async def serve(
    user: Annotated[
        str | None,
        typer.Option(
            "--user", "-u", autocompletion=people, help="Only as this person: a user id or an account, `kind:id`."
        ),
    ] = None,
) -> None:
    """Serve a desktop program over standard input and output, by the gateway that runs."""
    from gateway.cli.mcp_bridge import Bridge

    async with Bridge(user) as bridge:
        await bridge.run()


def _pair(text: str, sign: str, expected: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found or not name.strip():
        raise typer.BadParameter(f"expected {expected}")
    return name.strip(), value.strip()


def _effects(patterns: Sequence[str], *, are_believed: bool) -> Literal["hints"] | dict[str, Effect]:
    from gateway.sdk.models.mcp import Effect

    if are_believed and patterns:
        raise typer.BadParameter("give --hints or --effect, not both")
    found: dict[str, Effect] = {}
    for pattern, word in (_pair(each, "=", "--effect 'get_*=read'") for each in patterns):
        effect = next((one for one in get_args(Effect) if one == word), None)
        if effect is None:
            raise typer.BadParameter(f"--effect {pattern}={word}: expected one of {', '.join(get_args(Effect))}")
        found[pattern] = effect
    return "hints" if are_believed else found


def _variable(text: str) -> tuple[str, str]:
    return _pair(text, "=", "--env NAME=value") if "=" in text else (text, f"${{{text}}}")


def _tell_change(change: McpServerChange, what: str) -> None:
    say(f"{what}." if change.is_in_use else f"{what}. No gateway runs; the next start takes that over.")
    for note in change.notes:
        say(f"  {note}")


def _seen(servers: Sequence[McpServer], name: str, tool: str | None, *, is_shown: bool) -> tuple[str, bool]:
    """Show what is withheld; its pin, and whether there is any; what there is not, the gateway says."""
    server = next((one for one in servers if one.name == name), None)
    tools = [one for one in server.tools if tool in (None, one.name, one.server_name)] if server else []
    for one in tools if is_shown else ():
        if one.state != "accepted":
            say(f"{one.name}, {one.effect}: {one.description}{_MARKS[one.state]}")
            _show_difference(one)
    is_withheld = any(one.state != "accepted" for one in tools)
    if server is None or (tool is not None and not tools):
        return _UNSEEN, False
    return (server.pin if tool is None else tools[0].pin), is_withheld


def _show_difference(tool: McpTool) -> None:
    for line in tool.difference.splitlines():
        say(f"    {line}")


def _show(server: McpServer) -> None:
    say(f"{server.name}: {server.state} since {local(server.since)}, {server.place}")
    if server.error:
        say(f"  {server.error}")
    for line in server.said[-_LAST_LINES:] if server.error else ():
        say(f"  | {line}")
    rows = [(one.name, one.effect, one.description + _MARKS[one.state]) for one in server.tools]
    if rows:
        print_table(("tool", "class", "what it says of itself"), rows, flexible=("what it says of itself",))
    for tool in server.tools:
        if tool.difference:
            say(f"  {tool.name} has changed since you accepted it:")
            _show_difference(tool)
    for line in server.left_out:
        say(f"  left out: {line}")
    if any(one.state != "accepted" for one in server.tools):
        say(f"  To let the agent have what is withheld: ethos mcp accept {server.name}")
