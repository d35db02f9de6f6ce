"""The two files of a personality as people edit them from outside: both texts, and a version of both together."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import EthosError, FileError
from gateway.files import check_id, inside, make_private_directory, write_atomically
from gateway.locks import FileLock
from gateway.marked.validation import validate
from gateway.marked.yaml import parse_marked_yaml
from gateway.personalities.files import MAX_SOUL_BYTES, SETTINGS_NAME, SOUL_NAME, PersonalitySettings, bytes_of

LOCK_NAME = ".edit.lock"
LOCK_TIMEOUT_S = 10.0


class PersonalityChanged(EthosError):
    """Somebody else has changed it since it was read; nothing was written."""


class NoPersonality(EthosError):
    """What was written is no valid personality; the text has a line for each thing that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalityTexts:
    """What stands in the files.

    Attributes:
        settings: `personality.yaml`; empty where there is none.
        prompt: `SOUL.md`.
        version: SHA-256 of both, in hex.
    """

    settings: str
    prompt: str
    version: str


def read_texts(root: Path, personality_id: str) -> PersonalityTexts:
    """Both texts, the built-in ones where the data directory has none; what is not UTF-8 is shown as such.

    Raises:
        InvalidId: not an id at all.
        FileError: a file cannot be read.
    """
    check_id("personality", personality_id)
    settings = bytes_of(root, personality_id, SETTINGS_NAME) or b""
    prompt = bytes_of(root, personality_id, SOUL_NAME) or b""
    version = hashlib.sha256(len(settings).to_bytes(8) + settings + prompt).hexdigest()
    return PersonalityTexts(
        settings=settings.decode("utf-8", "replace"), prompt=prompt.decode("utf-8", "replace"), version=version
    )


async def write_texts(
    root: Path, personality_id: str, *, settings: str | None, prompt: str | None, expected_version: str
) -> None:
    """Replace what is not None, if both are still as they were read; a built-in one is overridden by it.

    Raises:
        PersonalityChanged: they are not.
        NoPersonality: what would be written is not valid; nothing was.
        FileError: the disk is full, or the place cannot be written or locked.
        InvalidId: not an id at all.
    """
    check_id("personality", personality_id)
    _check(settings, prompt)
    directory = inside(root, "personalities", personality_id)
    try:
        await asyncio.to_thread(make_private_directory, directory)
        async with FileLock(directory / LOCK_NAME, LOCK_TIMEOUT_S):
            before = await asyncio.to_thread(read_texts, root, personality_id)
            if before.version != expected_version:
                raise PersonalityChanged(f"{personality_id} has changed since; read it again, and merge")
            for name, text in ((SETTINGS_NAME, settings), (SOUL_NAME, prompt)):
                if text is not None:
                    data = text.replace("\r\n", "\n").encode()
                    await asyncio.to_thread(write_atomically, directory / name, data)
    except OSError as error:
        raise FileError(f"{directory} could not be written: {error.strerror}") from error


def _check(settings: str | None, prompt: str | None) -> None:
    problems: list[str] = []
    for name, text in ((SETTINGS_NAME, settings), (SOUL_NAME, prompt)):
        if text is not None and ("\0" in text or any("\ud800" <= character <= "\udfff" for character in text)):
            problems.append(f"{name}: expected text, and there is a character in it that no file can hold")
    if settings is not None and not problems:
        document = parse_marked_yaml(settings.encode(), SETTINGS_NAME)
        if document.is_readable:
            validate(PersonalitySettings, document)
        problems += document.sorted_problems()
    if prompt is not None and not prompt.strip():
        problems.append(f"{SOUL_NAME}: empty; expected the personality's prompt, in Markdown")
    if prompt is not None and not problems and len(prompt.encode()) > MAX_SOUL_BYTES:
        problems.append(f"{SOUL_NAME}: larger than {MAX_SOUL_BYTES} bytes; expected a prompt of a few pages at most")
    if problems:
        raise NoPersonality("\n".join(problems))
