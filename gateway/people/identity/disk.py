"""identity-map.json on the disk: what of it can be trusted, what serves when it cannot, and how it is written.

Next to the map, in its directory:

============================================== =========================================================
`.identity-map.last-good.json`                 the newest state that was read or written whole
`.identity-map.previous.json`                  the file that our last write replaced
`identity-map.json.broken-<digest>`            what could not be read, the newest ten; named by its content
`identity-map.json.before-conversion-<digest>` a map in another form, before it was first written in ours
============================================== =========================================================

The copy is written before the map. So no crash leaves an entry in the map alone, and a map that equals the copy was
written whole, however young it is.
Everything here blocks; `keep` and `change` are for those who hold the lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.errors import FileError, IdentityMapBroken
from gateway.files.atomic import (
    SETTLED_AFTER_S,
    FileSnapshot,
    Signature,
    inside,
    read_once,
    read_settled,
    sync_directory,
    write_atomically,
    write_new,
)
from gateway.files.positions.json import Mistake
from gateway.people.identity.file import IdentityDocument, NewerMap, empty_map, parse
from gateway.runtime.failpoints import reach

MAX_BROKEN_COPIES = 10
BROKEN_FOR_S = 1.0
"""A file that cannot be read may be half saved; it is not replaced before it has been so for this long."""

_TRIES = 20
_DIGEST = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the map says.

    Attributes:
        document: the file's, or the last good copy's where there is `trouble` with the file.
        live: the file's bytes; None where there is none, or it cannot be read.
        signature: of `live`.
        trouble: why the file does not serve, as `path:line:column: …` where it has such a place.
        is_kept: a good file is in the last good copy, a broken one is kept next to the map.
        is_settled: whatever changes the file from now on changes its signature.
    """

    document: IdentityDocument
    live: FileSnapshot | None
    signature: Signature | None
    trouble: str | None
    is_kept: bool
    is_settled: bool


