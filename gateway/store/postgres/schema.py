"""Brings a database to this program's schema: numbered SQL files, in one transaction, under a lock of our own."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg

from gateway.errors import SchemaTooNew, StoreUnavailable
from gateway.runtime.failpoints import reach
from gateway.store.postgres.connection import PostgresConnection
from gateway.store.postgres.engine import Server
from gateway.store.sqlite.schema import Migration, migrations

OLDEST_SERVER = 150_000
# A change of a table waits for all who use it, and all who come after it wait for the change: so not for long at once.
LOCK_TIMEOUT_MS = 3_000
# And so long in all.
PATIENCE_S = 60.0
_PACKAGE = "gateway.store.postgres"
_OLDEST_PROGRAM = re.compile(r"^-- oldest_program: (\d+)$", re.MULTILINE)
ABOUT = """
    SELECT current_setting('server_version_num')::bigint AS version, current_setting('server_encoding') AS encoding,
        pg_is_in_recovery() AS is_standby, current_schema() AS place
"""
# Tables of an extension are nobody's; those of the memory (`memory.provider: postgres`) may stand beside ours.
_TABLES = """
    SELECT relname FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace AND relname NOT LIKE 'ethos\\_%'
        AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')
    ORDER BY relname
"""
_MARK = """
    SELECT count(*) = 3 FROM pg_attribute
    WHERE attrelid = to_regclass('schema') AND attname IN ('only_row', 'version', 'oldest_program')
"""


def steps() -> Sequence[Migration]:
    """All steps in order."""
    return migrations(_PACKAGE)


def upgrade(
    url: str, *, known: Sequence[Migration] | None = None, patience_s: float = PATIENCE_S, changes: bool = True
) -> int:
    """Make the tables, or bring them up to date; the version they have then. Safe when several workers do it at once.

    Args:
        url: as libpq takes it.
        known: the steps that this program knows, by default its own.
        patience_s: how long to try again while somebody holds a table, or upgrades.
        changes: False: only look, and refuse tables that would have to be changed.

    Raises:
        SchemaTooNew: a newer program made the tables, which this one must not use; nothing was changed.
        StoreUnavailable: the server cannot be reached or used, or the database is another program's.
    """
    known = steps() if known is None else known
    server = Server(url)
    until_s = time.monotonic() + patience_s
    while True:
        try:
            return _tried(server, known, changes=changes)
        except psycopg.errors.LockNotAvailable as error:
            if time.monotonic() > until_s:
                raise server.translated(error) from error
        except psycopg.Error as error:
            raise server.translated(error) from error
        time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 (no secret)


def version_of(url: str) -> int:
    """The schema version of a database, which is not changed; 0 without tables. Blocks.

    Raises:
        SchemaTooNew, StoreUnavailable: as `upgrade`.
    """
    server = Server(url)
    try:
        with closing(server.connect(timeout_s=5.0)) as connection:
            return _version(connection, server, steps()[-1].version)
    except psycopg.Error as error:
        raise server.translated(error) from error


def check_version(server: str, version: int, oldest_program: int, newest: int) -> None:
    """Refuse a schema that a program which knows versions up to `newest` must not use.

    Raises:
        SchemaTooNew: it must not.
    """
    if version > newest and oldest_program > newest:
        raise SchemaTooNew(
            f"{server} has schema version {version}, for programs that know version {oldest_program} or newer; this "
            f"one knows versions up to {newest}. Install the program that made it or a newer one."
        )


def problems(about: Any) -> Iterator[str]:
    """What makes a server unfit, each with what to do.

    Args:
        about: a row with `version` (as 150004), `encoding`, `is_standby` and `place`, the schema for new tables.
    """
    if about["version"] < OLDEST_SERVER:
        yield f"is PostgreSQL {about['version'] // 10_000}, which is too old; use {OLDEST_SERVER // 10_000} or newer"
    if about["encoding"] != "UTF8":
        yield f"has the encoding {about['encoding']}; make a database with `ENCODING 'UTF8'`"
    if about["is_standby"]:
        yield (
            "is a standby, which can only be read; give the address of the primary, or all hosts and "
            "`target_session_attrs=read-write`"
        )
    if about["place"] is None:
        yield "has no schema for our tables; make the one that `search_path` names, or correct that"


def _tried(server: Server, known: Sequence[Migration], *, changes: bool) -> int:
    connection = server.connect(timeout_s=5.0)
    try:
        for problem in problems(connection.execute(ABOUT).fetchone()):
            raise StoreUnavailable(f"{server.shown} {problem}. Nothing was changed.")
        version = _version(connection, server, known[-1].version)
        if version < known[-1].version and not changes:
            there = f"the tables of schema version {version}" if version else "no tables of ours"
            raise StoreUnavailable(
                f"{server.shown} has {there}, and this program works with version {known[-1].version}. Call `ethos "
                f"store upgrade`, since `store.upgrade` is `by_hand`. Nothing was changed."
            )
        if version < known[-1].version:
            connection.begin(is_durable=True, alone=())
            connection.execute("SELECT set_config('lock_timeout', ?, true)", (str(LOCK_TIMEOUT_MS),))
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('schema', 0))").fetchone()
            version = _version(connection, server, known[-1].version)  # another process may have been first
            for step in known:
                if step.version > version:
                    _apply(connection, step)
            reach("schema.committing")
            connection.commit()
        return max(version, known[-1].version)
    finally:
        connection.close()


def _apply(connection: PostgresConnection, step: Migration) -> None:
    oldest = _OLDEST_PROGRAM.search(step.script)
    connection.script(step.script)
    connection.execute(
        "INSERT INTO schema (only_row, version, oldest_program) VALUES (1, ?1, coalesce(?2, ?1))"
        " ON CONFLICT (only_row) DO UPDATE"
        " SET version = excluded.version, oldest_program = coalesce(?2, schema.oldest_program)",
        (step.version, int(oldest[1]) if oldest else None),
    )


def _version(connection: PostgresConnection, server: Server, newest: int) -> int:
    tables = [row[0] for row in connection.execute(_TABLES).fetchall()]
    if not tables:
        return 0
    if "schema" not in tables or not connection.execute(_MARK).fetchone()[0]:
        shown = ", ".join(tables[:3]) + (", …" if len(tables) > 3 else "")
        raise StoreUnavailable(
            f"{server.shown} has tables of another program ({shown}). Make a database of its own for the gateway, and "
            f"name that in `url`. Nothing was changed."
        )
    version, oldest_program = connection.execute("SELECT version, oldest_program FROM schema").fetchone()
    check_version(server.shown, version, oldest_program, newest)
    return int(version)
