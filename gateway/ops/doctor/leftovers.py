"""Checks of what was left behind: files of writes that were broken off."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from gateway.errors import FileError
from gateway.ops.doctor.finding import Finding, Ground, Repair

OLD = timedelta(hours=1)
"""A file of a write that is older has no writer any more."""
_BELOW = ("users", "personalities", "channels", "run", "secrets")
# As `files/atomic.py` and `config/editing.py` name them.
_DRAFT = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_LISTED = 5


def leftovers(ground: Ground) -> Iterator[Finding]:
    """Drafts of files whose writer was killed; the file itself is whole, before or after the write."""
    drafts = _drafts(ground.home)
    if drafts:
        does = f"Deletes {_counted(drafts, 'draft')}; the files that they were drafts of stay as they are."
        yield Finding(
            "drafts",
            "note",
            f"{_counted(drafts, 'file')} of writes that were broken off: {_named(drafts, ground.home)}.",
            repair=Repair(label="Clean up", does=does, run=partial(asyncio.to_thread, _removed, ground.home)),
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


def _removed(home: Path) -> str:
    removed = _drafts(home)
    for path in removed:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"{path} could not be deleted: {error.strerror}") from error
    return f"Deleted {_counted(removed, 'draft')}."


def _named(paths: Sequence[Path], home: Path) -> str:
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return ", ".join(str(path.relative_to(home)) for path in paths[:_LISTED]) + more


def _counted(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
