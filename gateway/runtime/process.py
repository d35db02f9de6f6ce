"""This process begins again in place: the same program, arguments, terminal and process id, with all of it read anew.

A service manager, a container and a terminal see one process that goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn


class Restart:
    """Whether the process is to begin again once it has ended what runs.

    Attributes:
        is_wanted: it was asked for.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._stop: Callable[[], None] | None = None

    def offer(self, stop: Callable[[], None]) -> None:
        """Say that the process can begin again; `stop` has it end what runs."""
        self._stop = stop

    def request(self) -> bool:
        """Have it end what runs and begin again; False where it cannot."""
        if self._stop is None:
            return False
        self.is_wanted = True
        self._stop()
        return True


def begin_again() -> NoReturn:
    """Replace this process by a new one of the same program; nothing that is open is inherited."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 (what this process was started with)
