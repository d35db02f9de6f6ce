"""`ethos people export`, `ethos people erase`, and `ethos retention`: what is kept about people, and for how long."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.options import AsJson, run

User = Annotated[str, typer.Argument(help="A user id or an account, `kind:id`.")]
_DONE_AFTER_S = 600.0


def export(
    user: User,
    file: Annotated[Path, typer.Argument(help="The zip file to write; it must not be there yet.")],
    as_json: AsJson = False,
) -> None:
    """Write everything that is kept about somebody into one file that people can read."""
    run(_export(user, file, as_json=as_json))


def erase(
    user: User,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; it cannot be taken back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase everything that is kept about somebody, for good."""
    run(_erase(user, is_sure=yes, as_json=as_json))


def retention(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget what is older than the configuration allows, as the gateway itself does once a day."""
    run(_retention(is_dry=dry_run, as_json=as_json))


async def _export(user: str, file: Path, *, as_json: bool) -> None:
    from gateway.cli.named import find_user, identities
    from gateway.cli.output import print_json, say
    from gateway.files.home import data_directory
    from gateway.ops.privacy.export import Exporter
    from gateway.ops.privacy.home import kinds_of_channels, opened

    home = data_directory()
    user_id = await find_user(home, user)
    async with opened(home) as store:
        kinds = kinds_of_channels(home)
        exporter = Exporter(home=home, store=store, identities=identities(home), kinds=kinds)
        size_bytes = await exporter.write(user_id, file)
    if as_json:
        print_json({"user": user_id, "file": file, "size_bytes": size_bytes})
    else:
        say(f"{file}: {size_bytes} bytes, everything that is kept about {user_id}.")


async def _erase(user: str, *, is_sure: bool, as_json: bool) -> None:
    from gateway.cli.errors import fail
    from gateway.cli.output import print_json, say
    from gateway.files.home import data_directory
    from gateway.files.running_gateway import running_gateway
    from gateway.ops.privacy.files import copies_in

    home = data_directory()
    user_id, accounts = await _whom(home, user)
    copies = await asyncio.to_thread(copies_in, home)
    names = ", ".join(copy.name for copy in copies)
    if not is_sure:
        say(f"This erases everything about {user_id} ({', '.join(accounts) or 'no account'}), for good.")
        if copies:
            say(f"Copies of the data of all people are deleted with it: {names}.")
        say(f"`ethos people export {user_id} FILE` saves it first. Backups elsewhere are yours to delete.")
        if typer.prompt(f"Type {user_id} to do it", default="", show_default=False).strip() != user_id:
            fail("nothing was erased")
    is_running = await asyncio.to_thread(running_gateway, home) is not None
    erasure = await (_erase_beside(home, user_id) if is_running else _erase_alone(home, user_id))
    if as_json:
        deleted = [copy.name for copy in copies]
        print_json({"user": user_id, "accounts": accounts, "erasure": erasure, "deleted_copies": deleted})
        return
    say(f"{user_id} is erased. {_advice(home, accounts)}".rstrip())
    if copies:
        say(f"Deleted with it, because they are copies of the data of all people: {names}.")


async def _whom(home: Path, wanted: str) -> tuple[str, list[str]]:
    """A user and all accounts of that person; or an account that is no user's, but of which something is kept."""
    from gateway.cli.named import NotNamed, find_user, identities
    from gateway.files.home import DATABASE_NAME
    from gateway.ops.privacy.home import kinds_of_channels, opened
    from gateway.ops.privacy.people import ids_of, is_known

    async def stranger() -> bool:
        if ":" not in wanted or not (home / DATABASE_NAME).exists():
            return False
        async with opened(home) as store:
            return await store.database.read(partial(is_known, key=wanted, kinds=kinds_of_channels(home)))

    try:
        user_id = await find_user(home, wanted)
    except NotNamed:
        if await stranger():
            return wanted, [wanted]
        raise
    async with opened(home) as store:
        ids = await store.database.read(partial(ids_of, user_id=user_id))
    return user_id, [account.key for each in sorted(ids) for account in await identities(home).accounts_of(each)]


async def _erase_alone(home: Path, user_id: str) -> str:
    """Erase while no gateway runs, and let none start meanwhile."""
    from gateway.files.home import LOCK_NAME
    from gateway.files.locks import hold
    from gateway.ops.privacy.home import eraser_of, opened

    lock = hold(home / LOCK_NAME)
    try:
        async with opened(home) as store:
            eraser = eraser_of(home, store)
            tombstone = await eraser.schedule(user_id)
            await eraser.erase(tombstone)
            return tombstone.id
    finally:
        lock.release()


async def _erase_beside(home: Path, user_id: str) -> str:
    """Have the running gateway do it, and wait until its database says so."""
    from gateway.app.control import ask
    from gateway.cli.errors import EXIT_TEMPORARY, fail
    from gateway.files.home import DATABASE_NAME

    answer = await asyncio.to_thread(ask, home, {"do": "erase", "user": user_id})
    erasure = str(answer["erasure"])
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + _DONE_AFTER_S
    uri = f"{(home / DATABASE_NAME).absolute().as_uri()}?mode=ro"
    while not await asyncio.to_thread(_is_applied, uri, erasure):
        if clock() > give_up_at:
            fail("the running gateway has not finished yet; it goes on, and after a restart too", EXIT_TEMPORARY)
        await asyncio.sleep(0.2)
    return erasure


def _is_applied(uri: str, erasure: str) -> bool:
    connection = sqlite3.connect(uri, uri=True)
    try:
        return connection.execute("SELECT 1 FROM erasures WHERE id = ?", (erasure,)).fetchone() is not None
    finally:
        connection.close()


def _advice(home: Path, accounts: list[str]) -> str:
    """What we do not change: the operator's own configuration."""
    from gateway.config.file import CONFIG_NAME

    path = home / CONFIG_NAME
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    named = [account for account in accounts if account.partition(":")[2] in text]
    return f"{CONFIG_NAME} still names {', '.join(named)}; take that out yourself." if named else ""


async def _retention(*, is_dry: bool, as_json: bool) -> None:
    from gateway.cli.data import opened_store, operator_config
    from gateway.cli.output import print_json, print_table, say
    from gateway.files.home import data_directory
    from gateway.ops.privacy.retention import Retention

    home = data_directory()
    config = operator_config(home).retention
    done: list[Any] = []
    async with opened_store(home) as store:
        if store is not None:
            done += await Retention(home, store, config).run(is_dry=is_dry)
    if as_json:
        print_json([asdict(each) for each in done])
        return
    if not done:
        say("There is nothing yet.")
        return
    rows = [(each.what, "without limit" if each.days is None else f"{each.days:g} days", each.amount) for each in done]
    print_table(("what", "is kept", "would go" if is_dry else "went"), rows, flexible=("what",))
