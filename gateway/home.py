"""The data directory: what lies where in it, and that it is its owner's alone."""

from __future__ import annotations

from pathlib import Path

from gateway.files import make_private_directory
from gateway.locks import refuse_network_file_system

LOCK_NAME = ".gateway.lock"
DATABASE_NAME = "ethos.sqlite"
RUNNING_NAME = "run/gateway.json"
TOKEN_NAME = "web-token"  # noqa: S105 (a file's name)
LOG_NAME = "gateway.log"


def prepare_home(home: Path) -> None:
    """Make the data directory, for its owner only.

    Raises:
        UnsafePath: it lies on a file system that cannot lock.
        OSError: it cannot be made.
    """
    for directory in (home, home / "users", home / "personalities", home / "run", home / "channels"):
        make_private_directory(directory)
    refuse_network_file_system(home)
