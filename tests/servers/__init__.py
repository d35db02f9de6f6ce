"""Real servers on 127.0.0.1, from Debian's packages, in directories of their own; ended by pid."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

INSTALL = "as root, deploy/install-test-packages"
_PORTS = itertools.cycle(random.SystemRandom().sample(range(16_384, 32_768), 16_384))
_READY_S = 60.0
_SETPRIV = shutil.which("setpriv")


def free_port() -> int:
    """A port that nobody listens on, below those that Linux gives out (ip(7), `ip_local_port_range`).

    One of those may go to another test that asks for any port, before the server that it is meant for has it: then the
    other's server answers in its place, and ours finds its port taken.
    """
    while True:
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port := next(_PORTS)))
            return port


def other_user() -> str | None:
    """Whom a server that refuses root runs as; None where we are nobody special ourselves."""
    return "nobody" if os.geteuid() == 0 else None


def give(path: Path) -> None:
    """Make it the server's, which may run as another user than we do."""
    user = other_user()
    if user is not None:
        account = pwd.getpwnam(user)
        os.chown(path, account.pw_uid, account.pw_gid)


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A directory of the server's own, which its user may use."""
    root = Path(tempfile.mkdtemp(prefix="ethos-server-"))
    try:
        give(root)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Process:
    """A server's process, which can be killed and started again.

    It ends with the thread that started it, so a test run that is killed leaves no server: it gets `last_signal` then
    (prctl(2), PR_SET_PDEATHSIG).
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        root: Path,
        is_ready: Callable[[], bool],
        user: str | None = None,
        last_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._user = user
        self._before = [_SETPRIV, "--pdeathsig", last_signal.name.removeprefix("SIG")] if _SETPRIV else []
        self._command = [*command]
        self._log = root / "log"
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, without: Sequence[str] = ()) -> None:
        """Start it, and wait until it answers; `without` words that stand before the command."""
        if without:
            assert self._command[: len(without)] == [*without]
            del self._command[: len(without)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._before, *self._command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                user=self._user,
                cwd="/",
                start_new_session=True,
            )
        deadline = time.monotonic() + _READY_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self._command[0]} did not start:\n{self._log.read_text(errors='replace')}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """Of the first process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal: `SIGSTOP` makes a server that hangs."""
        os.killpg(self.pid, number)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)  # Apache's workers live on without the first of them
            self._process.wait()
            self._process = None


def accepts(port: int) -> bool:
    """Whether somebody listens."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
