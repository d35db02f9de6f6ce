"""`ethos people export-map` and `import-map`: who is behind each account, as a file for people and other programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.errors import fail
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say
from gateway.errors import EthosError, FileError

if TYPE_CHECKING:
    from gateway.sdk.models.people import MapChanges


@asynchronous
async def export_map(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not be there yet.")],
    as_json: AsJson = False,
) -> None:
    """Write who is behind each account into a file, as `identity-map.json` has it."""
    from gateway.files.atomic import write_new

    async with connected() as client:
        text = (await client.people.export_map()).text
    try:
        await asyncio.to_thread(write_new, file, text.encode())
    except FileExistsError as error:
        raise FileError(f"{file} is there already; name another file, or remove it") from error
    except OSError as error:
        raise FileError(f"{file} could not be written: {error.strerror}") from error
    size_bytes = len(text.encode())
    if as_json:
        print_json({"file": file, "size_bytes": size_bytes})
    else:
        say(f"{file}: {size_bytes} bytes. It names people's accounts; keep it as you keep the memory.")


@asynchronous
async def import_map(
    *,
    file: Annotated[Path, typer.Argument(help="A map of accounts, in any form that `identity-map.json` may have.")],
    replace: Annotated[bool, typer.Option("--replace", help="Accounts may get another user than they have.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring in who is behind each account; says first what it would change."""
    text = await asyncio.to_thread(_read, file)
    async with connected(makes=True) as client:
        changes = await _asked(file, client.people.import_map(text, is_replacing=replace, is_dry_run=True))
    if not as_json:
        _tell(changes)
    if not dry_run and (changes.added or changes.moved):
        if not yes and not typer.confirm("Do that?", err=True):
            fail("nothing was changed")
        async with connected(makes=True) as client:
            changes = await _asked(file, client.people.import_map(text, is_replacing=replace))
        if not as_json:
            say(f"Done: {len(changes.added)} added, {len(changes.moved)} moved.")
    if as_json:
        print_json(changes.model_dump(by_alias=False))


def _read(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise FileError(f"{file} could not be read: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(f"{file}:{line}: these bytes are no UTF-8; expected text in UTF-8") from error


async def _asked(file: Path, asking: Awaitable[MapChanges]) -> MapChanges:
    """The answer; what is wrong with the text is told with its place in the file."""
    from gateway.sdk.errors import UnprocessableEntityError

    try:
        return await asking
    except UnprocessableEntityError as error:
        raise EthosError(f"{file}:{error}") from error


def _tell(changes: MapChanges) -> None:
    rows = [
        (what, one.account, one.known_user, one.user)
        for what, accounts in (("add", changes.added), ("move", changes.moved), ("keep", changes.kept))
        for one in accounts
    ]
    if rows:
        print_table(("what", "account", "user here", "user of the file"), rows, flexible=("account",))
    say(f"{changes.same} {_accounts(changes.same)} known with the same user.")
    if changes.kept:
        say("Those to keep stay as they are; `--replace` gives them the user of the file.")
    if changes.erased:
        say(f"{len(changes.erased)} {_accounts(len(changes.erased))} left out: their people were erased.")
    if not changes.added and not changes.moved:
        say("There is nothing to change.")


def _accounts(number: int) -> str:
    return "account is" if number == 1 else "accounts are"
