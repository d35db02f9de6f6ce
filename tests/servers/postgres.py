"""Debian's PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers import INSTALL, Process, directory, free_port, other_user

_FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
PROGRAMS = _FOUND[-1].parent if _FOUND else None
MISSING = None if PROGRAMS else f"PostgreSQL is missing: {INSTALL}"
USER = "ethos"


@dataclass(frozen=True)
class PostgresServer:
    """One that runs."""

    port: int
    process: Process

    def url(self, database: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def postgres_server(*settings: str) -> Iterator[PostgresServer]:
    """A cluster of its own, which trusts everybody on this machine; `settings` are `name=value`."""
    assert PROGRAMS
    with directory() as root:
        data, port = root / "data", free_port()
        subprocess.run(
            [PROGRAMS / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True, user=other_user(), cwd="/", stdout=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        chosen = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={root}", *settings)
        command = [PROGRAMS / "postgres", "-D", data, *(part for one in chosen for part in ("-c", one))]
        process = Process(command, root=root, is_ready=lambda: _answers(port), user=other_user())
        process.start()
        try:
            yield PostgresServer(port, process)
        finally:
            process.stop()


def _answers(port: int) -> bool:
    assert PROGRAMS
    asked = subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)], check=False)
    return asked.returncode == 0
