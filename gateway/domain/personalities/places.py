"""Where people's own personalities are: their files override the built-in ones of the package, file by file."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gateway.errors import FileError
from gateway.files.atomic import (
    Signature,
    check_id,
    inside,
    make_private_directory,
    read_settled,
    sign,
    sync_directory,
    write_atomically,
)
from gateway.files.locks import FileLock

SOUL_NAME = "SOUL.md"
SETTINGS_NAME = "personality.yaml"
HEARTBEAT_NAME = "HEARTBEAT.md"
PARTS = (SOUL_NAME, SETTINGS_NAME)
"""What makes a personality; the third file says what it looks at by itself."""
NAMES = (*PARTS, HEARTBEAT_NAME)
PREVIOUS_NAME = ".previous"
LOCK_NAME = ".edit.lock"
LOCK_TIMEOUT_S = 10.0
_UNREADABLE = Signature(-1, -1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFiles:
    """The files of one personality, by name, without those that it does not have.

    Attributes:
        previous: those from before the last change; None where nothing is known of before.
    """

    files: Mapping[str, bytes]
    previous: Mapping[str, bytes] | None


Change = Callable[[OwnFiles], Mapping[str, bytes]]
"""What the files shall be; raises where they shall stay as they are. It may be asked more than once."""


class PersonalityPlace(Protocol):
    """Reads at once, what it has; `refresh` brings that up to date where it is a copy.

    The methods take checked ids, and raise `FileError` where a file cannot be read or written now, `refresh` and
    `change` also `StoreUnavailable`.
    """

    def names(self) -> Sequence[str]:
        """Whatever may be a personality, sorted; also what is no id."""

    def stamp(self, personality_id: str) -> Hashable | None:
        """Another one after each change of its files; None where it has none."""

    def read(self, personality_id: str, name: str) -> bytes | None:
        """One file; None where there is none. May block."""

    def previous(self, personality_id: str) -> Mapping[str, bytes] | None:
        """See `OwnFiles`. May block."""

    async def refresh(self) -> None:
        """See what others have changed."""

    async def change(self, personality_id: str, change: Change) -> None:
        """Put files in place, and keep what was there; nothing else changes them meanwhile."""


def own_files(place: PersonalityPlace, personality_id: str) -> OwnFiles:
    """What a place has of a personality."""
    found = {name: place.read(personality_id, name) for name in NAMES}
    return OwnFiles(
        files={name: data for name, data in found.items() if data is not None}, previous=place.previous(personality_id)
    )


class PersonalityDirectory:
    """The place on one machine: a directory each under `personalities/` in the data directory."""

    def __init__(self, root: Path) -> None:
        """`root` is the data directory."""
        self._root = root
        self._directory = root / "personalities"

    def names(self) -> Sequence[str]:
        """See `PersonalityPlace.names`."""
        try:
            return sorted(path.name for path in self._directory.iterdir() if not path.name.startswith("."))
        except OSError:  # not there yet, or not readable: the built-in ones are left
            return ()

    def stamp(self, personality_id: str) -> Hashable | None:
        """See `PersonalityPlace.stamp`."""
        directory = f"{self._directory}/{personality_id}"
        try:
            stamp = sign(f"{directory}/{SOUL_NAME}"), sign(f"{directory}/{SETTINGS_NAME}")
        except NotADirectoryError:
            return None
        except OSError:  # no right to look: reading will say so
            return _UNREADABLE
        return None if stamp == (None, None) else stamp

    def read(self, personality_id: str, name: str) -> bytes | None:
        """See `PersonalityPlace.read`."""
        return _read(inside(self._root, "personalities", personality_id, name))

    def previous(self, personality_id: str) -> Mapping[str, bytes] | None:
        """See `PersonalityPlace.previous`."""
        directory = inside(self._root, "personalities", personality_id) / PREVIOUS_NAME
        if not directory.is_dir():
            return None
        found = {name: _read(directory / name) for name in NAMES}
        return {name: data for name, data in found.items() if data is not None}

    async def refresh(self) -> None:
        """Nothing: each look is at the files."""

    async def change(self, personality_id: str, change: Change) -> None:
        """See `PersonalityPlace.change`."""
        directory = inside(self._root, "personalities", check_id("personality", personality_id))

        def put() -> None:
            own = own_files(self, personality_id)
            _put(directory, own.files, change(own))

        try:
            await asyncio.to_thread(make_private_directory, directory)
            async with FileLock(directory / LOCK_NAME, LOCK_TIMEOUT_S):
                await asyncio.to_thread(put)
        except OSError as error:
            raise FileError(f"{directory} could not be written: {error.strerror}") from error


def _put(directory: Path, before: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> None:
    """Keep what is there, then put these in place; what is not among them goes."""
    previous = directory / PREVIOUS_NAME
    if previous.exists():
        shutil.rmtree(previous)
    make_private_directory(previous)
    for name, data in before.items():
        write_atomically(previous / name, data)
    for name in NAMES:
        if name in wanted:
            write_atomically(directory / name, wanted[name])
        else:
            (directory / name).unlink(missing_ok=True)
    sync_directory(directory)


def _read(path: Path) -> bytes | None:
    found = read_settled(path)
    return None if found is None else found.data
