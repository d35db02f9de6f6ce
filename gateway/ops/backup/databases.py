"""The databases of a data directory, each as it is at one moment, and whether a copy is sound."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.errors import BackupError, SchemaTooNew
from gateway.files.home import DATABASE_NAME
from gateway.store.sqlite.engine import connect
from gateway.store.sqlite.schema import migrations
from gateway.store.sqlite.search import register_functions
from gateway.traces import search_words
from gateway.traces.trace_store import TRACES_NAME

DATABASES = (DATABASE_NAME, TRACES_NAME)
"""The main one is first: what the traces took from a later turn is then taken again, without effect."""


def functions_of(name: str) -> Callable[[sqlite3.Connection], None]:
    """What gives a connection the SQL functions that the schema of a database uses."""
    return search_words.register_functions if name == TRACES_NAME else register_functions


class Snapshot:
    """A database in a read transaction, which goes on showing the moment in which it began."""

    def __init__(self, path: Path) -> None:
        """Begin the transaction.

        Raises:
            StoreUnavailable: the file cannot be opened, or is not a database.
        """
        self.name = path.name
        self._connection = connect(path, prepare=functions_of(path.name))
        try:
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the first reading takes it
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """End the transaction. Idempotent."""
        self._connection.close()

    def copy_into(self, directory: Path) -> int:
        """Write the database as it was, into one file of the same name; its schema version.

        Raises:
            SchemaTooNew: a newer program wrote it.
            BackupError: it is damaged, or there is no room.
        """
        snapshot = self._connection
        version = int(snapshot.execute("PRAGMA user_version").fetchone()[0])
        newest = newest_schema(self.name)
        if version > newest:
            raise SchemaTooNew(
                f"{self.name} has schema version {version}, this program knows versions up to {newest}. "
                f"Make the backup with the program that wrote it."
            )
        pages, page_bytes = (snapshot.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        free_bytes = shutil.disk_usage(directory).free
        if free_bytes < pages * page_bytes:
            raise BackupError(
                f"{directory.parent.parent} has {free_bytes >> 20} MiB left, and {self.name} alone has "
                f"{pages * page_bytes >> 20} MiB. Make room, or name a file on another disk."
            )
        copy = directory / self.name
        os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(copy)) as written:
            functions_of(self.name)(written)
            snapshot.backup(written)
            written.execute("PRAGMA journal_mode = DELETE")  # one file, without companions
            problems = problems_of(written)
        if problems:
            raise BackupError(f"{self.name} is damaged: {problems[0]}. `ethos doctor` says more. No backup was made.")
        return version


def take_snapshots(home: Path, names: Sequence[str] = DATABASES) -> list[Snapshot]:
    """Those databases of the data directory that are there.

    Raises:
        StoreUnavailable: one cannot be opened, or is not a database.
    """
    taken: list[Snapshot] = []
    try:
        for name in names:
            if (home / name).exists():
                taken.append(Snapshot(home / name))  # noqa: PERF401 (those that are taken must be closed)
    except BaseException:
        for snapshot in taken:
            snapshot.close()
        raise
    return taken


def newest_schema(name: str) -> int:
    """The newest schema version of a database that this program knows."""
    steps = migrations("gateway.traces") if name == TRACES_NAME else migrations()
    return steps[-1].version


def problems_of(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with a database, at most a hundred lines; nothing when it is sound. Reads the whole file."""
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        found += [
            f"a row of {row[0]} without its row in {row[2]}" for row in connection.execute("PRAGMA foreign_key_check")
        ]
    except sqlite3.DatabaseError as error:  # so damaged that the check itself stops
        return [str(error)]
    return [line for line in found if line != "ok"]
