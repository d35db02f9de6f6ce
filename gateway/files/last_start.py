"""Which program used the data directory last, and what its configuration knew: for the check before an upgrade."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.files.atomic import write_atomically

LAST_START_NAME = "run/last-start.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStart:
    """A gateway that served from the data directory, and whose program may have been replaced since.

    Attributes:
        defaults: of each key of its configuration, as JSON has it; `gateway.config.defaults` says how keys are named.
    """

    at: datetime
    version: str
    defaults: Mapping[str, Any]


def note_start(home: Path, version: str, defaults: Mapping[str, Any]) -> None:
    """Leave word that this version serves from the data directory.

    Raises:
        FileError: the word cannot be written.
    """
    word = {"at": datetime.now(UTC).isoformat(), "version": version, "defaults": defaults}
    write_atomically(home / LAST_START_NAME, json.dumps(word).encode())


def last_start(home: Path) -> LastStart | None:
    """The newest of which there is word; None where there is nothing legible."""
    try:
        word = json.loads((home / LAST_START_NAME).read_bytes())
        at = datetime.fromisoformat(word["at"])
        is_whole = at.tzinfo is not None and isinstance(word["defaults"], dict)
        return LastStart(at=at, version=str(word["version"]), defaults=word["defaults"]) if is_whole else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
