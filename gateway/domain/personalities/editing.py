"""The two files of a personality, edited by hand: checked before they count, and with a way back.

What stood there before the last change is kept next to it, in `.previous`; a built-in personality has no file there.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.domain.personalities.files import SETTINGS_NAME, SOUL_NAME, bytes_of, check_texts
from gateway.errors import FileError, PersonalityError
from gateway.files.atomic import (
    check_id,
    inside,
    make_private_directory,
    read_settled,
    sync_directory,
    write_atomically,
)
from gateway.files.locks import FileLock

PREVIOUS_NAME = ".previous"
LOCK_NAME = ".edit.lock"
LOCK_TIMEOUT_S = 10.0
_NAMES = (SOUL_NAME, SETTINGS_NAME)
_Result = TypeVar("_Result")


class PersonalityChanged(PersonalityError):
    """The files have changed since they were read.

    Attributes:
        current: as they are now.
    """

    def __init__(self, current: PersonalityTexts) -> None:
        super().__init__("the files of this personality have changed since they were read; look at them again")
        self.current = current


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalityTexts:
    """Both files, as they count.

    Attributes:
        settings: `personality.yaml`; empty where there is none.
        prompt: `SOUL.md`.
        version: SHA-256 of both and of where they are, in hex.
        is_own: at least one of them is in the data directory.
        can_undo: it is known what stood there before.
    """

    settings: str
    prompt: str
    version: str
    is_own: bool
    can_undo: bool


def read_texts(root: Path, personality_id: str) -> PersonalityTexts:
    """Both files. Bytes that are no text are shown as such, and are not kept by an edit.

    Raises:
        InvalidId: it is none.
        PersonalityError: there is no such personality.
        FileError: a file cannot be read.
    """
    check_id("personality", personality_id)
    found = {name: bytes_of(root, personality_id, name) for name in _NAMES}
    own = _own(root, personality_id)
    if not any(found.values()) and not any(own.values()):
        raise PersonalityError(f"there is no personality {personality_id}")
    digest = hashlib.sha256()
    for name in _NAMES:
        for data in (own[name], found[name]):
            digest.update(b"-" if data is None else hashlib.sha256(data).digest())
    return PersonalityTexts(
        settings=_shown(found[SETTINGS_NAME]),
        prompt=_shown(found[SOUL_NAME]),
        version=digest.hexdigest(),
        is_own=any(data is not None for data in own.values()),
        can_undo=(inside(root, "personalities", personality_id) / PREVIOUS_NAME).is_dir(),
    )


async def replace_texts(
    root: Path, personality_id: str, *, prompt: str | None, settings: str | None, expected_version: str
) -> PersonalityTexts:
    """Put texts in place of the files, None leaves one as it is; of a built-in personality it is the first of its own.

    Raises:
        PersonalityChanged: they are not the expected version.
        PersonalityNotValid: a text is not valid.
        PersonalityError: there is no such personality.
        FileError: not written now.
    """

    def replace() -> PersonalityTexts:
        current = _expect(root, personality_id, expected_version)
        check_texts(current.prompt if prompt is None else prompt, current.settings if settings is None else settings)
        texts = {SOUL_NAME: prompt, SETTINGS_NAME: settings}
        given = {name: _ended(text).encode("utf-8", "replace") for name, text in texts.items() if text is not None}
        _put(root, personality_id, {**_own(root, personality_id), **given})
        return read_texts(root, personality_id)

    return await _locked(root, personality_id, replace)


async def undo_texts(root: Path, personality_id: str, *, expected_version: str) -> None:
    """Bring back what stood there before the last change; what stands there now can be brought back the same way.

    Raises:
        PersonalityChanged: they are not the expected version.
        PersonalityError: nothing is known of before.
        FileError: not written now.
    """

    def undo() -> None:
        if not _expect(root, personality_id, expected_version).can_undo:
            raise PersonalityError("nothing is known of what stood in these files before")
        previous = inside(root, "personalities", personality_id) / PREVIOUS_NAME
        _put(root, personality_id, {name: _read(previous / name) for name in _NAMES})

    await _locked(root, personality_id, undo)


def note_new(root: Path, personality_id: str) -> None:
    """Remember of a personality that was just made that nothing stood there before."""
    make_private_directory(inside(root, "personalities", personality_id) / PREVIOUS_NAME)


async def _locked(root: Path, personality_id: str, change: Callable[[], _Result]) -> _Result:
    """Let nothing else change the files meanwhile, in this process or another."""
    directory = inside(root, "personalities", check_id("personality", personality_id))
    if not bytes_of(root, personality_id, SOUL_NAME) and not directory.is_dir():
        raise PersonalityError(f"there is no personality {personality_id}")
    try:
        await asyncio.to_thread(make_private_directory, directory)
        async with FileLock(directory / LOCK_NAME, LOCK_TIMEOUT_S):
            return await asyncio.to_thread(change)
    except OSError as error:
        raise FileError(f"{directory} could not be written: {error.strerror}") from error


def _expect(root: Path, personality_id: str, version: str) -> PersonalityTexts:
    current = read_texts(root, personality_id)
    if current.version != version:
        raise PersonalityChanged(current)
    return current


def _put(root: Path, personality_id: str, wanted: dict[str, bytes | None]) -> None:
    """Keep what is there, then put these in place; None takes a file away."""
    directory = inside(root, "personalities", personality_id)
    previous, before = directory / PREVIOUS_NAME, _own(root, personality_id)
    try:
        make_private_directory(directory)
        if previous.exists():
            shutil.rmtree(previous)
        make_private_directory(previous)
        for name, data in before.items():
            if data is not None:
                write_atomically(previous / name, data)
        for name, data in wanted.items():
            if data is not None:
                write_atomically(directory / name, data)
            else:
                (directory / name).unlink(missing_ok=True)
        sync_directory(directory)
    except OSError as error:
        raise FileError(f"{directory} could not be written: {error.strerror}") from error


def _own(root: Path, personality_id: str) -> dict[str, bytes | None]:
    return {name: _read(inside(root, "personalities", personality_id, name)) for name in _NAMES}


def _read(path: Path) -> bytes | None:
    found = read_settled(path)
    return None if found is None else found.data


def _shown(data: bytes | None) -> str:
    return (data or b"").decode("utf-8-sig", "replace").replace("\r\n", "\n")


def _ended(text: str) -> str:
    return text.strip("\n") + "\n"
