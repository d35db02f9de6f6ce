"""`ethos approvals`: calls of tools that wait for a yes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.names import labels
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import fields, print_json, print_table, say
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.approvals import ToolApproval

app = typer.Typer(help="See what waits for a yes, and decide.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(min=1, help="Its number, from the list.")]


@app.command("list")
@asynchronous
async def list_(as_json: AsJson = False) -> None:
    """List what waits for a yes, the oldest first."""
    async with connected() as client:
        found = await client.approvals.list()
        names = await labels(client) if found and not as_json else {}
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        say("Nothing waits for a yes.")
    else:
        columns = ("number", "asked", "until", "person", "tool", "arguments")
        table = [
            (one.id, one.asked_at, one.expires_at, names.get(one.user, one.user), one.tool, one.arguments)
            for one in found
        ]
        print_table(columns, table, flexible=("person", "arguments"))


@app.command()
@asynchronous
async def show(number: Number, as_json: AsJson = False) -> None:
    """Print a call that waits, with all its arguments."""
    from gateway.sdk.errors import NotFoundError

    async with connected() as client:
        try:
            found = await client.approvals.get(number)
        except NotFoundError as error:
            raise _none(number) from error
    if as_json:
        print_json(fields(found))
    else:
        say(_text(found))


@app.command()
@asynchronous
async def yes(number: Number, as_json: AsJson = False) -> None:
    """Have exactly this call made, once."""
    await _decide(number, is_yes=True, as_json=as_json)


@app.command()
@asynchronous
async def no(number: Number, as_json: AsJson = False) -> None:
    """Drop it; it is never done."""
    await _decide(number, is_yes=False, as_json=as_json)


async def _decide(number: int, *, is_yes: bool, as_json: bool) -> None:
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected() as client:
        try:
            decided = await (client.approvals.yes if is_yes else client.approvals.no)(number)
        except NotFoundError as error:
            raise _none(number) from error
        except ConflictError as error:
            raise NotNamed(f"number {number} does not wait any more: {error}") from error
    if as_json:
        print_json(fields(decided))
    else:
        say(f"Number {number} is done now." if is_yes else f"Number {number} is dropped; it is never done.")


def _none(number: int) -> NotNamed:
    return NotNamed(f"nothing waits under the number {number}; `ethos approvals list` shows what does")


def _text(approval: ToolApproval) -> str:
    lines = [f"{name}: {value}" for name, value in json.loads(approval.arguments).items()]
    because = [f"Because I had read: {', '.join(approval.sources)}."] if approval.sources else []
    until = f"It is {approval.state}; it waits until {approval.expires_at:%Y-%m-%d %H:%M} UTC."
    return "\n".join([f"Number {approval.id}: {approval.tool}, for {approval.user}", *lines, *because, until])
