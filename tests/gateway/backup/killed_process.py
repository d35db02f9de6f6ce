"""The `ethos` command, which kills itself with SIGKILL at the Nth thing that it does to the disk.

Python's audit events are the steps: a file is opened, renamed, linked or removed, a directory made, a database opened.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.cli import main

STEPS = {
    "open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.utime", "os.symlink", "os.truncate",
    "shutil.rmtree", "shutil.copytree", "shutil.copyfile", "sqlite3.connect", "fcntl.flock",
}  # fmt: skip


def run(number: int, home: Path, words: Sequence[str], output: Path) -> None:
    """Run the command in this process, which is one of its own; with 0 the output ends with how many steps it took."""
    os.environ["ETHOS_HOME"] = str(home)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream.fileno())
    sys.argv = ["ethos", *words]
    seen: list[str] = []
    is_counting = True

    def hook(event: str, _arguments: tuple[object, ...]) -> None:
        if is_counting and event in STEPS:
            seen.append(event)
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    try:
        main()
    except SystemExit:
        is_counting = False
        sys.stdout.write(f"{len(seen)}\n")
        raise
