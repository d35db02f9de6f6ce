"""Puts the files of a skill into a directory of skills, whole or not at all, and takes them away. Blocks."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from gateway.errors import FileError
from gateway.files.atomic import exchange, make_private_directory, sync_directory, write_new

_UNFINISHED = re.compile(r"\.[0-9a-f]{12}\.(?:new|old)")
_UNFINISHED_S = 3_600
"""So long no change takes; what is older is of one that was killed."""


class Taken(Exception):
    """There is something of that name already."""


def put(place: Path, name: str, files: Mapping[str, bytes], *, replaces: bool) -> None:
    """Put a skill into a place, in the stead of the one that is there if `replaces`.

    Raises:
        Taken: there is one, and `replaces` is not said.
        FileError: the disk is full, or the place cannot be written; nothing has changed.
    """
    target, new = place / name, place / f".{secrets.token_hex(6)}.new"
    try:
        make_private_directory(place)
        if target.exists() and not replaces:
            raise Taken(f"there is {target} already")
        _write(new, files)
        _clean(place, new)
        if target.exists():
            if not exchange(new, target):  # a file system that cannot: it is away for a moment, and then withheld
                old = place / f".{secrets.token_hex(6)}.old"
                target.rename(old)
                new.rename(target)
                new = old
        else:
            new.rename(target)
        sync_directory(place)
    except OSError as error:
        raise FileError(f"{target} could not be written: {error.strerror}") from error
    finally:
        _delete(new)


def take_away(root: Path) -> None:
    """Remove the directory of a skill.

    Raises:
        FileError: it cannot be removed.
    """
    old = root.with_name(f".{secrets.token_hex(6)}.old")
    try:
        root.rename(old)  # so that it is never seen in parts
        sync_directory(root.parent)
    except OSError as error:
        raise FileError(f"{root} could not be removed: {error.strerror}") from error
    _delete(old)


def _clean(place: Path, new: Path) -> None:
    """Delete what was left there long before `new`, as the disk counts, which may be another machine's."""
    before = new.stat().st_ctime - _UNFINISHED_S
    for path in place.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another worker has done so
            if _UNFINISHED.fullmatch(path.name) and path != new and path.lstat().st_ctime < before:
                _delete(path)


def _delete(root: Path) -> None:
    if root.is_symlink():
        root.unlink()
    shutil.rmtree(root, ignore_errors=True)


def _write(root: Path, files: Mapping[str, bytes]) -> None:
    directories = {root}
    for name, data in files.items():
        path = root / name
        make_private_directory(path.parent)
        write_new(path, data)
        directories |= {parent for parent in path.parents if parent.is_relative_to(root)}
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):  # a skill without files
            sync_directory(directory)
