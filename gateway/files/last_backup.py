"""When the data directory was last saved, and to where: written by the backup, read by `ethos doctor`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gateway.files.atomic import make_private_directory, write_atomically

LAST_BACKUP_NAME = "run/last-backup.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBackup:
    """A copy that was made, and whole."""

    at: datetime
    file: str


def note_backup(home: Path, file: Path) -> None:
    """Leave word that `file` is a good copy of the data directory as it is now.

    Raises:
        FileError: the word cannot be written; the copy is none the worse.
    """
    path = home / LAST_BACKUP_NAME
    make_private_directory(path.parent)
    word = {"at": datetime.now(UTC).isoformat(), "file": str(file.absolute())}
    write_atomically(path, json.dumps(word).encode())


def last_backup(home: Path) -> LastBackup | None:
    """The newest of which there is word; None where there is nothing legible."""
    try:
        word = json.loads((home / LAST_BACKUP_NAME).read_bytes())
        at = datetime.fromisoformat(word["at"])
        return LastBackup(at=at, file=str(word["file"])) if at.tzinfo is not None else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
