"""Brings a database file to this program's schema: numbered SQL files, in one transaction, after a copy."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from gateway.errors import SchemaTooNew, StoreError, StoreUnavailable
from gateway.files.locks import refuse_network_file_system
from gateway.runtime.failpoints import reach
from gateway.store.sqlite.engine import connect

# STRICT tables came with 3.37, https://www.sqlite.org/stricttables.html
OLDEST_SQLITE = (3, 37, 0)
# "Etho": tells our files from those of other programs, https://www.sqlite.org/pragma.html#pragma_application_id
APPLICATION_ID = 0x4574686F
_BROKEN = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


@dataclass(frozen=True, slots=True)
class Migration:
    """The step from the version before to `version`."""

    version: int
    name: str
    script: str


def migrations(package: str = "gateway.store.sqlite") -> Sequence[Migration]:
    """All steps in order, from a package's own files."""
    found = [
        Migration(int(file.name[:4]), file.name, file.read_text(encoding="utf-8"))
        for file in resources.files(package).joinpath("migrations").iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found, key=lambda migration: migration.version)


def schema_version(path: Path) -> int | None:
    """The version in the file, without changing it; None where it is no database or cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return None


def migrate(
    path: Path, *, prepare: Callable[[sqlite3.Connection], None], steps: Sequence[Migration] | None = None
) -> int:
    """Make the file, or bring it up to date; the version it has then.

    A file that has tables already is first copied in its directory, to `<name>.before-<version>`. Safe when several
    processes do it at once. Only the owner may read the file.

    Raises:
        SchemaTooNew: a newer program wrote the file; nothing was changed.
        StoreUnavailable: it cannot be opened, is not a database, or is another program's.
        UnsafePath: the directory lies on a network file system.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old; {'.'.join(map(str, OLDEST_SQLITE))} or newer is needed. "
            f"Use a Python that is built with it."
        )
    steps = migrations() if steps is None else steps
    with _explained(path):
        refuse_network_file_system(path.parent)
        _make_private(path)
        with contextlib.closing(connect(path, prepare=prepare)) as connection:
            if _version(connection, path, steps[-1].version) < steps[-1].version:
                _apply(connection, path, steps)
    return steps[-1].version


def _apply(connection: sqlite3.Connection, path: Path, steps: Sequence[Migration]) -> None:
    connection.execute("PRAGMA foreign_keys = OFF")  # a step may have to rebuild a table
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection, path, steps[-1].version)  # another process may have been first
        if version:
            _copy(path, path.with_name(f"{path.name}.before-{steps[-1].version}"))
        for step in steps:
            if step.version > version:
                for statement in _statements(step.script):
                    connection.execute(statement)
        _check_parents(connection, path)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {steps[-1].version}")
        reach("schema.committing")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_parents(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise StoreError(f"{path}: the new schema leaves rows without their parents; nothing was changed")


def _version(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    has_tables = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
    if has_tables and application != APPLICATION_ID:
        raise StoreUnavailable(f"{path} is the database of another program. Move it away, or choose another place.")
    if version > newest:
        raise SchemaTooNew(
            f"{path} has schema version {version}, this program knows versions up to {newest}. Install the program "
            f"that wrote it or a newer one; or, to go back and lose what was said since the upgrade, put the copy "
            f"{path.name}.before-{version} in its place."
        )
    return version


def _statements(script: str) -> Iterator[str]:
    """The statements one by one, because `executescript` commits before it begins."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _copy(path: Path, target: Path) -> None:
    """A complete copy under its name, or none."""
    unfinished = target.with_name(target.name + ".unfinished")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    with contextlib.closing(connect(path)) as source, contextlib.closing(sqlite3.connect(unfinished)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without companions
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(target)


def _make_private(path: Path) -> None:
    """Make the file, or take other people's rights away; SQLite gives its companions the same rights."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say what an operator can do about a file that cannot be used."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be opened: {error.strerror}. Check that the directory exists and is yours."
        ) from error
    except (sqlite3.Error, StoreUnavailable) as error:
        cause = error if isinstance(error, sqlite3.Error) else error.__cause__
        code = getattr(cause, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _BROKEN:
            raise StoreUnavailable(
                f"{path} is damaged, or not a database ({cause}). Nothing was changed. Move it away and put a backup "
                f"in its place; without one, `sqlite3 {path.name} .recover` saves what can be saved."
            ) from error
        if isinstance(error, sqlite3.Error):
            raise StoreUnavailable(f"{path}: {error}. Nothing was changed.") from error
        raise
