"""What the documents said when they were read last, so that a turn need not read again what is still the same."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MOST_DOCUMENTS = 2_000
MOST_CHARS = 8_000_000
# A file that changed a moment ago may change again within the same tick of the clock that stamps it.
QUIET_S = 0.1

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class CachedText:
    """The text as a prompt shows it, None where it is blank or absent; `stamp` is None where there was no file."""

    stamp: Stamp | None
    text: str | None


class ReadCache:
    """Texts by the key of their document; `look` costs one system call and is for the event loop, `read` for a thread.

    A document behind a link is read every time: the link may lead elsewhere tomorrow, and the file would not tell.
    """

    def __init__(self, root: Path) -> None:
        """Keep nothing yet; `root` is the data directory, links resolved."""
        self._root = os.fspath(root)
        self._kept: OrderedDict[str, CachedText] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()

    def look(self, key: str) -> CachedText | None:
        """What was kept, if the file is the one that was read; None where it must be read."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        try:
            return kept if kept.stamp == self._stamp(key) else None
        except OSError:  # the read that follows explains it
            return None

    def read(self, key: str, real: Path, read: Callable[[], str | None]) -> str | None:
        """Read the document, and keep what it said.

        Args:
            key: its path below the data directory.
            real: the file itself, links resolved.
            read: reads it; what that raises is raised.
        """
        began_s = time.time()
        before = self._stamp(key)
        text = read()
        if os.fspath(real) == os.path.join(self._root, key) and before == self._stamp(key):  # noqa: PTH118 (no Path)
            is_quiet = before is None or max(before[:2]) / 1e9 < began_s - QUIET_S
            self._keep(key, CachedText(before, text) if is_quiet else None)
        return text

    def _stamp(self, key: str) -> Stamp | None:
        """What changes whenever the file does; the change time cannot be set back by anybody."""
        try:
            status = os.lstat(f"{self._root}{os.sep}{key}")
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    def _keep(self, key: str, kept: CachedText | None) -> None:
        with self._lock:
            self._chars -= _chars(self._kept.pop(key, None))
            if kept is not None:
                self._kept[key] = kept
                self._chars += _chars(kept)
            while len(self._kept) > MOST_DOCUMENTS or self._chars > MOST_CHARS:
                _, oldest = self._kept.popitem(last=False)
                self._chars -= _chars(oldest)


def _chars(kept: CachedText | None) -> int:
    return 0 if kept is None or kept.text is None else len(kept.text)
