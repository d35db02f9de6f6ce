"""`ethos store`: the database as a whole: where it is, whether it is sound, and its way to another place."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.errors import EXIT_ERROR
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say
from gateway.errors import ConfigError
from gateway.files.home import data_directory

if TYPE_CHECKING:  # a command that only prints its help needs none of them
    from gateway.ops.moving import Place
    from gateway.store.copying import CheckedTable, Told

app = typer.Typer(help="Look at the database as a whole, check it, upgrade it, and move it.", no_args_is_help=True)

_SHOWN_S = 0.2
_DIGEST_CHARS = 16


@app.command()
@asynchronous
async def status(as_json: AsJson = False) -> None:
    """Show where the database is, its schema, and whether a copy has been made of it or into it."""
    from gateway.ops.moving import opened
    from gateway.store.copy_state import state_of

    place = _configured(data_directory())
    _check_there(place)
    async with opened(place, changes=False) as end:
        state = await end.engine.read(state_of)
        problem = await end.engine.problem()
        found = {
            "engine": end.engine.dialect.name,
            "place": end.place,
            "schema_version": await asyncio.to_thread(_version, place),
            "state": "in use" if state is None or state.state == "arrived" else state.state,
            "other": None if state is None else state.other,
            "since": None if state is None else state.since,
            "problem": problem,
        }
    if as_json:
        print_json(found)
        return
    where = f"SQLite in {end.place}" if isinstance(place, Path) else end.place  # which names PostgreSQL
    say(f"{where}, schema version {found['schema_version']}")
    if state is not None:
        meanings = {
            "arriving": f"A copy of {state.other} into it is not complete: call `ethos store copy` again from there.",
            "arrived": f"It was copied from {state.other}, and is in use.",
            "leaving": f"It is being copied to {state.other}; nothing may use it meanwhile.",
            "moved": f"It was moved to {state.other}, and is not used any more.",
        }
        say(meanings[state.state])
    if problem is not None:
        say(f"It cannot be written now: {problem}")


@app.command()
@asynchronous
async def check(as_json: AsJson = False) -> None:
    """Read every row: the structure, rows without their parents, and a digest of each table; changes nothing.

    Two databases with the same rows have the same digests, whatever engines they are of.
    """
    from gateway.ops.moving import opened
    from gateway.store.copying import check as checked

    place = _configured(data_directory())
    _check_there(place)
    async with opened(place, changes=False) as end:
        with _progress("checked") as told:
            tables, problems = await checked(end, told)
        where = end.place
    if as_json:
        print_json({"place": where, "problems": problems, "tables": [asdict(table) for table in tables]})
    else:
        print_table(("table", "rows", "digest"), [(one.name, one.amount, one.digest[:_DIGEST_CHARS]) for one in tables])
        for line in problems:
            say(f"Problem: {line}")
        if not problems:
            say(f"{where} is sound: {sum(one.amount for one in tables):,} rows in {len(tables)} tables.")
    if problems:
        raise typer.Exit(EXIT_ERROR)


@app.command()
@asynchronous
async def upgrade(as_json: AsJson = False) -> None:
    """Bring the tables up to date with this program; stop a gateway on one machine first."""
    from gateway.ops.moving import held, upgrade_database

    place = _configured(data_directory())
    async with held(place, makes=False):
        before = await asyncio.to_thread(_version, place)
        version = await asyncio.to_thread(upgrade_database, place)
    if as_json:
        print_json({"before": before, "schema_version": version})
    elif before == version:
        say(f"The schema is up to date: version {version}.")
    else:
        say(f"The schema has version {version} now.")


@app.command()
@asynchronous
async def copy(
    to: Annotated[str, typer.Option("--to", help="`postgresql://…`, an empty database, or a new directory.")],
    undo: Annotated[
        bool, typer.Option("--undo", help="Take a move back, as long as nothing was accepted at the target.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy the whole store to another database or directory, check every row, and mark this one as moved.

    Stop the gateway first. Call it again after an interruption: it goes on where it stopped.
    """
    from gateway.ops.moving import move, place_of, take_back
    from gateway.ops.privacy.home import has_memory_files

    home = data_directory()
    target, source = place_of(to), _configured(home)
    if source == target and not isinstance(source, Path):  # the configuration names the new one already
        source = home
    has_memory = has_memory_files(home)
    if undo:
        here, there = await take_back(source, target, has_memory=has_memory)
        if as_json:
            print_json({"source": here, "target": there})
        else:
            say(f"{here} is used again, and {there} is closed. A later `ethos store copy` to it copies what is new.")
        return
    began_s = time.monotonic()
    if isinstance(source, Path) and not isinstance(target, Path) and has_memory:
        await _settle_memory(source)
    with _progress("copied") as told:
        tables = await move(home, source, target, told, has_memory=has_memory)
    _tell(tables, source, target, time.monotonic() - began_s, as_json=as_json)


