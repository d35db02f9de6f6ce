"""The files of one skill on disk: read without following a link, and bounded. Everything here blocks."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from gateway.errors import FileError

MAX_FILES = 500
MAX_FILE_BYTES = 5 << 20
MAX_BYTES = 20 << 20
MAX_DEPTH = 8
MAX_NAME_BYTES = 200
SKILL_NAMES = ("SKILL.md", "skill.md")
NO_PARTS = frozenset([".git", "__pycache__", ".DS_Store"])
"""Not a part of any skill: neither hashed, nor read, nor run."""
Stamp = tuple[tuple[str, int, int, int, int], ...]
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_files(root: Path) -> Mapping[str, bytes]:
    """All files of a skill by their names, in order; each byte is read once.

    Raises:
        FileError: something is a link, too large, too many, or cannot be read; names it, and says what to do.
    """
    found: dict[str, bytes] = {}
    total = 0
    for name, directory, status in _walk(root):
        total += status.st_size
        if status.st_size > MAX_FILE_BYTES or total > MAX_BYTES:
            most = f"{MAX_FILE_BYTES >> 20} MB for a file and {MAX_BYTES >> 20} MB for a skill are the most"
            raise FileError(f"{root / name} makes it too large: {most}; take it out")
        found[name] = _read(root, name, directory)
    return dict(sorted(found.items()))


def read_file(root: Path, name: str) -> bytes:
    """One file of a skill.

    Raises:
        FileError: it cannot be read, or is a link.
    """
    *parts, last = PurePosixPath(name).parts
    opened = [_open(root, _DIRECTORY, root)]
    try:
        for part in parts:
            opened.append(_open(root / name, _DIRECTORY, part, opened[-1]))
        return _read(root, "/".join([*parts, last]), opened[-1])
    finally:
        for each in opened:
            os.close(each)


def stamp(root: Path) -> Stamp:
    """Another one after a change of any file; nothing is read.

    Raises:
        FileError: as `read_files`.
    """
    return tuple(sorted((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, _, s in _walk(root)))


def _walk(root: Path) -> Iterator[tuple[str, int, os.stat_result]]:
    """Each file's name, the directory it is in, opened, and what it is like."""
    count = 0
    todo = [(PurePosixPath(), os.dup(opened := _open(root, _DIRECTORY, root)))]
    os.close(opened)
    try:
        while todo:
            below, directory = todo.pop()
            with contextlib.closing(_Opened(directory)):
                for name in sorted(_listed(root / below, directory)):
                    path = below / name
                    status = _looked_at(root / path, name, directory)
                    count += 1
                    if count > MAX_FILES or len(path.parts) > MAX_DEPTH:
                        raise FileError(
                            f"{root} has more than {MAX_FILES} files, or is deeper than {MAX_DEPTH} directories; it is "
                            "no skill, or take some out"
                        )
                    if stat.S_ISDIR(status.st_mode):
                        todo.append((path, _open(root / path, _DIRECTORY, name, directory)))
                    else:
                        yield str(path), directory, status
    finally:
        for _, directory in todo:
            os.close(directory)


class _Opened:
    """A directory that is closed again."""

    def __init__(self, number: int) -> None:
        self._number = number

    def close(self) -> None:
        """End."""
        os.close(self._number)


def _listed(path: Path, directory: int) -> Iterator[str]:
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise _unreadable(path, error) from error
    for name in names:
        if name in NO_PARTS:
            continue
        if not name.isprintable() or len(os.fsencode(name)) > MAX_NAME_BYTES:
            raise FileError(f"{path} holds a file with the name {name!r}; rename it")
        yield name


def _looked_at(path: Path, name: str, directory: int) -> os.stat_result:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        raise _unreadable(path, error) from error
    if stat.S_ISLNK(status.st_mode):
        raise FileError(f"{path} is a link, which a skill may not have; put the file itself there")
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise FileError(f"{path} is neither a file nor a directory; take it out")
    return status


def _read(root: Path, name: str, directory: int) -> bytes:
    opened = _open(root / name, _FILE, PurePosixPath(name).name, directory)
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise FileError(f"{root / name} is not a file; take it out")
        try:
            data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise _unreadable(root / name, error) from error
    if len(data) > MAX_FILE_BYTES:
        raise FileError(f"{root / name} has more than {MAX_FILE_BYTES >> 20} MB; take it out")
    return data


def _open(path: Path, flags: int, name: Path | str, directory: int | None = None) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> FileError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return FileError(f"{path} is a link, which a skill may not have; put the file itself there")
    if error.errno == errno.ENOENT:
        return FileError(f"{path} is not there any more; put it back, or remove the skill")
    return FileError(f"{path} cannot be read ({error.strerror}); let the user of the gateway read it: `chmod u+rX`")
