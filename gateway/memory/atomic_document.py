"""One memory file on the disk, and the small hidden files next to it. Everything here blocks; callers hold the lock.

Next to `MEMORY.md` lie, all in one directory, so that one fsync of it makes all names durable:

- `.MEMORY.md.<random>.tmp`, then `.MEMORY.md.<inode>.new`: the next version, until it changes places with the file.
  Its name holds its inode's number, because for an instant after that the name belongs to the version before;
- `.MEMORY.md.<hashes>.applied`: the evidence, a hard link to the next version that is made before the rename and whose
  name holds the updates in it. While the version has its `.new` name too, the rename has not happened; once that is
  gone, it has. So after a crash or a power cut the directory itself says what was applied;
- `.MEMORY.md.previous`: the version before;
- `.MEMORY.md.cut`: where the archive ended, while it is being appended to.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from gateway.errors import FileError
from gateway.files.atomic import (
    FileSnapshot,
    Signature,
    exchange,
    make_private_directory,
    read_once,
    read_settled,
    rename_new,
    sign,
    sync_directory,
    write_new,
)
from gateway.memory.journal import HASH_OF_NOTHING, Key
from gateway.memory.paths import ARCHIVE_NAME

_KEY_CHARS = 16
_KEYS_PER_NAME = 13  # a name may have 255 bytes
Step = Callable[[str], None]
"""Is told the name of every step of a write, before it begins."""
Published = Literal["placed", "overtaken", "refused"]
"""In place; in place, but an editor has saved into the replaced version meanwhile; taken back, an editor was first."""


def no_step(_step: str) -> None:
    """For those who need not know of the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentState:
    """What was found.

    Attributes:
        signature: None where there is no file.
        sha256: of `data`, in hex.
        previous: the signature of the version before.
        evidence: the names of all evidence.
        written: the inodes that it speaks of: versions that we wrote.
        staged: the names of versions that did not come into place, by inode.
        replaced: the names of versions that gave way to one of ours, whose process died before it could rename them.
        stale: the names of what a dead process left half done.
    """

    data: bytes
    signature: Signature | None
    sha256: str
    previous: Signature | None
    evidence: tuple[str, ...]
    written: frozenset[int]
    staged: dict[int, str]
    replaced: tuple[str, ...]
    stale: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedVersion:
    """The next version, on the disk but not in place."""

    path: Path
    evidence: tuple[Path, ...]
    signature: Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingFile:
    """What a copy of a document needs to go on from where the document is.

    Attributes:
        data: its bytes; None where there is none.
        mtime_ns: of these.
        evidence: names that lie next to it. Their files say nothing, so empty ones serve as well.
        archive_bytes: of the archive, how much counts; what is behind it belongs to a version that never came.
    """

    data: bytes | None
    mtime_ns: int
    evidence: tuple[str, ...]
    archive_bytes: int


