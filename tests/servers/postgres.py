"""Debian's PostgreSQL."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from tests.servers import INSTALL, Process, directory, free_port, other_user
from tests.servers.certificates import self_signed
from tests.servers.silent_proxy import silent_proxy


def _programs() -> Path | None:
    """Debian's newest; elsewhere those on the path."""
    found = sorted(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")),
        key=lambda path: int(path.parent.name) if path.parent.name.isdecimal() else 0,
    )
    on_path = shutil.which("initdb")
    return found[-1] if found else Path(os.path.realpath(on_path)).parent if on_path else None


PROGRAMS = _programs()
MISSING = None if PROGRAMS else f"PostgreSQL is missing: {INSTALL}"
USER = "ethos"
# Not for tests of faults: a server that is killed or restarted at once loses what it confirmed last.
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


@dataclass(frozen=True)
class PostgresServer:
    """One that runs.

    A copy with another `port` (`dataclasses.replace`) is the same server by way of a proxy.
    """

    port: int
    process: Process
    root: Path
    ca_file: Path | None = None

    def url(self, database: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def restart(self) -> None:
        """End it at once, as `pg_ctl restart -m immediate` does, and start it on its port.

        Clients are cut off. What was confirmed stays, unless `synchronous_commit` is off.
        """
        self.process.stop(signal.SIGQUIT)
        self.process.start()


def limit(max_file_bytes: int | None) -> list[str]:
    """What stands before a command whose files cannot grow longer."""
    return [] if max_file_bytes is None else ["prlimit", f"--fsize={max_file_bytes}"]


@contextlib.contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A copy that follows a server, and can be read only."""
    assert PROGRAMS
    with directory() as root:
        data, port = root / "data", free_port()
        subprocess.run(
            [PROGRAMS / "pg_basebackup", "-d", primary.url(), "-D", data, "-R", "--checkpoint=fast", "--no-sync"],
            check=True, user=other_user(), cwd="/",
        )  # fmt: skip
        with _running(root, port, user=other_user()) as process:
            yield PostgresServer(port, process, root)


@contextlib.contextmanager
def of_version(server: PostgresServer, version: int) -> Iterator[PostgresServer]:
    """The same server by way of a proxy, where it says that it is of another version; 140011 is 14.11."""
    with psycopg.connect(server.url()) as connection:
        true = connection.info.server_version
    with silent_proxy(server.port) as proxy:
        proxy.replaced = {
            b"server_version\0%d" % (true // 10_000): b"server_version\0%d" % (version // 10_000),
            b"%d" % true: b"%d" % version,
        }
        yield replace(server, port=proxy.port)


@contextlib.contextmanager
def fresh_database(server: PostgresServer, prepare: Callable[[str], None]) -> Iterator[str]:
    """The URL of a database with a schema and without a row of another test.

    A database is some 700 files, which take longer to make than most tests take. So one that was used is emptied for
    the next that wants such a one, unless its tables were changed: that is dropped.

    Args:
        prepare: makes the schema in the database with this URL, and closes its connections. It runs once per server,
            so it is a function that has a name; each database is a copy of what it made.
    """
    free = _free(server, prepare)
    name = free.pop() if free else _copy(server, _template(server, prepare).name)
    try:
        yield server.url(name)
    finally:
        _do(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", name)
        if _emptied(server, name, _template(server, prepare)):
            free.append(name)
        else:
            _do(server, f"DROP DATABASE {name} WITH (FORCE)")


@dataclass(frozen=True)
class _Template:
    """What a database is emptied to.

    Attributes:
        shape: a digest of its tables, columns, functions and settings.
        rows: of each table that has any, as JSON.
        restart: a statement that sets all sequences.
    """

    name: str
    shape: str
    rows: dict[str, str]
    restart: str | None


@functools.cache
def _template(server: PostgresServer, prepare: Callable[[str], None]) -> _Template:
    name = _name()
    _do(server, f"CREATE DATABASE {name}")
    prepare(server.url(name))
    with psycopg.connect(server.url(name)) as connection:
        rows = {table: _one(connection, _ROWS.format(table=table)) for table in _filled(connection)}
        return _Template(name, str(_one(connection, _SHAPE)), rows, _one(connection, _RESTART))


@functools.cache
def _free(server: PostgresServer, prepare: Callable[[str], None]) -> list[str]:
    return []


def _copy(server: PostgresServer, template: str) -> str:
    name = _name()
    _do(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    return name


_SHAPE = """
    SELECT md5(string_agg(what, ',' ORDER BY what)) FROM (
        SELECT format('%s %s %s', relnamespace, relname, relkind) FROM pg_class WHERE relpersistence <> 't'
        UNION ALL SELECT format('%s %s %s %s', attrelid, attname, atttypid, attnotnull) FROM pg_attribute
            JOIN pg_class ON pg_class.oid = attrelid WHERE relpersistence <> 't' AND attrelid >= 16384
        UNION ALL SELECT format('%s %s', oid, conname) FROM pg_constraint
        UNION ALL SELECT format('%s %s', oid, xmin) FROM pg_proc WHERE oid >= 16384
        UNION ALL SELECT format('%s %s', oid, tgenabled) FROM pg_trigger
        UNION ALL SELECT format('%s %s', indexrelid, indisvalid) FROM pg_index
        UNION ALL SELECT format('%s %s %s', setrole, setconfig, setdatabase = 0) FROM pg_db_role_setting
    ) AS all_of_it (what)
"""
_TABLES = """
    SELECT string_agg(format('SELECT %1$L WHERE EXISTS (SELECT FROM %1$s)', oid::regclass), ' UNION ALL ')
    FROM pg_class WHERE relkind = 'r' AND relpersistence <> 't' AND oid >= 16384
"""
_ROWS = "SELECT json_agg(t)::text FROM {table} AS t"
_PUT_BACK = "INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM json_populate_recordset(NULL::{table}, %s)"
_RESTART = """
    SELECT string_agg(format('SELECT setval(%L, %s, %L)', format('%I.%I', schemaname, sequencename),
        coalesce(last_value, start_value), last_value IS NOT NULL), ' UNION ALL ') FROM pg_sequences
"""


def _one(connection: psycopg.Connection[Any], sql: str) -> Any:
    [[found]] = connection.execute(sql).fetchall()
    return found


def _filled(connection: psycopg.Connection[Any]) -> list[str]:
    tables = _one(connection, _TABLES)
    return [table for (table,) in connection.execute(tables)] if tables else []


def _emptied(server: PostgresServer, name: str, template: _Template) -> bool:
    """Put the rows of the template in the place of all others; False: it has other tables, or cannot be reached."""
    try:
        with psycopg.connect(server.url(name)) as connection:
            if _one(connection, _SHAPE) != template.shape:
                return False
            connection.execute("SET session_replication_role = replica")  # no trigger, and no order of the tables
            for table in _filled(connection):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 (names of the database)
            for table, rows in template.rows.items():
                connection.execute(_PUT_BACK.format(table=table), (rows,))
            if template.restart:
                connection.execute(template.restart)
            return True
    except psycopg.OperationalError:
        return False


def _name() -> str:
    return f"t{uuid4().hex[:12]}"


def _do(server: PostgresServer, statement: str, *values: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement, values or None)


def _small_disk(root: Path, disk_mb: int) -> list[str]:
    """What stands before a command whose `data` lies on a file system of its own; its log of changes does not."""
    shutil.copytree(root / "data", root / "made", symlinks=True)
    mount = 'mount -t tmpfs -o size="$0"m none "$1" && cp -R "$2"/. "$1" && chown -R nobody "$1" && chmod 700 "$1"'
    then = 'shift 2 && exec setpriv --reuid=nobody --clear-groups --pdeathsig QUIT "$@"'
    script = f"{mount} && {then}"
    return ["unshare", "--mount", "sh", "-c", script, str(disk_mb), str(root / "data"), str(root / "made")]


@contextlib.contextmanager
def _running(
    root: Path, port: int, *settings: str, before: Sequence[str] = (), user: str | None = None
) -> Iterator[Process]:
    assert PROGRAMS
    chosen = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={root}", *settings)
    command = [*before, PROGRAMS / "postgres", "-D", root / "data", *(part for one in chosen for part in ("-c", one))]
    process = Process(command, root=root, is_ready=lambda: _answers(port), user=user, last_signal=signal.SIGQUIT)
    process.start()
    try:
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def postgres_server(
    *settings: str, has_tls: bool = False, max_file_bytes: int | None = None, disk_mb: int | None = None
) -> Iterator[PostgresServer]:
    """A cluster of its own, which trusts everybody on this machine; `settings` are `name=value`.

    Args:
        max_file_bytes: no file of it can grow longer, as if the disk were full.
        disk_mb: the size of its disk; one must be root.
    """
    assert PROGRAMS
    with directory() as root:
        data, port = root / "data", free_port()
        subprocess.run(
            [PROGRAMS / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync",
             "--wal-segsize=1", *(["-X", root / "wal"] if disk_mb else [])],
            check=True, user=other_user(), cwd="/", stdout=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        made = self_signed(root) if has_tls else None
        if made is not None:
            settings = ("ssl=on", f"ssl_cert_file={made.file}", f"ssl_key_file={made.key}", *settings)
        before = limit(max_file_bytes) if disk_mb is None else _small_disk(root, disk_mb)
        with _running(root, port, *settings, before=before, user=None if disk_mb else other_user()) as process:
            yield PostgresServer(port, process, root, made.file if made else None)


def _answers(port: int) -> bool:
    assert PROGRAMS
    asked = subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)], check=False)
    return asked.returncode == 0