async def _settle_memory(home: Path) -> None:
    """Let the files have what turns have committed, and the journal what was saved by hand."""
    from contextlib import AsyncExitStack

    from gateway.cli.data import operator_config
    from gateway.cli.memory_copy import at_rest, brought_up_to_date, opened
    from gateway.config import ProviderConfig
    from gateway.files.home import DATABASE_NAME
    from gateway.ops.moving import opened as opened_end
    from gateway.store.copy_state import state_of

    if not (home / DATABASE_NAME).exists():
        return  # which is refused by its name
    async with opened_end(home) as end:
        if await end.engine.read(state_of) is not None:
            return  # it was done before; or it is refused
    async with at_rest(home) as store, AsyncExitStack() as stack:  # the configuration may name the new place already
        made = await opened(stack, home, operator_config(home), ProviderConfig(), store)
        await brought_up_to_date(made, store)


def _tell(tables: Sequence[CheckedTable], source: Place, target: Place, took_s: float, *, as_json: bool) -> None:
    rows = sum(table.amount for table in tables)
    if as_json:
        found = {"rows": rows, "seconds": round(took_s, 1)}
        print_json({**found, "tables": [asdict(table) for table in tables]})
        return
    say(
        f"Copied in {took_s:.1f} s: {rows:,} rows of {len(tables)} tables. Every row was read back, and the digest of "
        f"each table is the same at both ends."
    )
    if isinstance(target, Path):
        says = "Take `store.url` out of its config.yaml, then start" if not isinstance(source, Path) else "Start"
        say(f"{says} the gateway with ETHOS_HOME={target}.")
    else:
        say(
            "Set `store.url` in config.yaml to that address, and `secret` to the one of all workers, then start the "
            "gateway. docs/scale.md says more."
        )
    say(
        "What was copied is kept, and marked as moved: no gateway uses it. The same command with --undo takes that "
        "back, as long as nothing was accepted at the new place."
    )


# ---- which database -------------------------------------------------------------------------------------------------


def _configured(home: Path) -> Place:
    """The database that the gateway of this data directory uses.

    Raises:
        ConfigError: `store.url` cannot be looked up from this shell, or is none.
    """
    from gateway.cli.data import configured_database

    url = configured_database(home).url
    return home if url is None else url.get_secret_value()


def _check_there(place: Place) -> None:
    """A command that only looks makes no database."""
    from gateway.files.home import DATABASE_NAME

    if isinstance(place, Path) and not (place / DATABASE_NAME).exists():
        raise ConfigError([f"{place} has no database yet; `ethos serve` makes it"])


def _version(place: Place) -> int | None:
    """The schema version, without changing it; None where it cannot be read. Blocks."""
    from gateway.files.home import DATABASE_NAME
    from gateway.store.sqlite.schema import schema_version

    if isinstance(place, Path):
        return schema_version(place / DATABASE_NAME)
    from gateway.store.postgres.schema import version_of  # psycopg is an extra

    return version_of(place)


@contextmanager
def _progress(verb: str) -> Iterator[Told]:
    """A line on the terminal that says how far it is."""
    is_shown, shown_at = sys.stderr.isatty(), 0.0

    def told(table: str, amount: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if is_shown and now - shown_at > _SHOWN_S:
            shown_at = now
            sys.stderr.write(f"\r\x1b[K{table}: {amount:,} {verb}")
            sys.stderr.flush()

    try:
        yield told
    finally:
        if is_shown:
            sys.stderr.write("\r\x1b[K")
