"""Documents that were the same here and on the server a moment ago, so that a turn need ask for no more than that."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gateway.memory.webdav.remote_file import RemoteFile

_MOST = 2_000
# A file that changed a moment ago may change again within the same tick of the clock that stamps it.
_QUIET_S = 0.1

Stamp = tuple[int, ...]
"""What changes whenever a file does; empty where there is none."""


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: Stamp
    etag: str | None
    sha256: bytes


class KnownDocuments:
    """By key: the file's stamp, and what the server had then. Costs one system call to ask."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of the files."""
        self._root = os.fspath(root)
        self._known: dict[str, _Known] = {}

    def stamp(self, key: str) -> Stamp | None:
        """Of the file now; None where it is too young to tell."""
        try:
            status = os.stat(f"{self._root}{os.sep}{key}")  # noqa: PTH116 (no Path is made for it)
        except FileNotFoundError:
            return ()
        if max(status.st_mtime_ns, status.st_ctime_ns) / 1e9 > time.time() - _QUIET_S:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev

    def etag(self, key: str) -> str | None:
        """What to ask the server for: the version that it had."""
        return self._known[key].etag

    def has(self, key: str) -> bool:
        """Whether the document was the same on both sides, and the file has not changed since."""
        known = self._known.get(key)
        return known is not None and known.stamp == self.stamp(key)

    def is_same(self, key: str, there: RemoteFile | None) -> bool:
        """Whether the server still has what it had; None is its own word for it."""
        known = self._known.get(key)
        return known is not None and (there is None or (there.etag, _digest(there)) == (known.etag, known.sha256))

    def note(self, key: str, stamp: Stamp | None, there: RemoteFile) -> None:
        """Both sides have this, and the file had this stamp before it was read."""
        self._known.pop(key, None)
        if stamp is not None:
            while len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            self._known[key] = _Known(stamp, there.etag, _digest(there))


def _digest(file: RemoteFile) -> bytes:
    return sha256(file.data).digest()
