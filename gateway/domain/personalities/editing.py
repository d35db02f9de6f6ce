"""The two files of a personality, edited by people: checked before they count, and with a way back.

What stood there before the last change is kept; a built-in personality has no file there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.domain.personalities.files import built_in_file, check_texts
from gateway.domain.personalities.places import (
    PARTS,
    SETTINGS_NAME,
    SOUL_NAME,
    OwnFiles,
    PersonalityPlace,
    own_files,
)
from gateway.errors import PersonalityError
from gateway.files.atomic import check_id


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
        is_own: at least one of them is a person's own.
        can_undo: it is known what stood there before.
    """

    settings: str
    prompt: str
    version: str
    is_own: bool
    can_undo: bool


def read_texts(place: PersonalityPlace, personality_id: str) -> PersonalityTexts:
    """Both files. Bytes that are no text are shown as such, and are not kept by an edit.

    Raises:
        InvalidId: it is none.
        PersonalityError: there is no such personality.
        FileError: a file cannot be read.
    """
    check_id("personality", personality_id)
    return _texts(personality_id, own_files(place, personality_id))


async def replace_texts(
    place: PersonalityPlace, personality_id: str, *, prompt: str | None, settings: str | None, expected_version: str
) -> PersonalityTexts:
    """Put texts in place of the files, None leaves one as it is; of a built-in personality it is the first of its own.

    Raises:
        PersonalityChanged: they are not the expected version.
        PersonalityNotValid: a text is not valid.
        PersonalityError: there is no such personality.
        FileError: not written now.
    """
    texts = {SOUL_NAME: prompt, SETTINGS_NAME: settings}
    given = {name: _ended(text).encode("utf-8", "replace") for name, text in texts.items() if text is not None}

    def replace(own: OwnFiles) -> Mapping[str, bytes]:
        current = _expect(personality_id, own, expected_version)
        check_texts(current.prompt if prompt is None else prompt, current.settings if settings is None else settings)
        return {**own.files, **given}

    await asyncio.to_thread(read_texts, place, personality_id)  # one that is not there is not made
    await place.change(personality_id, replace)
    return await asyncio.to_thread(read_texts, place, personality_id)


async def undo_texts(place: PersonalityPlace, personality_id: str, *, expected_version: str) -> None:
    """Bring back what stood there before the last change; what stands there now can be brought back the same way.

    Raises:
        PersonalityChanged: they are not the expected version.
        PersonalityError: nothing is known of before.
        FileError: not written now.
    """

    def undo(own: OwnFiles) -> Mapping[str, bytes]:
        _expect(personality_id, own, expected_version)
        if own.previous is None:
            raise PersonalityError("nothing is known of what stood in these files before")
        return own.previous

    await asyncio.to_thread(read_texts, place, personality_id)
    await place.change(personality_id, undo)


async def put_file(
    place: PersonalityPlace, personality_id: str, name: str, text: str, *, instead_of: bytes | None
) -> bytes:
    """Put one file in place of the one that is a person's own, byte by byte; returns its bytes.

    Args:
        name: `SOUL.md`, `personality.yaml` or `HEARTBEAT.md`.
        instead_of: the bytes that are there; None for none.

    Raises:
        PersonalityChanged: other bytes are there.
        PersonalityNotValid: the text is not valid, or there is no prompt yet.
        FileError: not written now.
    """
    data = text.encode("utf-8", "replace")

    def put(own: OwnFiles) -> Mapping[str, bytes]:
        if own.files.get(name) != instead_of:
            raise PersonalityChanged(_texts(personality_id, own))
        files = {**own.files, name: data}
        check_texts(*(_shown(_counts(personality_id, files, each)) for each in PARTS))
        return files

    await place.change(check_id("personality", personality_id), put)
    return data


def _expect(personality_id: str, own: OwnFiles, version: str) -> PersonalityTexts:
    current = _texts(personality_id, own)
    if current.version != version:
        raise PersonalityChanged(current)
    return current


def _texts(personality_id: str, own: OwnFiles) -> PersonalityTexts:
    found = {name: _counts(personality_id, own.files, name) for name in PARTS}
    is_own = any(name in own.files for name in PARTS)
    if not any(found.values()) and not is_own:
        raise PersonalityError(f"there is no personality {personality_id}")
    digest = hashlib.sha256()
    for name in PARTS:
        for data in (own.files.get(name), found[name]):
            digest.update(b"-" if data is None else hashlib.sha256(data).digest())
    return PersonalityTexts(
        settings=_shown(found[SETTINGS_NAME]),
        prompt=_shown(found[SOUL_NAME]),
        version=digest.hexdigest(),
        is_own=is_own,
        can_undo=own.previous is not None,
    )


def _counts(personality_id: str, own: Mapping[str, bytes], name: str) -> bytes | None:
    return own[name] if name in own else built_in_file(personality_id, name)


def _shown(data: bytes | None) -> str:
    return (data or b"").decode("utf-8-sig", "replace").replace("\r\n", "\n")


def _ended(text: str) -> str:
    return text.strip("\n") + "\n"
