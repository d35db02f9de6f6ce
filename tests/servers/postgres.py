"""Debian's PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class PostgresServer:
    """One that runs."""

    port: int
    process: Process
    root: Path
    ca_file: Path | None = None

    def url(self, database: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"


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
def _running(root: Path, port: int, *settings: str, before: Sequence[str] = ()) -> Iterator[Process]:
    assert PROGRAMS
    chosen = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={root}", *settings)
    command = [*before, PROGRAMS / "postgres", "-D", root / "data", *(part for one in chosen for part in ("-c", one))]
    process = Process(command, root=root, is_ready=lambda: _answers(port), user=other_user())
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
