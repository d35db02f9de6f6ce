"""Debian's pgbouncer, in front of a PostgreSQL.

Debian 12 has 1.18. In transaction mode it knows nothing of prepared statements: one that a client names is prepared in
the connection to the server that it has just then. The next transaction may get another one, where the name is unknown
(SQLSTATE 26000), or taken by another client (42P05). From 1.21 on it follows names of the protocol, not of SQL, while
`max_prepared_statements` is above 0; from 1.24 on it is by default (https://www.pgbouncer.org/changelog.html).
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.servers import INSTALL, Process, accepts, directory, free_port, other_user
from tests.servers.postgres import USER, PostgresServer

PROGRAM = Path("/usr/sbin/pgbouncer")
MISSING = None if PROGRAM.exists() else f"pgbouncer is missing: {INSTALL}"
FOLLOWS_STATEMENTS = (1, 21)

_CONF = """
[databases]
* = host=127.0.0.1 port={behind}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {root}/users
admin_users = {user}
pool_mode = {pool_mode}
default_pool_size = {pool_size}
{settings}
"""


@dataclass(frozen=True)
class Pooler:
    """One that runs."""

    port: int
    process: Process

    def url(self, database: str = "postgres") -> str:
        """The address of a database behind it; `pgbouncer` is its own console."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"


def version() -> tuple[int, int]:
    """Major and minor number of the one that is installed."""
    told = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", told)
    assert found, told
    return int(found[1]), int(found[2])


@contextlib.contextmanager
def pgbouncer(
    server: PostgresServer,
    *settings: str,
    pool_mode: Literal["session", "transaction", "statement"] = "transaction",
    pool_size: int = 20,
    max_prepared_statements: int | None = None,
) -> Iterator[Pooler]:
    """A pooler that trusts everybody on this machine; `settings` are `name=value`.

    Args:
        pool_size: how many connections to the server it makes for each database.
        max_prepared_statements: how many it follows for each of them, None for its default.

    Raises:
        ValueError: this version cannot follow prepared statements.
    """
    if max_prepared_statements is not None:
        if version() < FOLLOWS_STATEMENTS:
            raise ValueError("this pgbouncer has no max_prepared_statements, which came with 1.21: leave it out")
        settings = (*settings, f"max_prepared_statements={max_prepared_statements}")
    with directory() as root:
        port = free_port()
        (root / "users").write_text(f'"{USER}" ""\n')
        conf = root / "pgbouncer.ini"
        conf.write_text(
            _CONF.format(
                behind=server.port, port=port, root=root, user=USER, pool_mode=pool_mode, pool_size=pool_size,
                settings="\n".join(settings),
            )
        )  # fmt: skip
        process = Process([PROGRAM, conf], root=root, is_ready=lambda: accepts(port), user=other_user())
        process.start()
        try:
            yield Pooler(port, process)
        finally:
            process.stop()
