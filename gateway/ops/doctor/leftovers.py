"""Checks of what was left behind: files of writes that were broken off, and secrets that nothing names."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.config.file import CONFIG_NAME
from gateway.config.secrets import secret_files
from gateway.domain.codes import PEPPER_NAME
from gateway.errors import FileError
from gateway.files.atomic import sync_directory
from gateway.files.positions.yaml import read_marked_yaml
from gateway.mcp.tokens import KEY_NAME
from gateway.ops.doctor.finding import Finding, Ground, Repair, named

OLD = timedelta(hours=1)
"""A file of a write that is older has no writer any more."""
_BELOW = ("users", "personalities", "channels", "run", "secrets")
# As `files/atomic.py` and `config/editing.py` name them.
_DRAFT = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_OWN = (PEPPER_NAME, KEY_NAME)
_LISTED = 5


def leftovers(ground: Ground) -> Iterator[Finding]:
    """Drafts of files whose writer was killed; the file itself is whole, before or after the write."""
    drafts = _drafts(ground.home)
    if drafts:
        yield Finding(
            "drafts",
            "note",
            f"{_counted(drafts, 'file')} of writes that were broken off: {_named(drafts, ground.home)}.",
            repair=_removing(
                lambda: _drafts(ground.home),
                f"Deletes {_counted(drafts, 'draft')}; the files that they were drafts of stay as they are.",
            ),
        )


def secrets(ground: Ground) -> Iterator[Finding]:
    """Files of secrets that the configuration names no more, as after a channel was taken out."""
    if ground.config is None:
        return
    for path in _orphans(ground.home):
        shown = path.relative_to(ground.home)
        yield Finding(
            named("secret", str(shown)),
            "note",
            f"{shown} holds a secret that {CONFIG_NAME} does not name. Where nothing else needs it, delete it, and end "
            "that key where it was made.",
            repair=_removing(
                lambda path=path: [one for one in _orphans(ground.home) if one == path],  # type: ignore[misc]
                f"Deletes {shown}. No backup without `--with-secrets` has it.",
                asks=True,
            ),
        )


def _drafts(home: Path) -> Sequence[Path]:
    places = [home, *(Path(place) for name in _BELOW for place, _, _ in os.walk(home / name))]
    before = (datetime.now(UTC) - OLD).timestamp()
    return [
        Path(entry.path)
        for place in places
        if os.access(place, os.R_OK | os.X_OK)
        for entry in os.scandir(place)
        if _DRAFT.fullmatch(entry.name) and _is_old_file(entry, before)
    ]


def _is_old_file(entry: os.DirEntry[str], before: float) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # its writer has ended just now
        return False
    return stat.S_ISREG(status.st_mode) and status.st_mtime < before


def _orphans(home: Path) -> Sequence[Path]:
    directory = home / "secrets"
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.X_OK):
        return []
    try:
        document = read_marked_yaml(home / CONFIG_NAME, CONFIG_NAME)
    except FileNotFoundError:
        values = {}
    else:
        if not document.is_readable:
            return []
        values = document.values
    used = {home / name for name in _OWN} | {Path(os.path.normpath(path)) for path in secret_files(values, home)}
    there = [path for path in sorted(directory.iterdir()) if path.is_file() and not path.is_symlink()]
    return [path for path in there if path not in used and not path.name.startswith(".")]


def _removing(paths: Callable[[], Sequence[Path]], does: str, *, asks: bool = False) -> Repair:
    def remove() -> str:
        removed = paths()
        for path in removed:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise FileError(f"{path} could not be deleted: {error.strerror}") from error
        for directory in {path.parent for path in removed}:
            sync_directory(directory)
        return f"Deleted {_counted(removed, 'file')}."

    async def run() -> str:
        return await asyncio.to_thread(remove)

    return Repair(label="Delete" if asks else "Clean up", does=does, run=run, asks=asks)


def _named(paths: Sequence[Path], home: Path) -> str:
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return ", ".join(str(path.relative_to(home)) for path in paths[:_LISTED]) + more


def _counted(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
