"""A directory with the gateway's documents, as people have it: files, and what they were when they were pulled.

`.ethos/` in it has the manifest of versions and a copy of each text, so that an edit is merged against what it began
with. A text is written before its copy, and the copy before the manifest: whoever is killed in between does it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.domain.personalities.places import NAMES
from gateway.errors import EthosError, FileError
from gateway.files.atomic import inside, is_id, make_private_directory, read_settled, write_atomically
from gateway.memory.paths import is_document

STATE_NAME = ".ethos"
LOCK_NAME = "lock"
MAX_BYTES = 1 << 24
"""A longer file is no text of ours, and not read."""
_MANIFEST = "manifest.json"
_FORMAT = 1
_PATTERNS = (
    "MEMORY.md",
    "users/*/USER.md",
    "users/*/personalities/*/MEMORY.md",
    *(f"personalities/*/{name}" for name in ("MEMORY.md", *NAMES)),
)


class NoText(EthosError):
    """A file that is there is no text that could be a document; says why."""


def is_file_of_ours(path: str) -> bool:
    """Whether it may be written below the directory: what a server says is no place on this machine."""
    match path.split("/"):
        case ["personalities", personality, name] if name in NAMES:
            return is_id(personality)
    return is_document(path)


class FileTree:
    """One directory. Its methods block, and raise `FileError` and `UnsafePath`."""

    def __init__(self, root: Path) -> None:
        """It is made where it is missing, for its owner alone."""
        self._root = root
        self._state = root / STATE_NAME
        make_private_directory(self._state / "base")
        ignored = self._state / ".gitignore"
        if not ignored.exists():
            write_atomically(ignored, b"*\n")  # what is committed are the documents

    @property
    def lock_path(self) -> Path:
        """Held for each pull and push."""
        return self._state / LOCK_NAME

    def versions(self) -> Mapping[str, str]:
        """The version of each file when it was pulled or pushed last."""
        found = read_settled(self._state / _MANIFEST)
        if found is None:
            return {}
        try:
            values = json.loads(found.data)
            if values["format"] == _FORMAT:
                return {path: str(version) for path, version in values["files"].items() if is_file_of_ours(path)}
            reason = f"it is of format {values['format']}, and this program knows {_FORMAT}"
        except (ValueError, KeyError, TypeError, AttributeError):
            reason = "it is damaged"
        raise FileError(f"{self._state / _MANIFEST}: {reason}; pull into another directory")

    def keep_versions(self, versions: Mapping[str, str]) -> None:
        """Write the manifest."""
        values = {"format": _FORMAT, "files": dict(sorted(versions.items()))}
        write_atomically(self._state / _MANIFEST, (json.dumps(values, indent=1) + "\n").encode())

    def paths(self) -> Iterator[str]:
        """The files that are there and may be documents, in order; others are not ours."""
        found = (path for pattern in _PATTERNS for path in self._root.glob(pattern))
        yield from sorted(filter(is_file_of_ours, (path.relative_to(self._root).as_posix() for path in found)))

    def text(self, path: str) -> str | None:
        """What a file says; None where there is none.

        Raises:
            NoText: it is none.
            UnsafePath: a link leads out of the directory.
        """
        place = inside(self._root, *path.split("/"))
        if place.is_file() and place.stat().st_size > MAX_BYTES:
            raise NoText(f"is longer than {MAX_BYTES:,} bytes; shorten it")
        found = read_settled(place)
        return None if found is None else _text_of(found.data)

    def base(self, path: str) -> str | None:
        """What a file said when it was pulled or pushed last; None where it was not."""
        found = read_settled(self._base(path))
        return None if found is None else _text_of(found.data)

    def put(self, path: str, text: str | None, base: str) -> None:
        """Have a file say this, and know what it began with; None leaves the file as it is."""
        if text is not None:
            place = inside(self._root, *path.split("/"))
            make_private_directory(place.parent)
            write_atomically(place, text.encode())
        kept = self._base(path)
        make_private_directory(kept.parent)
        write_atomically(kept, base.encode())

    def drop(self, path: str, *, also_file: bool) -> None:
        """Forget what a file began with, and remove the file."""
        if also_file:
            inside(self._root, *path.split("/")).unlink(missing_ok=True)
        self._base(path).unlink(missing_ok=True)

    def _base(self, path: str) -> Path:
        return inside(self._root, STATE_NAME, "base", *path.split("/"))


def _text_of(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NoText(f"is no text: byte {error.start} is not UTF-8; save it as UTF-8") from error
    if "\0" in text:
        raise NoText("is no text: there is a NUL character in it")
    return text.replace("\r\n", "\n").replace("\r", "\n")