class AtomicDocument:
    """Reads and replaces one document."""

    def __init__(self, path: Path, on_step: Step = no_step) -> None:
        self.path = path
        self._step = on_step
        self._hidden = f".{path.name}."
        self._previous = path.with_name(f"{self._hidden}previous")
        self._note = path.with_name(f"{self._hidden}cut")
        self._archive_path = path.with_name(ARCHIVE_NAME)

    def look(self, *, is_edited: bool = False) -> DocumentState:
        """Read the file and what lies next to it; a file that an editor wrote is read until it rests."""
        snapshot = read_settled(self.path) if is_edited else read_once(self.path)
        evidence: dict[str, int] = {}
        staged: dict[int, str] = {}
        left: list[str] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path.parent) as names:
            for entry in names:
                if not entry.name.startswith(self._hidden):
                    continue
                if entry.name.endswith(".applied"):
                    evidence[entry.name] = entry.inode()
                elif entry.name == self._staged_name(entry.inode()):
                    staged[entry.inode()] = entry.name
                elif entry.name.endswith((".new", ".tmp")):
                    left.append(entry.name)
        exchanged = {self._staged_name(inode) for inode in evidence.values()} if left else set()
        return DocumentState(
            data=snapshot.data if snapshot else b"",
            signature=snapshot.signature if snapshot else None,
            sha256=snapshot.sha256 if snapshot else HASH_OF_NOTHING,
            previous=sign(self._previous),
            evidence=tuple(evidence),
            written=frozenset(evidence.values()),
            staged=staged,
            replaced=tuple(name for name in left if name in exchanged),
            stale=tuple(name for name in left if name not in exchanged),
        )

    def finish_exchange(self, look: DocumentState) -> None:
        """Make what gave way to a version of ours the version before: an editor may have saved it at that moment."""
        for name in look.replaced:
            self.path.with_name(name).replace(self._previous)

    def has_applied(self, look: DocumentState, key: Key) -> bool:
        """Whether the evidence says that an update is in the file, or in a version of it that was replaced since."""
        mark = _mark(key)
        names = [name for name in look.evidence if mark in name]
        return any(mark in _marks(name) and not self._is_staged(look, name) for name in names)

    def at_rest(self) -> RestingFile:
        """The document without what a dead process left half done; nothing is changed."""
        look = self.look(is_edited=True)
        end = self._end_before_cut()
        with contextlib.suppress(FileNotFoundError):
            size_bytes = self._archive_path.stat().st_size
            end = size_bytes if end is None else min(end, size_bytes)
        return RestingFile(
            data=look.data if look.signature else None,
            mtime_ns=look.signature.mtime_ns if look.signature else 0,
            evidence=tuple(sorted(name for name in look.evidence if not self._is_staged(look, name))),
            archive_bytes=end or 0,
        )

    def read_previous(self) -> FileSnapshot | None:
        """The version before, as it is now: an editor that had it open may have saved into it."""
        return read_settled(self._previous)

    def stage(self, data: bytes, keys: Sequence[Key], look: DocumentState) -> StagedVersion:
        """Write the next version, durably, and then its evidence.

        Raises:
            FileError: the disk is full or the place cannot be written; nothing has changed.
        """
        make_private_directory(self.path.parent)
        path = self.path.with_name(f"{self._hidden}{secrets.token_hex(6)}.tmp")
        evidence: list[Path] = []
        try:
            signature = write_new(path, data)
            path = path.rename(path.with_name(self._staged_name(signature.inode)))
            self._step("staged")
            marks = [_mark(key) for key in keys]
            for at in range(0, len(marks), _KEYS_PER_NAME):
                link = self.path.with_name(f"{self._hidden}{''.join(marks[at : at + _KEYS_PER_NAME])}.applied")
                if link.name in look.evidence:  # of an attempt that was never renamed
                    link.unlink()
                evidence.append(link)
                os.link(path, link)
        except OSError as error:
            self._remove(path, evidence)
            raise FileError(
                f"{self.path} could not be written: {error.strerror}. The old text is untouched."
            ) from error
        self._step("linked")
        return StagedVersion(path=path, evidence=tuple(evidence), signature=signature)

    def unstage(self, staged: StagedVersion) -> None:
        """Take the next version back."""
        self._take_back_cut()
        self._remove(staged.path, staged.evidence)

    def publish(self, staged: StagedVersion, look: DocumentState, cut: bytes) -> Published:
        """Put the next version in place, durably, if the file is still the one that was looked at.

        Raises:
            FileError: it could not be put in place; the old text is untouched.
        """
        try:
            if cut:
                self._archive(cut, staged)
            if not self._is_still(look):
                self.unstage(staged)
                return "refused"
            self._step("compared")
            if not self._swap(staged, look):
                self.unstage(staged)
                return "refused"
            self._step("renamed")
            sync_directory(self.path.parent)
        except OSError as error:
            if sign(staged.path) != staged.signature:
                raise FileError(f"{self.path} was replaced, but perhaps not durably: {error.strerror}") from error
            self.unstage(staged)
            raise FileError(
                f"{self.path} could not be replaced: {error.strerror}. The old text is untouched."
            ) from error
        if cut:
            self._note.unlink(missing_ok=True)
        self._step("synced")
        return "placed" if look.signature is None or sign(self._previous) == look.signature else "overtaken"

    def tidy(self, pending: Collection[Key]) -> None:
        """Remove old evidence, and versions that a dead process left; the settling is durable."""
        self._take_back_cut()
        look = self.look()
        waiting = {_mark(key) for key in pending}
        for name in look.evidence:  # before the staged versions, without which it would speak of a rename
            if self._is_staged(look, name) or not waiting & _marks(name):
                self.path.with_name(name).unlink(missing_ok=True)
        for name in (*look.staged.values(), *look.stale):
            self.path.with_name(name).unlink(missing_ok=True)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _staged_name(self, inode: int) -> str:
        return f"{self._hidden}{inode}.new"

    def _is_staged(self, look: DocumentState, name: str) -> bool:
        if not look.staged:
            return False
        signature = sign(self.path.with_name(name))
        return signature is not None and signature.inode in look.staged

    def _swap(self, staged: StagedVersion, look: DocumentState) -> bool:
        """Put the next version in place, and what was there, whatever it is by now, in the place of the version before.

        Returns:
            False when somebody has made the file that was not there.
        """
        if look.signature is None:
            with contextlib.suppress(FileNotFoundError):
                self._previous.unlink()
            try:
                if not rename_new(staged.path, self.path):
                    staged.path.rename(self.path)
            except FileExistsError:
                return False
            return True
        if exchange(staged.path, self.path):
            self._step("exchanged")
            staged.path.replace(self._previous)
            return True
        with contextlib.suppress(FileNotFoundError):
            self._previous.unlink()
        os.link(self.path, self._previous)
        staged.path.replace(self.path)
        return True

    def _is_still(self, look: DocumentState) -> bool:
        """Compare the signature, and then the bytes: a clock of 4 ms tells two quick saves as one."""
        if sign(self.path) != look.signature:
            return False
        now = read_once(self.path)
        return (now.data if now else None) == (look.data if look.signature else None)

    def _remove(self, path: Path, evidence: Sequence[Path]) -> None:
        for name in (*evidence, path):
            with contextlib.suppress(OSError):
                name.unlink()

    def _take_back_cut(self) -> None:
        """Take from the archive what was appended for a version that never came into its place."""
        end = self._end_before_cut()
        with contextlib.suppress(FileNotFoundError):
            if end is not None and end < self._archive_path.stat().st_size:
                os.truncate(self._archive_path, end)
        self._note.unlink(missing_ok=True)

    def _end_before_cut(self) -> int | None:
        """Where the archive ended before it was appended to for a version that has not come into its place."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            end, _, staged = self._note.read_text(encoding="utf-8").partition(" ")
            signature = sign(self.path.with_name(staged))
            # After the two have changed names, the version before has the staged one's for a moment.
            if signature is not None and staged == self._staged_name(signature.inode):
                return int(end)
        return None

    def _archive(self, cut: bytes, staged: StagedVersion) -> None:
        """Append what was cut, once: a note says where the archive ended, until the shorter file is in place."""
        self._take_back_cut()
        fd = os.open(self._archive_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            write_new(self._note, f"{os.fstat(fd).st_size} {staged.path.name}".encode())
            view = memoryview(cut)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        self._step("archived")


def _mark(key: Key) -> str:
    turn_id, index = key
    return sha256(f"{turn_id}\0{index}".encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_CHARS]


def _marks(name: str) -> set[str]:
    marks = name.removesuffix(".applied").rpartition(".")[2]
    return {marks[at : at + _KEY_CHARS] for at in range(0, len(marks), _KEY_CHARS)}
