"""Debian's Redis."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers import INSTALL, Process, accepts, directory, free_port, other_user
from tests.servers.certificates import self_signed

PROGRAM = shutil.which("redis-server")
MISSING = None if PROGRAM else f"redis-server is missing: {INSTALL}"


@dataclass(frozen=True)
class RedisServer:
    """One that runs."""

    url: str
    process: Process
    root: Path
    ca_file: Path | None = None


@contextlib.contextmanager
def redis_server(*settings: str, has_tls: bool = False) -> Iterator[RedisServer]:
    """A server of its own: every change goes to its log at once, and it never evicts; `settings` say otherwise."""
    assert PROGRAM
    with directory() as root:
        port = free_port()
        made = self_signed(root) if has_tls else None
        ports = ["--port", str(port)]
        if made is not None:
            ports = ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no"]
            ports += ["--tls-cert-file", str(made.file), "--tls-key-file", str(made.key)]
        command = [
            *(PROGRAM, *ports, "--bind", "127.0.0.1", "--dir", str(root)),
            *("--appendonly", "yes", "--appendfsync", "always", "--save", "", *settings),
        ]
        process = Process(command, root=root, is_ready=lambda: accepts(port), user=other_user())
        process.start()
        try:
            scheme = "rediss" if made else "redis"
            yield RedisServer(f"{scheme}://127.0.0.1:{port}/0", process, root, made.file if made else None)
        finally:
            process.stop()
