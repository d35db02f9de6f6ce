"""Starts real gateways quickly: a process that has everything imported forks one whenever it is asked.

What runs in the fork is `ethos serve --no-chat`, from its entry point on, in a process of its own with its own data
directory. Only the interpreter's start and the imports, 0.7 s of each start, are paid once for all.

    {"number": 1, "home": "…", "log": "…", "failpoint": "kill outbox.claimed 2", "environment": {…}}
    → {"number": 1, "pid": 4711}, and once it has ended {"pid": 4711, "status": -9}
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import random
import selectors
import signal
import sys
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
# All that `serve` loads by and by, so that no fork does it again.
_PARTS = (
    "gateway.app.gateway",
    "gateway.cli",
    "gateway.cli.errors",
    "gateway.cli.running",
    "gateway.runtime.logs",
    "gateway.web.server",
    "uvicorn.lifespan.off",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "tests.faults.wire",
)


def run_gateway(asked: dict[str, Any]) -> NoReturn:
    """Be `ethos serve`, and never come back."""
    from gateway.runtime import failpoints

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing outlives the driver
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(old, new)
    signal.signal(signal.SIGUSR1, show_tasks)
    faulthandler.register(signal.SIGUSR1, file=2, chain=True)
    os.environ.update(asked.get("environment", {}), ETHOS_HOME=asked["home"])
    code = 1
    try:
        random.seed()
        failpoints.arm(asked.get("failpoint", ""))
        for name in asked.get("prepare", ()):
            module, _, function = name.partition(":")
            getattr(importlib.import_module(module), function)(os.environ)
        sys.argv = ["ethos", "serve", "--no-chat"]
        from gateway.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 (the traceback belongs into the gateway's own log)
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def show_tasks(*_: object) -> None:
    """What each task of the gateway waits for, into its log: the driver asks when answers are missing."""
    for task in asyncio.all_tasks():
        task.print_stack(limit=3, file=sys.stderr)


def say(**frame: Any) -> None:
    os.write(1, json.dumps(frame).encode() + b"\n")


def reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        say(pid=pid, status=os.waitstatus_to_exitcode(status))


def main(parts: list[str]) -> None:
    for part in (*_PARTS, *parts):
        importlib.import_module(part)
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends it
    signal.set_wakeup_fd(wake)
    watch = selectors.DefaultSelector()
    watch.register(0, selectors.EVENT_READ)
    watch.register(woken, selectors.EVENT_READ)
    say(ready=True)
    rest = b""
    while True:
        for key, _ in watch.select():
            if key.fd == woken:
                os.read(woken, 4096)
                reap()
                continue
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    run_gateway(asked)
                say(number=asked["number"], pid=pid)


if __name__ == "__main__":
    main(sys.argv[1:])
