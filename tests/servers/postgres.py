"""Debian's PostgreSQL."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg

from tests.servers import INSTALL, Process, directory, free_port, other_user
from tests.servers.certificates import self_signed


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
        with _running(root, port) as process:
            yield PostgresServer(port, process, root)


@contextlib.contextmanager
def fresh_database(server: PostgresServer, prepare: Callable[[str], None]) -> Iterator[str]:
    """The URL of a database with a schema and without a row, for one test file; dropped afterwards.

    Args:
        prepare: makes the schema in the database with this URL, and closes its connections. It runs once per server,
            so it is a function that has a name; each database is a copy of what it made.
    """
    name = _name()
    # Copying the template's files takes a sixth of the time that the default takes, which logs each page of it.
    _do(server, f"CREATE DATABASE {name} TEMPLATE {_template(server, prepare)} STRATEGY FILE_COPY")
    try:
        yield server.url(name)
    finally:
        _do(server, f"DROP DATABASE {name} WITH (FORCE)")


@functools.cache
def _template(server: PostgresServer, prepare: Callable[[str], None]) -> str:
    name = _name()
    _do(server, f"CREATE DATABASE {name}")
    prepare(server.url(name))
    return name


def _name() -> str:
    return f"t{uuid4().hex[:12]}"


def _do(server: PostgresServer, statement: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement)


@contextlib.contextmanager
def _running(root: Path, port: int, *settings: str, before: Sequence[str] = ()) -> Iterator[Process]:
    assert PROGRAMS
    chosen = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={root}", *settings)
    command = [*before, PROGRAMS / "postgres", "-D", root / "data", *(part for one in chosen for part in ("-c", one))]
    process = Process(
        command, root=root, is_ready=lambda: _answers(port), user=other_user(), last_signal=signal.SIGQUIT
    )
    process.start()
    try:
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def postgres_server(
    *settings: str, has_tls: bool = False, max_file_bytes: int | None = None
) -> Iterator[PostgresServer]:
    """A cluster of its own, which trusts everybody on this machine; `settings` are `name=value`.

    Args:
        max_file_bytes: no file of it can grow longer, as if the disk were full.
    """
    assert PROGRAMS
    with directory() as root:
        data, port = root / "data", free_port()
        subprocess.run(
            [PROGRAMS / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync",
             "--wal-segsize=1"],
            check=True, user=other_user(), cwd="/", stdout=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        made = self_signed(root) if has_tls else None
        if made is not None:
            settings = ("ssl=on", f"ssl_cert_file={made.file}", f"ssl_key_file={made.key}", *settings)
        with _running(root, port, *settings, before=limit(max_file_bytes)) as process:
            yield PostgresServer(port, process, root, made.file if made else None)


def _answers(port: int) -> bool:
    assert PROGRAMS
    asked = subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)], check=False)
    return asked.returncode == 0
