"""The files of one person, or of one group, that tools read and write, and where programs run.

Names come from a model. Each is opened beneath the directory part by part, and no link is followed, whatever a program
in the sandbox has put there. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from gateway.errors import FileError
from gateway.files.atomic import inside, make_private_directory, write_atomically

QUOTA_BYTES = 200 << 20
MAX_FILE_BYTES = 5 << 20
"""Of a file that is read or written by name; programs may make larger ones."""
MAX_LISTED = 500
_MAX_PARTS, _MAX_NAME_BYTES = 16, 200
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_BENEATH = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoSuchFile(Exception):
    """It cannot be read or written under this name; the text is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One file; `is_own`: nothing in it was written by others."""

    name: str
    size_bytes: int
    modified_at: datetime
    is_own: bool


class Workspace:
    """One directory, made with the first file.

    Where workers share it, every method raises `FileError` while the place of all workspaces is not there.
    """

    def __init__(
        self, root: Path, *, quota_bytes: int = QUOTA_BYTES, check_place: Callable[[], None] = lambda: None
    ) -> None:
        """`check_place` raises `FileError` while the place of all workspaces is not there."""
        self.root = root
        self._quota_bytes = quota_bytes
        self._check_place = check_place
        self._record = root.with_name(f"{root.name}.own.json")
        self._lock = root.with_name(f".{root.name}.lock")

    def make(self) -> Path:
        """The directory, for a program to run in."""
        self._check_place()
        make_private_directory(self.root)
        return self.root

    def files(self) -> Sequence[Listed]:
        """All of them by name, 500 at most; links and special files are left out."""
        own = self._own()
        found: list[Listed] = []
        for name, status in self._walk():
            if len(found) == MAX_LISTED:
                break
            is_own = name in own and own[name] == _mark(status)
            modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
            found.append(Listed(name=name, size_bytes=status.st_size, modified_at=modified_at, is_own=is_own))
        return found

    @property
    def is_own(self) -> bool:
        """Whether nothing in any of its files was written by others."""
        own = self._own()
        return all(name in own and own[name] == _mark(status) for name, status in self._walk())

    def opened(self) -> Iterator[tuple[str, BinaryIO]]:
        """Every file with its name, to be read whole and closed."""
        for name, _ in self._walk():
            parts = name.split("/")
            with contextlib.suppress(NoSuchFile, OSError), self._directory(parts) as directory:
                file = os.fdopen(os.open(parts[-1], _FILE, dir_fd=directory), "rb")
                yield name, file

    def used_bytes(self) -> int:
        """Of all files together."""
        return sum(status.st_size for _, status in self._walk())

    def is_full(self) -> bool:
        """Whether it has all that it may have, or more, as a program in it can make."""
        return self.used_bytes() >= self._quota_bytes

    def read(self, name: str) -> tuple[bytes, bool]:
        """The bytes of a file, and whether nothing in it was written by others.

        Raises:
            NoSuchFile: there is none, it is too large, or the name leads out.
        """
        parts = _parts(name)
        with self._directory(parts) as directory:
            try:
                opened = os.open(parts[-1], _FILE, dir_fd=directory)
            except OSError as error:
                raise _missing(name) from error
            with os.fdopen(opened, "rb") as file:
                status = os.fstat(opened)
                if not stat.S_ISREG(status.st_mode):
                    raise _missing(name)
                if status.st_size > MAX_FILE_BYTES:
                    raise NoSuchFile(f"{name} has {status.st_size} bytes, and {MAX_FILE_BYTES} can be read")
                return file.read(MAX_FILE_BYTES), self._own().get("/".join(parts)) == _mark(status)

    def write(
        self, name: str, data: bytes, *, is_own: bool, most_bytes: int = MAX_FILE_BYTES, replaces: bool = True
    ) -> None:
        """Put a file in place, whole.

        Args:
            is_own: nothing in it was written by others.
            most_bytes: of the file; one that has more than `MAX_FILE_BYTES` only programs can read.
            replaces: False: a file that is there already stays as it is.

        Raises:
            NoSuchFile: the name leads out, the file is too large, or the workspace is full.
            FileError: the disk is full.
        """
        parts = _parts(name)
        if len(data) > most_bytes:
            raise NoSuchFile(f"{name} would have {len(data)} bytes; {most_bytes} can be written")
        with self.locked():
            if not replaces and self._has(parts):
                return
            if self.used_bytes() + len(data) > self._quota_bytes:
                raise NoSuchFile(f"the workspace is full: {self._quota_bytes >> 20} MB in all; delete files first")
            self.make()
            status = self._put(parts, data)
            self._note("/".join(parts), _mark(status) if is_own else None)

    def _has(self, parts: Sequence[str]) -> bool:
        with contextlib.suppress(NoSuchFile, OSError), self._directory(parts) as directory:
            return stat.S_ISREG(os.stat(parts[-1], dir_fd=directory, follow_symlinks=False).st_mode)
        return False

    def _put(self, parts: Sequence[str], data: bytes) -> os.stat_result:
        name = "/".join(parts)
        with self._directory(parts, makes=True) as directory:
            draft = f".{secrets.token_hex(8)}.tmp"
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(draft, flags, 0o600, dir_fd=directory), "wb") as file:
                    file.write(data)
                os.rename(draft, parts[-1], src_dir_fd=directory, dst_dir_fd=directory)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=directory)
                if isinstance(error, IsADirectoryError):
                    raise NoSuchFile(f"{name} is a directory") from error
                raise FileError(f"{name} could not be written: {error.strerror}") from error
            return os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)

    def delete(self, name: str) -> None:
        """Remove one file.

        Raises:
            NoSuchFile: there is none.
        """
        parts = _parts(name)
        with self.locked():
            with self._directory(parts) as directory:
                try:
                    os.unlink(parts[-1], dir_fd=directory)
                except OSError as error:
                    raise _missing(name) from error
            self._note("/".join(parts), None)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among all threads, processes and workers that change it through this class; ends with a process.

        Raises:
            FileError: the place cannot be written or locked.
        """
        self._check_place()
        make_private_directory(self._lock.parent)
        try:
            opened = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FileError(f"{self._lock} could not be made: {error.strerror}") from error
        try:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX)
            except OSError as error:
                raise FileError(f"{self._lock} could not be locked: {error.strerror}") from error
            yield
        finally:
            os.close(opened)

    def _own(self) -> Mapping[str, str]:
        """By name, how each file looked when it was written with nothing of others in it."""
        try:
            found = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _note(self, name: str, mark: str | None) -> None:
        own = dict(self._own())
        if mark is None and name not in own:
            return
        own.pop(name, None)
        if mark is not None:
            own[name] = mark
        write_atomically(self._record, json.dumps(own, ensure_ascii=False).encode("utf-8", "replace"))

    def take_marks(self, other: Workspace, *, there: str = "", here: str = "") -> None:
        """Know of files what another knows of them, for when they are moved from its folder into one of this."""
        moved = {here + name.removeprefix(there): mark for name, mark in other._own().items() if name.startswith(there)}
        if moved:
            known = json.dumps({**self._own(), **moved}, ensure_ascii=False)
            write_atomically(self._record, known.encode("utf-8", "replace"))

    def forget_marks(self) -> None:
        """Of files that are gone."""
        if not self.root.exists():
            self._record.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _directory(self, parts: Sequence[str], *, makes: bool = False) -> Iterator[int]:
        """The directory that holds a file of this name, opened."""
        self._check_place()
        opened: list[int] = []
        try:
            try:
                opened.append(os.open(self.root, _BENEATH))
                for part in parts[:-1]:
                    if makes:
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(part, 0o700, dir_fd=opened[-1])
                    opened.append(os.open(part, _BENEATH, dir_fd=opened[-1]))
            except OSError as error:
                raise _missing("/".join(parts)) from error
            yield opened[-1]
        finally:
            for each in opened:
                os.close(each)

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        self._check_place()
        if not self.root.is_dir():
            return
        for directory, below, names, opened in os.fwalk(self.root, follow_symlinks=False):
            below.sort()
            inside = PurePosixPath(directory).relative_to(self.root)
            for name in sorted(names):
                with contextlib.suppress(OSError):
                    status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield str(inside / name), status


