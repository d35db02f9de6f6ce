"""`ethos people export`, `ethos people erase`, and `ethos retention`: what is kept about people, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.errors import EXIT_TEMPORARY, fail
from gateway.cli.names import check_names
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say
from gateway.errors import FileError
from gateway.files.home import data_directory

if TYPE_CHECKING:
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.system import Forgotten

User = Annotated[str, typer.Argument(help="A user id or an account, `kind:id`.")]
_DONE_AFTER_S = 600.0


@asynchronous
async def export(
    user: User,
    file: Annotated[Path, typer.Argument(help="The zip file to write; it must not be there yet.")],
    as_json: AsJson = False,
) -> None:
    """Write everything that is kept about somebody into one file that people can read."""
    check_names(user=user)
    if await asyncio.to_thread(file.exists):
        raise FileError(f"{file} is there already; name another file, or remove it")
    async with connected() as client:
        user_id = (await client.people.get(user)).id
        lacks = (await client.memory.provider()).lacks
        try:
            await client.people.export_file(user_id, file)
        except OSError as error:
            raise FileError(f"{file} could not be written: {error.strerror}") from error
    size_bytes = (await asyncio.to_thread(file.stat)).st_size
    if as_json:
        print_json({"user": user_id, "file": file, "size_bytes": size_bytes})
    else:
        say(f"{file}: {size_bytes} bytes, everything that is kept about {user_id}.")
        if "export" in lacks:
            say(lacks["export"])


@asynchronous
async def erase(
    user: User,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; it cannot be taken back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase everything that is kept about somebody, for good."""
    from gateway.config.file import CONFIG_NAME

    check_names(user=user)
    async with connected(makes=True) as client:
        plan = await client.people.erasure_plan(user)
    copies = ", ".join(plan.copies)
    if not yes:
        say(f"This erases everything about {plan.user} ({', '.join(plan.accounts) or 'no account'}), for good.")
        if copies:
            say(f"Copies of the data of all people are deleted with it: {copies}.")
        if plan.left:
            say(plan.left)
        say(f"`ethos people export {plan.user} FILE` saves it first. Backups elsewhere are yours to delete.")
        if typer.prompt(f"Type {plan.user} to do it", default="", show_default=False).strip() != plan.user:
            fail("nothing was erased")
    async with connected(makes=True) as client:
        erasure = await _erased(client, plan.user)
    if as_json:
        accounts, deleted = plan.accounts, plan.copies
        print_json(
            {
                "user": plan.user,
                "accounts": accounts,
                "erasure": erasure,
                "deleted_copies": deleted,
                "left": plan.left,
            }
        )
        return
    names = ", ".join(plan.configured)
    advice = f" {CONFIG_NAME} still names {names}; take that out yourself." if names else ""
    say(f"{plan.user} is erased.{advice}")
    if copies:
        say(f"Deleted with it, because they are copies of the data of all people: {copies}.")
    if plan.left:
        say(plan.left)


async def _erased(client: AsyncEthos, user_id: str) -> str:
    """Erase, and wait until it is done; the erasure's id."""
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + _DONE_AFTER_S
    erasure = await client.people.erase(user_id, confirm=user_id)
    is_done = erasure.is_done
    while not is_done:
        if clock() > give_up_at:
            fail("the running gateway has not finished yet; it goes on, and after a restart too", EXIT_TEMPORARY)
        is_done = (await client.people.erasure(erasure.erasure)).is_done
    return erasure.erasure


@asynchronous
async def retention(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget what is older than the configuration allows, as the gateway itself does once a day."""
    from gateway.cli.data import has_database

    done: Sequence[Forgotten] = ()
    if await has_database(data_directory()):
        async with connected() as client:
            done = await client.system.forget_old(is_dry_run=dry_run)
    if as_json:
        print_json([each.model_dump(by_alias=False) for each in done])
        return
    if not done:
        say("There is nothing yet.")
        return
    rows = [(each.what, "without limit" if each.days is None else f"{each.days:g} days", each.amount) for each in done]
    print_table(("what", "is kept", "would go" if dry_run else "went"), rows, flexible=("what",))
