"""Restore a backup: unpack and check it, bring it up to date, and only then put it in place."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gateway.errors import BackupError, SchemaTooNew
from gateway.files.atomic import make_private_directory, sync_directory
from gateway.files.home import DATABASE_NAME, LOCK_NAME, RUNNING_NAME
from gateway.files.locks import hold
from gateway.ops.backup.archive import Contents, read_archive
from gateway.ops.backup.contents import PLACING_NAME, REPLACED_PREFIX, UNPACKED_PREFIX
from gateway.ops.backup.databases import functions_of, problems_of
from gateway.ops.backup.placing import finish_placing, place, present
from gateway.store.sqlite.schema import migrate, migrations
from gateway.store.sqlite.search import register_functions
from gateway.traces.trace_store import TRACES_NAME

Clean = Callable[[Path, Path], Sequence[str]]
"""Given an unpacked backup and the data directory that it replaces, takes out of the former what must not come back,
such as a person who was erased since; returns one line for people for each thing it did."""

_MAY_BE_THERE = frozenset([Path(RUNNING_NAME).parts[0], "lost+found"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was done.

    Attributes:
        replaced: where the files are that were there before; None where there were none.
        schema_version: of the database now; None where the backup has none.
        unsent: replies that waited when the backup was made, and are marked as perhaps sent since.
        kept_secrets: files with secrets that were taken over from the directory before.
        missing_secrets: those that the backup was made without, and are not there.
        cleaned: one line for people for each thing that was taken out.
    """

    contents: Contents
    replaced: Path | None
    schema_version: int | None
    unsent: int
    kept_secrets: tuple[str, ...]
    missing_secrets: tuple[str, ...]
    cleaned: tuple[str, ...]


def restore(backup: Path, home: Path, *, is_replacing: bool = False, clean: Sequence[Clean] = ()) -> Restored:
    """Put a backup into a data directory. Blocks.

    Until the last step nothing of what is there is touched; the last step cannot be left half done, see `placing`.

    Args:
        home: the data directory; made where it is missing.
        is_replacing: it may hold something, which is renamed and kept in the same directory.
        clean: run in order on what was unpacked, before it is put in place.

    Raises:
        DataDirectoryLocked: a gateway runs on the directory.
        BackupError: the backup cannot be trusted, or the directory holds something.
        SchemaTooNew: a newer program made the backup.
        StoreError: the backup's database cannot be brought up to date.
        OSError: the backup cannot be read, or the disk is full.
    """
    if not backup.is_file():
        raise BackupError(f"there is no file {backup}")
    make_private_directory(home)
    lock = hold(home / LOCK_NAME)
    try:
        finish_placing(home)
        there = [name for name in present(home) if name not in _MAY_BE_THERE]
        if there and not is_replacing:
            raise BackupError(
                f"{home} is not empty: it holds {', '.join(there[:5])}{' and more' if len(there) > 5 else ''}. "
                f"With --replace it is put aside first, and kept."
            )
        unpacked = home / f"{UNPACKED_PREFIX}{secrets.token_hex(6)}"
        unpacked.mkdir(mode=0o700)
        try:
            return _restore(backup, home, unpacked, clean=clean)
        finally:
            # Once it is being put in place, `finish_placing` needs what is not there yet.
            if not (home / PLACING_NAME).exists():
                shutil.rmtree(unpacked, ignore_errors=True)
    finally:
        lock.release()


def _restore(backup: Path, home: Path, unpacked: Path, *, clean: Sequence[Clean]) -> Restored:
    contents = read_archive(backup, unpacked)
    newest = migrations()[-1].version
    if contents.schema_version is not None and contents.schema_version > newest:
        raise SchemaTooNew(
            f"{backup} has a database of schema version {contents.schema_version}, this program knows versions up to "
            f"{newest}. Install the program that made it ({contents.version}), or a newer one. Nothing was changed."
        )
    for name in (DATABASE_NAME, TRACES_NAME):
        _check(unpacked / name)
    database = unpacked / DATABASE_NAME
    schema_version, unsent = _bring_up_to_date(database) if database.exists() else (None, 0)
    kept, missing = _take_over_secrets(contents.secrets, home, unpacked)
    cleaned = [line for step in clean for line in step(unpacked, home)]
    replaced = _free_name(home) if present(home) else None
    place(home, unpacked, replaced or _free_name(home))
    return Restored(
        contents=contents,
        replaced=replaced,
        schema_version=schema_version,
        unsent=unsent,
        kept_secrets=kept,
        missing_secrets=missing,
        cleaned=tuple(cleaned),
    )


def _check(path: Path) -> None:
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(path)) as connection:
        functions_of(path.name)(connection)
        problems = problems_of(connection)
    if problems:
        raise BackupError(f"{path.name} in the backup is damaged: {problems[0]}. Use another one; nothing was changed.")


def _bring_up_to_date(path: Path) -> tuple[int, int]:
    """Migrate the database; its version then, and how many replies wait in it.

    What waited may have been sent after the backup was made. So it counts as uncertain: where the platform can tell, it
    is asked, and elsewhere the person reads that it may be a repeat.
    """
    version = migrate(path, prepare=register_functions)
    path.with_name(f"{path.name}.before-{version}").unlink(missing_ok=True)  # the backup itself is that copy
    with contextlib.closing(sqlite3.connect(path)) as connection:
        register_functions(connection)
        changed = connection.execute("UPDATE outbox SET is_uncertain = 1 WHERE ended_at IS NULL").rowcount
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return version, changed


def _take_over_secrets(names: Sequence[str], home: Path, unpacked: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Keep those of the directory before, which the backup has not; the names that were there, and that were not."""
    kept, missing = [], []
    for name in names:
        source, target = home / name, unpacked / name
        if source.is_symlink() or not source.exists():
            missing.append(name)
            continue
        make_private_directory(target.parent)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target, follow_symlinks=False)
        _make_durable(target)
        kept.append(name)
    return tuple(kept), tuple(missing)


def _make_durable(copy: Path) -> None:
    """A file, or all of a directory, to the disk: soon there is no other copy in the place where it is looked for."""
    below = [*copy.rglob("*")] if copy.is_dir() else []
    for path in (copy, *below):
        if path.is_symlink():
            continue
        if path.is_dir():
            sync_directory(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_directory(copy.parent)


def _free_name(home: Path) -> Path:
    stem = f"{REPLACED_PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    names = [stem, *(f"{stem}-{number}" for number in range(2, 1000))]
    return next(home / name for name in names if not (home / name).exists())