class Workspaces:
    """Those in one place: of a person `users/<user id>/files`, of a group `groups/<hash>/files`.

    Attributes:
        place: the data directory, or the directory that all workers share.
    """

    def __init__(self, place: Path, check_place: Callable[[], None] = lambda: None) -> None:
        """Nothing is made yet; `check_place` as `Workspace` has it."""
        self.place = place
        self._check_place = check_place

    def of_person(self, user_id: str) -> Workspace:
        """The files of a user."""
        return self._at("users", user_id)

    def _at(self, kind: str, name: str) -> Workspace:
        return Workspace(inside(self.place, kind, name, "files"), check_place=self._check_place)

    def check_place(self) -> None:
        """Raises `FileError` while the place is not there."""
        self._check_place()

    def of_group(self, channel: str, conversation: str) -> Workspace:
        """The files of those who share a conversation."""
        whole = json.dumps([channel, conversation]).encode()
        return self._at("groups", hashlib.sha256(whole).hexdigest()[:32])

    def unite(self, survivor: str, absorbed: str) -> None:
        """Put the files of one user into a folder among those of another, who is the same person; may be repeated.

        Raises:
            OSError, FileError: they could not be moved now.
        """
        old, new = self.of_person(absorbed), self.of_person(survivor)
        with new.locked():
            if old.root.is_dir():
                folder = _free(new.make() / _folder(absorbed))
                new.take_marks(old, here=f"{folder.name}/")
                old.root.rename(folder)
            old.forget_marks()

    def part(self, survivor: str, absorbed: str) -> None:
        """Give the folder back, wherever it is by now; may be repeated. Raises as `unite`."""
        old, new = self.of_person(absorbed), self.of_person(survivor)
        with new.locked():
            for folder in [*new.root.rglob(_folder(absorbed))] if new.root.is_dir() else ():
                if folder.is_dir() and not folder.is_symlink():
                    make_private_directory(old.root.parent)
                    place = _free(old.root / "earlier") if old.root.exists() else old.root
                    at = f"{place.name}/" if place != old.root else ""
                    old.take_marks(new, there=f"{folder.relative_to(new.root)}/", here=at)
                    folder.rename(place)


def _folder(user_id: str) -> str:
    return f"of-{user_id}"


def _free(path: Path) -> Path:
    """The path, or one like it that is not taken."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(one for one in itertools.chain([path], numbered) if not one.exists())


def _mark(status: os.stat_result) -> str:
    """What changes whenever a program writes to the file, or puts another in its place."""
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def _parts(name: str) -> Sequence[str]:
    parts = [part for part in name.strip().split("/") if part not in ("", ".")]
    if not 0 < len(parts) <= _MAX_PARTS or not all(map(_is_good, parts)):
        raise NoSuchFile(f"{name!r} is no name of a file in the workspace; use one such as notes/tea.md")
    return parts


def _is_good(part: str) -> bool:
    return part != ".." and part.isprintable() and len(part.encode("utf-8", "replace")) <= _MAX_NAME_BYTES


def _missing(name: str) -> NoSuchFile:
    return NoSuchFile(f"there is no file {name!r} in the workspace; list_files shows those that there are")
