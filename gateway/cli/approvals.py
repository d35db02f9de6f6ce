"""`ethos approvals`: calls of tools that wait for a yes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.cli.client import connected
from gateway.cli.names import labels
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import fields, print_json, print_table, say
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.approvals import ToolApproval

app = typer.Typer(help="See what waits for a yes, and decide.", no_args_is_help=True)

Grant = Annotated[
    Literal["conversation", "always"] | None,
    typer.Option(help="Where calls of this tool to the same destination are not asked for again."),
]
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
async def yes(number: Number, grant: Grant = None, as_json: AsJson = False) -> None:
    """Have exactly this call made, once."""
    async with _deciding(number) as client:
        decided = await client.approvals.yes(number, grant=grant)
    spared = "" if grant is None else " Calls like it are not asked for again; `ethos approvals grants` lists that."
    print_json(fields(decided)) if as_json else say(
        f"Number {number} has its yes: the gateway does it now, or when it runs again.{spared}"
    )


@app.command()
@asynchronous
async def no(number: Number, as_json: AsJson = False) -> None:
    """Drop it; it is never done."""
    async with _deciding(number) as client:
        decided = await client.approvals.no(number)
    print_json(fields(decided)) if as_json else say(f"Number {number} is dropped; it is never done.")


@app.command()
@asynchronous
async def grants(as_json: AsJson = False) -> None:
    """List what is not asked for any more."""
    async with connected() as client:
        found = await client.approvals.grants()
        names = await labels(client) if found and not as_json else {}
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        say("Every call that acts is asked for.")
    else:
        columns = ("number", "person", "tool", "destination", "until", "given by")
        table = [
            (one.id, names.get(one.user, one.user), one.tool, one.destination, one.until or "revoked", one.granted_by)
            for one in found
        ]
        print_table(columns, table, flexible=("person", "destination"))


@app.command()
@asynchronous
async def revoke(
    grant: Annotated[int, typer.Argument(min=1, help="Its number, from `ethos approvals grants`.")],
    as_json: AsJson = False,
) -> None:
    """Ask again for the calls that a grant covered."""
    from gateway.sdk.errors import NotFoundError

    async with connected() as client:
        try:
            await client.approvals.take_back(grant)
        except NotFoundError as error:
            raise NotNamed(f"there is no grant {grant}; `ethos approvals grants` lists those that there are") from error
    print_json({"revoked": grant}) if as_json else say(f"Grant {grant} is revoked; such calls are asked for again.")


@asynccontextmanager
async def _deciding(number: int) -> AsyncIterator[AsyncEthos]:
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected() as client:
        try:
            yield client
        except NotFoundError as error:
            raise _none(number) from error
        except ConflictError as error:
            raise NotNamed(f"number {number} does not wait any more, or cannot be granted: {error}") from error


def _none(number: int) -> NotNamed:
    return NotNamed(f"nothing waits under the number {number}; `ethos approvals list` shows what does")


def _text(approval: ToolApproval) -> str:
    lines = [f"{name}: {value}" for name, value in json.loads(approval.arguments).items()]
    because = [f"Because I had read: {', '.join(approval.sources)}."] if approval.sources else []
    until = f"It is {approval.state}; it waits until {approval.expires_at:%Y-%m-%d %H:%M} UTC."
    return "\n".join([f"Number {approval.id}: {approval.tool}, for {approval.user}", *lines, *because, until])
