"""`ethos keys`: keys of the HTTP API, each with no more than it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, run
from gateway.services.caller import PERMISSIONS

if TYPE_CHECKING:
    from gateway.services.keys import KeyService

app = typer.Typer(help="Make, list and revoke keys of the HTTP API.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for, for you.")],
    scopes: Annotated[
        list[str],
        typer.Option("--scope", "-s", help=f"What it may do; may be given again. One of: {', '.join(PERMISSIONS)}."),
    ],
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="It sees this person only: a user id or an account, `kind:id`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key, and print it, once."""
    run(_create(name, scopes, user, as_json=as_json))


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the keys, those that are revoked too; what they are is never shown again."""
    run(_list(as_json=as_json))


@app.command()
def revoke(key: Annotated[str, typer.Argument(help="Its id or name.")], as_json: AsJson = False) -> None:
    """End a key at once."""
    run(_revoke(key, as_json=as_json))


async def _create(name: str, scopes: Sequence[str], user: str | None, *, as_json: bool) -> None:
    from gateway.cli.named import OPERATOR
    from gateway.cli.output import print_json, say

    async with _service() as service:
        made = await service.create(OPERATOR, name, [part for scope in scopes for part in scope.split(",")], user)
    if as_json:
        print_json(made.model_dump(mode="json"))
        return
    whose = f" of {made.user}" if made.user else ""
    say(f"Key {made.id} ({made.name}){whose} may {', '.join(made.scopes)}. It is shown this once:\n\n  {made.key}\n")


async def _list(*, as_json: bool) -> None:
    from gateway.cli.named import OPERATOR
    from gateway.cli.output import print_json, print_table, say

    async with _service() as service:
        keys = await service.all(OPERATOR)
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


async def _revoke(key: str, *, as_json: bool) -> None:
    from gateway.cli.named import OPERATOR
    from gateway.cli.output import print_json, say

    async with _service() as service:
        ended = await service.revoke(OPERATOR, key)
    if as_json:
        print_json(ended.model_dump(mode="json"))
    else:
        say(f"Key {ended.id} ({ended.name}) is revoked.")


@asynccontextmanager
async def _service() -> AsyncIterator[KeyService]:
    """The key service, over a database that is made where there is none."""
    from gateway.cli.data import opened_store
    from gateway.cli.named import naming_of
    from gateway.errors import StoreError
    from gateway.files.atomic import make_private_directory
    from gateway.files.home import DATABASE_NAME, data_directory
    from gateway.people.api_keys import ApiKeys
    from gateway.services.keys import KeyService
    from gateway.store.sqlite import open_store

    home = data_directory()
    if not (home / DATABASE_NAME).exists():
        make_private_directory(home)
        await open_store(home / DATABASE_NAME).close()
    async with opened_store(home) as store:
        if store is None:
            raise StoreError(f"{home / DATABASE_NAME} was removed just now; try again")
        yield KeyService(ApiKeys(store.api_keys), naming_of(home))