class IdentityDisk:
    """The map, its copies, and the rules between them."""

    def __init__(self, path: Path, *, wait: Callable[[float], None] = time.sleep) -> None:
        """Name the file; `wait` passes the time, in seconds, while an editor may be saving."""
        self.path = path
        self.copy_path = path.with_name(".identity-map.last-good.json")
        self._wait = wait
        self._is_swept = False

    def read(self, last: Reading | None = None) -> Reading:
        """Read the map, or what serves instead.

        Args:
            last: an earlier reading, which saves the work where nothing has changed.

        Raises:
            IdentityMapBroken: it cannot be used, and there is no good copy; or a newer program wrote it.
            UnsafePath: a link leads out of the data directory.
        """
        self._refuse_links_out()
        started_at = time.time()
        copy = _read_or_none(self.copy_path)
        try:
            live = read_once(self.path)
            if live is not None and not (_is_same(live, copy) or (last and _is_same(live, last.live))):
                live = read_settled(self.path, wait=self._wait)
            elif live is None and copy is not None:  # some editors rename the old file away before they write
                self._wait(SETTLED_AFTER_S)
                live = read_settled(self.path, wait=self._wait)
        except FileError as error:
            return self._fall_back(str(error), None, copy, last)
        if live is None:
            return self._without_file(copy)
        age_s = started_at - live.signature.mtime_ns / 1e9
        is_settled = not -1.0 < age_s < SETTLED_AFTER_S
        if last is not None and last.live is not None and _is_same(live, last.live):
            is_kept = last.is_kept if last.trouble else _is_same(live, copy)
            return replace(last, live=live, signature=live.signature, is_kept=is_kept, is_settled=is_settled)
        try:
            document = parse(live.data)
        except NewerMap as newer:
            raise IdentityMapBroken(f"{self.path}:{newer.line}:{newer.column}: {newer.expected}") from None
        except Mistake as mistake:
            trouble = f"{self.path}:{mistake.line}:{mistake.column}: {mistake.expected}"
            return replace(self._fall_back(trouble, live, copy, last), is_settled=is_settled)
        return Reading(
            document=document,
            live=live,
            signature=live.signature,
            trouble=None,
            is_kept=_is_same(live, copy),
            is_settled=is_settled,
        )

    def keep(self, last: Reading) -> Reading:
        """Read the map, and keep what was read: a good one as the last good copy, a broken one next to the map.

        Raises:
            FileError: it could not be kept, or as `read`.
        """
        reading = self.read(last)
        if reading.live is None or reading.is_kept:
            return reading
        if reading.trouble is None:
            write_atomically(self.copy_path, reading.live.data)
        else:
            self._set_aside(reading.live.data)
        return replace(reading, is_kept=True)

    def change(self, change: Callable[[IdentityDocument], IdentityDocument | None], last: Reading | None) -> Reading:
        """Put another map in the place of the one that is there; a broken or missing one is restored first.

        Args:
            change: makes the other map of the one it is given, None for no write. Called again, with a newer map,
                whenever an editor slipped in.
            last: as for `read`.

        Raises:
            FileError: nothing was changed (the disk is full, or an editor saves without pause), or as `read`.
        """
        self._sweep()
        for _ in range(_TRIES):
            reading = self._read_to_write(last)
            document = change(reading.document)
            if document is None:
                return reading
            if reading.trouble is not None and reading.live is not None:
                self._set_aside(reading.live.data)
            if not reading.document.is_own_form:
                self._keep_beside("before-conversion", reading.document.source)
            write_atomically(self.copy_path, document.source)
            reach("identity.copied")
            signature = self._replace(reading.live, document.source)
            if signature is not None:
                live = FileSnapshot(document.source, signature, hashlib.sha256(document.source).hexdigest())
                return Reading(
                    document=document, live=live, signature=signature, trouble=None, is_kept=True, is_settled=False
                )
        raise FileError(f"{self.path} changes faster than it can be written. Close the program that keeps saving it.")

    def remove_copies(self) -> None:
        """Delete every copy next to the map but the last good one.

        Raises:
            FileError: one of them cannot be deleted.
        """
        directory = self.path.parent
        try:
            for pattern in (".identity-map.previous.json", f"{self.path.name}.broken-*", f"{self.path.name}.before-*"):
                for copy in directory.glob(pattern):
                    copy.unlink(missing_ok=True)
            if directory.is_dir():
                sync_directory(directory)
        except OSError as error:
            raise FileError(f"{error.filename} could not be deleted: {error.strerror}") from error

    def set_aside(self) -> list[Path]:
        """The broken maps that are kept, oldest first."""
        found = [
            path
            for path in self.path.parent.glob(f"{self.path.name}.broken-*")
            if _DIGEST.fullmatch(path.name.rpartition("-")[2]) and path.is_file() and not path.is_symlink()
        ]
        return sorted(found, key=_modified_ns)

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _refuse_links_out(self) -> None:
        root = self.path.parent.parent
        for path in (self.path, self.copy_path):
            inside(root, path.parent.name, path.name)

    def _without_file(self, copy: FileSnapshot | None) -> Reading:
        if copy is None:
            return Reading(document=empty_map(), live=None, signature=None, trouble=None, is_kept=True, is_settled=True)
        trouble = f"{self.path}: is missing. To start again with no known users, delete {self.copy_path.name} as well"
        return replace(self._fall_back(trouble, None, copy, None), is_settled=True)

    def _fall_back(
        self, trouble: str, live: FileSnapshot | None, copy: FileSnapshot | None, last: Reading | None
    ) -> Reading:
        """Let the last good copy serve; where it is lost, the map that is still in memory."""
        document = None
        if copy is not None:
            with contextlib.suppress(Mistake):
                document = parse(copy.data)
        if document is None and last is not None and last.live is not None:
            document = last.document
        if document is None:
            raise IdentityMapBroken(
                f"{trouble}. There is no good copy of it to serve instead. Fix the file; or move it and "
                f"{self.copy_path.name} away to start again with no known users."
            )
        return Reading(
            document=document,
            live=live,
            signature=live.signature if live else None,
            trouble=trouble,
            is_kept=live is None or self._is_set_aside(live.data),
            is_settled=False,
        )

    # ---- writing ----------------------------------------------------------------------------------------------------

    def _read_to_write(self, last: Reading | None) -> Reading:
        """Read what is to be written over. A file that is broken or missing gets time: an editor may be saving it."""
        reading = self.read(last)
        give_up_at = time.monotonic() + BROKEN_FOR_S
        while reading.trouble and _is_young(reading) and time.monotonic() < give_up_at:
            self._wait(SETTLED_AFTER_S)
            reading = self.read(reading)
        return reading

    def _replace(self, base: FileSnapshot | None, data: bytes) -> Signature | None:
        """Put `data` in the place of `base`; None when an editor has put something else there, which then stays."""
        target = Path(os.path.realpath(self.path))
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        previous = target.with_name(".identity-map.previous.json")
        try:
            signature = write_new(temporary, data)
            previous.unlink(missing_ok=True)
            if not _is_same(read_once(target), base):
                return None
            is_linked = base is not None and _link(target, previous)
            os.replace(temporary, target)  # noqa: PTH105 (the same call, without a second Path object)
            if is_linked and not _is_same(read_once(previous), base):  # an editor slipped in before the rename
                os.replace(previous, target)  # noqa: PTH105
                return None
            reach("identity.renamed")
            sync_directory(target.parent)
        except OSError as error:
            raise FileError(
                f"{self.path} could not be written: {error.strerror}. The old file is untouched."
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        return signature

    def _set_aside(self, data: bytes) -> None:
        if self._is_set_aside(data):
            return
        self._keep_beside("broken", data)
        for path in self.set_aside()[:-MAX_BROKEN_COPIES]:
            path.unlink(missing_ok=True)

    def _is_set_aside(self, data: bytes) -> bool:
        return _holds(self._beside("broken", data), data)

    def _keep_beside(self, what: str, data: bytes) -> None:
        path = self._beside(what, data)
        if not _holds(path, data):
            write_atomically(path, data)

    def _beside(self, what: str, data: bytes) -> Path:
        return self.path.with_name(f"{self.path.name}.{what}-{hashlib.sha256(data).hexdigest()[:12]}")

    def _sweep(self) -> None:
        """Delete what a killed process left half written; no other process writes while we hold the lock."""
        if not self._is_swept:
            for path in self.path.parent.glob(".*identity-map*.tmp"):
                path.unlink(missing_ok=True)
            self._is_swept = True


# ---- pieces ---------------------------------------------------------------------------------------------------------


def _is_same(one: FileSnapshot | None, other: FileSnapshot | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.sha256 == other.sha256


def _is_young(reading: Reading) -> bool:
    if reading.signature is None:
        return True
    return abs(time.time() - reading.signature.mtime_ns / 1e9) < BROKEN_FOR_S


def _read_or_none(path: Path) -> FileSnapshot | None:
    try:
        return read_once(path)
    except FileError:  # as good as none
        return None


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # somebody deletes it meanwhile
        return 0


def _holds(path: Path, data: bytes) -> bool:
    there = _read_or_none(path)
    return there is not None and there.data == data


def _link(path: Path, other: Path) -> bool:
    """Give a file a second name; False where it is gone, or the file system has no hard links."""
    try:
        other.hardlink_to(path)
    except OSError:
        return False
    return True
