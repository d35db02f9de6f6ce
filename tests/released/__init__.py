"""Data directories as released programs left them: `<schema version>/ethos.sql` and `<schema version>/home/`.

They are never changed once they are there. None is there before the first release: until then a schema may change.
`python -m tests.released` makes the one of the newest schema; run it in the release that brings it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import gateway
from gateway.store.sqlite.search import register_functions

HERE = Path(__file__).parent
VERSIONS = sorted(int(path.name) for path in HERE.iterdir() if path.name.isdigit())


def lay_out(release: Path, home: Path) -> Path:
    """Make the data directory of a release, as `HERE / "0001"`; returns its database."""
    shutil.copytree(release / "home", home)
    for path in [home, *home.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    database = home / "ethos.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        register_functions(connection)
        connection.executescript((release / "ethos.sql").read_text(encoding="utf-8"))
    return database


def next_program(directory: Path, step: str) -> Mapping[str, str]:
    """A copy of this program with one more step of the schema; the environment in which Python runs it."""
    source = Path(gateway.__file__).parent
    shutil.copytree(source, directory / "gateway")
    steps = directory / "gateway" / "store" / "sqlite" / "migrations"
    (steps / f"{len(list(steps.glob('*.sql'))) + 1:04}.sql").write_text(step, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), str(source.parent)])}
