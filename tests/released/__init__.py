"""Data directories as released programs left them: `<schema version>/ethos.sql` and `<schema version>/home/`.

They are never changed once they are there. `python -m tests.released` makes the one that a new schema lacks.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.store.search_index import register_functions

HERE = Path(__file__).parent
VERSIONS = sorted(int(path.name) for path in HERE.iterdir() if path.name.isdigit())


def lay_out(version: int, home: Path) -> Path:
    """Make the data directory of that version; returns its database."""
    shutil.copytree(HERE / f"{version:04}" / "home", home)
    for path in [home, *home.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    database = home / "ethos.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        register_functions(connection)
        connection.executescript((HERE / f"{version:04}" / "ethos.sql").read_text(encoding="utf-8"))
    return database
