"""Debian's Redis."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers import INSTALL, Process, directory, free_port, other_user
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
        process = Process(command, root=root, is_ready=lambda: _answers(port, has_tls=has_tls), user=other_user())
        process.start()
        try:
            scheme = "rediss" if made else "redis"
            yield RedisServer(f"{scheme}://127.0.0.1:{port}/0", process, root, made.file if made else None)
        finally:
            process.stop()


def _answers(port: int, *, has_tls: bool) -> bool:
    """Whether it serves: it listens before it reads its file, and what a test puts there by then it would read."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as open_:
        client = open_.enter_context(socket.create_connection(("127.0.0.1", port), timeout=1))
        if has_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # a certificate of our own
            client = open_.enter_context(context.wrap_socket(client))
        client.sendall(b"PING\r\n")
        return client.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    return False
