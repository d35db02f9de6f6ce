"""`ethos keys`: keys of the HTTP API, each with no more than it needs."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.completing import people
from gateway.cli.names import check_names
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say
from gateway.services.caller import PERMISSIONS, permissions_of

app = typer.Typer(help="Make, list and revoke keys of the HTTP API.", no_args_is_help=True)


@app.command()
@asynchronous
async def create(
    name: Annotated[str, typer.Argument(help="What it is for, for you.")],
    scopes: Annotated[
        list[str],
        typer.Option("--scope", "-s", help=f"What it may do; may be given again. One of: {', '.join(PERMISSIONS)}."),
    ],
    user: Annotated[
        str | None,
        typer.Option(
            "--user", "-u", autocompletion=people, help="It sees this person only: a user id or an account, `kind:id`."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key, and print it, once."""
    check_names(user=user)
    wanted = permissions_of(part for scope in scopes for part in scope.split(","))
    async with connected(makes=True) as client:
        made = await client.keys.create(name, sorted(wanted), user=user)
    if as_json:
        print_json(made.model_dump(mode="json"))
        return
    whose = f" of {made.user}" if made.user else ""
    say(f"Key {made.id} ({made.name}){whose} may {', '.join(made.scopes)}. It is shown this once:\n\n  {made.key}\n")


@app.command("list")
@asynchronous
async def list_(as_json: AsJson = False) -> None:
    """List the keys, those that are revoked too; what they are is never shown again."""
    async with connected() as client:
        keys = await client.keys.list()
    if as_json:
        print_json([key.model_dump(mode="json") for key in keys])
    elif not keys:
        say("There is no key yet; `ethos keys create` makes one.")
    else:
        rows = [
            (key.id, key.name, " ".join(key.scopes), key.user, key.created_at, key.last_used_at, key.revoked_at)
            for key in keys
        ]
        columns = ("id", "name", "scopes", "user", "made", "last used", "revoked")
        print_table(columns, rows, flexible=("scopes", "name"))


@app.command()
@asynchronous
async def revoke(key: Annotated[str, typer.Argument(help="Its id or name.")], as_json: AsJson = False) -> None:
    """End a key at once."""
    async with connected() as client:
        ended = await client.keys.revoke(key)
    if as_json:
        print_json(ended.model_dump(mode="json"))
    else:
        say(f"Key {ended.id} ({ended.name}) is revoked.")
