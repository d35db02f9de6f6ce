"""Moves a whole store: the rows of its database, and whatever else of a data directory belongs with them.

Both ends are held meanwhile. A data directory is held by its lock; a database on a server says of itself that it is
being copied, since programs on other machines may use it, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from gateway.config.file import CONFIG_NAME
from gateway.errors import BackupError, ConfigError, StoreUnavailable
from gateway.files.atomic import sync_directory, write_atomically
from gateway.files.home import DATABASE_NAME, prepare_home
from gateway.files.positions.yaml import parse_marked_yaml, read_marked_yaml, value_at
from gateway.files.running_gateway import take
from gateway.ops.backup.archive import list_files
from gateway.ops.backup.contents import STAGING_PREFIX, secrets_of
from gateway.ops.backup.placing import refuse_half_placed
from gateway.ops.backup.taking import Copy, CopyResult, copy_at_one_moment
from gateway.ops.belongings import clear, gather, spread
from gateway.ops.moving_facts import copy_facts
from gateway.runtime.extras import how_to_install
from gateway.store.copy_state import state_of
from gateway.store.copying import CheckedTable, Copying, Told, undo
from gateway.store.sqlite.copied import SqliteEnd
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.schema import migrate, migrations
from gateway.store.sqlite.search import register_functions
from gateway.store.tables import End
from gateway.traces.trace_store import TRACES_NAME

Place = Path | str
"""A data directory, or the address of a database on a server."""

_WORKSPACES = ("tools", "workspaces")
_STAGING = f"{STAGING_PREFIX}moving"


def place_of(text: str) -> Place:
    """What is meant by an argument.

    Raises:
        ConfigError: it is the address of something else.
    """
    scheme, is_url, _ = text.partition("://")
    if not is_url:
        return Path(text).expanduser().resolve()
    if scheme not in ("postgresql", "postgres"):
        raise ConfigError([f"{scheme}:// is no database that can be used; expected postgresql://… or a directory"])
    return text


def upgrade_database(place: Place, *, changes: bool = True) -> int:
    """Make the tables of a place, or bring them up to date; the schema version they have then. Blocks.

    Args:
        changes: False: a server whose tables would have to be changed is refused.

    Raises:
        SchemaTooNew: a newer program made them; nothing was changed.
        StoreUnavailable: the place cannot be used.
        ConfigError: psycopg is missing, or the address is none.
    """
    if isinstance(place, Path):
        return migrate(place / DATABASE_NAME, prepare=register_functions)
    try:
        from psycopg import ProgrammingError  # noqa: PLC0415 (psycopg is an extra)

        from gateway.store.postgres.schema import upgrade  # noqa: PLC0415 (as above)
    except ImportError as error:
        raise ConfigError([f"PostgreSQL needs psycopg; run {how_to_install('postgres', 'psycopg')}"]) from error
    try:
        return upgrade(place, changes=changes)
    except ProgrammingError:  # before a server was asked; its text quotes the address
        why = (
            "this is no address of PostgreSQL; expected such as postgresql://user@host/database (%40 is an @ in a name)"
        )
        raise ConfigError([why]) from None


@asynccontextmanager
async def held(place: Place, *, makes: bool) -> AsyncIterator[None]:
    """Keep gateways and other commands away from a data directory; of a server nothing can be held so.

    Args:
        makes: make the directory where there is none.

    Raises:
        DataDirectoryLocked: a gateway runs on it.
        ConfigError: there is no database in it.
    """
    if not isinstance(place, Path):
        yield
        return
    if makes:
        await asyncio.to_thread(prepare_home, place)
    elif not (place / DATABASE_NAME).exists():
        raise ConfigError([f"{place} has no database; look at ETHOS_HOME, and at `store.url` in the configuration"])
    lock = await take(place)
    try:
        refuse_half_placed(place)
        yield
    finally:
        lock.release()


@asynccontextmanager
async def opened(place: Place, *, changes: bool = True) -> AsyncIterator[End]:
    """The database of a place, with its tables up to date, whatever a copy has made of it.

    Args:
        changes: as `upgrade_database`.

    Raises:
        StoreError, ConfigError: it cannot be used.
    """
    await asyncio.to_thread(upgrade_database, place, changes=changes)
    end: End
    if isinstance(place, Path):
        end = SqliteEnd(SqliteEngine(place / DATABASE_NAME, prepare=register_functions))
    else:
        from gateway.store.postgres.copied import PostgresEnd  # noqa: PLC0415 (psycopg is an extra)
        from gateway.store.postgres.engine import PostgresEngine  # noqa: PLC0415 (as above)

        end = PostgresEnd(PostgresEngine(place, connections=2), place)
    try:
        yield end
    finally:
        await end.engine.close()


async def move(
    home: Path, source: Place, target: Place, told: Told, *, has_memory: bool = True
) -> Sequence[CheckedTable]:
    """Copy all of a store to an empty place, verify it, and mark the source as moved.

    Args:
        home: the data directory whose files belong with the source.
        has_memory: in a data directory the documents of the memory are files.

    Raises:
        ConfigError: the two are one place, or one is none.
        DataDirectoryLocked: a gateway runs on one of the two.
        StoreError: see `Copying.move`; what was copied stays, and the next call goes on.
    """
    if target in (source, home):
        raise ConfigError([f"{target} is where the store is now; name another directory or database"])
    async with held(source, makes=False), held(target, makes=True), opened(source) as one, opened(target) as other:
        along, at_end = None, None
        if isinstance(target, Path):
            is_from_server = not isinstance(source, Path)

            async def along() -> None:
                await _copy_files(home, target, only_settings=is_from_server)
                if is_from_server:
                    await spread(target, other.engine, has_memory=has_memory)

            at_end = partial(clear, has_memory=has_memory) if is_from_server else None
        elif isinstance(source, Path):
            state = await one.engine.read(state_of)
            if state is None or state.state != "moved":
                await gather(source, one.engine, has_memory=has_memory)
        if not (isinstance(source, Path) and isinstance(target, Path)):  # else they are one of the files
            along = partial(_with_facts, along, source, target, told)
        return await Copying(one, other, told=told).move(along, at_end)


async def _with_facts(files: Callable[[], Awaitable[None]] | None, source: Place, target: Place, told: Told) -> None:
    if files is not None:
        await files()
    await copy_facts(source, target, told)


async def take_back(source: Place, target: Place, *, has_memory: bool = True) -> tuple[str, str]:
    """Undo a move; the names of both places. See `gateway.store.copying.undo`."""
    async with held(source, makes=False), held(target, makes=False), opened(source) as one, opened(target) as other:
        is_of_files = isinstance(source, Path) and not isinstance(target, Path)
        await undo(one, other, partial(clear, has_memory=has_memory) if is_of_files else None)
        return one.place, other.place


async def back_up_into(
    directory: Path, source: Place, told: Told, *, has_memory: bool = True
) -> Sequence[CheckedTable]:
    """Write the database of a data directory for one machine, as the source is at one moment; it goes on meanwhile.

    What lies in files on one machine is written as files.

    Args:
        directory: one without a database.
        has_memory: on one machine the documents of the memory are files.

    Raises:
        StoreError: the source cannot be read, or the directory has no room.
    """
    async with opened(source, changes=False) as one, opened(directory) as other:
        checked = await Copying(one, other, told=told).back_up()
        await spread(directory, other.engine, has_memory=has_memory)
        await other.engine.write(partial(clear, has_memory=has_memory))
    if not isinstance(source, Path):
        await copy_facts(source, directory, told)
    return checked


def copy_of_server(url: str, told: Told, *, has_memory: bool = True) -> Copy:
    """For `take_backup`: what a directory for one machine is made of where the database is on a server."""

    async def copy(home: Path, target: Path, /, *, with_secrets: bool) -> CopyResult:
        copied = await _copy_settings(home, target, with_secrets=with_secrets)
        await back_up_into(target, url, told, has_memory=has_memory)
        copied.schema_version = migrations()[-1].version
        config = target / CONFIG_NAME
        place = await asyncio.to_thread(_workspaces_in, config)
        if place is not None:
            copied.left_out.append(f"the files of people in {place}; back that directory up, too")
        if config.exists() and not await asyncio.to_thread(_leave_server, config):
            copied.left_out.append(f"nothing of {CONFIG_NAME}, which names the server: take `store` out of it")
        await asyncio.to_thread(_drop_locks, target)
        return copied

    return copy


def _workspaces_in(config: Path) -> str | None:
    """The directory that all workers share for the files of people, where there is one."""
    found = value_at(read_marked_yaml(config, CONFIG_NAME).values, _WORKSPACES) if config.exists() else None
    return found if isinstance(found, str) else None


def _drop_locks(directory: Path) -> None:
    for path in [*directory.rglob(".*.lock")]:
        path.unlink()


def _leave_server(config: Path) -> bool:
    """Make comments of the section `store`, so that one machine uses its own file; False: it is written unusually."""
    lines, is_of_store = [], False
    for line in config.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.strip() and line[0] not in " \t#}]":
            is_of_store = line.startswith("store:")
        lines.append(f"# {line}" if is_of_store and line.strip() and line[0] != "#" else line)
    text = "".join(lines)
    document = parse_marked_yaml(text.encode(), CONFIG_NAME)
    if not document.is_readable or "store" in document.values:
        return False
    write_atomically(config, text.encode())
    return True


async def _copy_files(home: Path, target: Path, *, only_settings: bool) -> None:
    """All files of a data directory but its database and what belongs to one process, secrets too; each compared.

    They come together into a directory of their own, and from there by renames, so a broken copy is made once more.

    Args:
        only_settings: the configuration, the secrets, and what channels keep. All else in the directory is older than
            the database, which is elsewhere.
    """
    staging = target / _STAGING
    await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    if only_settings:
        copied = await _copy_settings(home, staging, with_secrets=True)
    else:
        copied = await copy_at_one_moment(home, staging, with_secrets=True, databases=(TRACES_NAME,))
    if copied.left_out:
        raise BackupError("these files cannot go along: " + "; ".join(copied.left_out))
    await asyncio.to_thread(_put_in_place, home, staging, target, copied.links)


async def _copy_settings(home: Path, target: Path, *, with_secrets: bool) -> CopyResult:
    """The configuration, the secrets, and what channels keep."""
    copied = await copy_at_one_moment(home, target, with_secrets=with_secrets, databases=())
    wanted = {CONFIG_NAME, "channels", *(path.parts[0] for path in await asyncio.to_thread(secrets_of, home))}
    await asyncio.to_thread(_drop_others, target, wanted)
    copied.links = {path: goal for path, goal in copied.links.items() if path.parts[0] in wanted}
    return copied


def _drop_others(directory: Path, wanted: Collection[str]) -> None:
    for path in directory.iterdir():
        if path.name not in wanted:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _put_in_place(home: Path, staging: Path, target: Path, links: dict[Path, str]) -> None:
    for name, listed in list_files(staging).items():
        is_evidence = Path(name).name.startswith((".MEMORY.md.", ".USER.md."))  # of which the name is all that counts
        if name != TRACES_NAME and not is_evidence and (home / name).is_file():
            with (home / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != listed.sha256:
                    raise StoreUnavailable(f"{home / name} changed while it was copied; call this again")
    for link, goal in links.items():
        (staging / link).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (staging / link).symlink_to(goal)
    for entry in sorted(staging.iterdir()):
        there = target / entry.name
        if there.is_dir() and not there.is_symlink():
            shutil.rmtree(there)
        entry.rename(there)
    staging.rmdir()
    sync_directory(target)
