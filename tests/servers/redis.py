"""Debian's Redis."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from tests.servers import INSTALL, Process, accepts, directory, free_port, other_user

PROGRAM = shutil.which("redis-server")
MISSING = None if PROGRAM else f"redis-server is missing: {INSTALL}"


@dataclass(frozen=True)
class RedisServer:
    """One that runs."""

    url: str
    process: Process


@contextlib.contextmanager
def redis_server(*settings: str) -> Iterator[RedisServer]:
    """A server of its own: every change goes to its log at once, and it never evicts; `settings` say otherwise."""
    assert PROGRAM
    with directory() as root:
        port = free_port()
        command = [
            *(PROGRAM, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(root)),
            *("--appendonly", "yes", "--appendfsync", "always", "--save", "", *settings),
        ]
        process = Process(command, root=root, is_ready=lambda: accepts(port), user=other_user())
        process.start()
        try:
            yield RedisServer(f"redis://127.0.0.1:{port}/0", process)
        finally:
            process.stop()
