"""The standard streams, which may be closed when the command starts (`ethos status >&-`)."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Put `/dev/null` where a standard stream is closed.

    Else the next file to be opened gets the stream's number, and what is meant for the screen is written into it: the
    database, perhaps.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (as long as we run)
