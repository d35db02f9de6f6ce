"""Processes that a test may kill, forked from one that has loaded what they run; so each is there at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess

PATIENCE_S = 300.0

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        "__main__",
        "tests.gateway.backup.killed_process",
        "tests.gateway.memory.traces.approving_process",
        "tests.gateway.memory.traces.ingest_process",
        "tests.gateway.memory.writer_process",
        "tests.gateway.privacy.erase_and_die",
        "tests.gateway.testing.dying_process",
    ]
)


def start(target: Callable[..., object], *arguments: object) -> ForkServerProcess:
    """Run it in a process of its own; `target` stands at the top of a module, and the arguments can be pickled."""
    process = _forks.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def ended(process: ForkServerProcess) -> int:
    """Wait for its end; minus the signal where it was killed, as `subprocess` has it."""
    process.join(PATIENCE_S)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise TimeoutError(f"the process {process.pid} goes on")
    return code
