"""What a server had of each document when it was asked last: the base of every merge. Survives a restart."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from gateway.files.atomic import make_private_directory, read_once, write_atomically
from gateway.memory.webdav.server import RemoteFile


class Copies:
    """One small file for each document: its ETag in the first line, then the bytes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, key: str) -> Path:
        """Where the copy of a document is noted."""
        return self._directory / quote(key, safe="")

    def lock_path(self, key: str) -> Path:
        """The lock of who exchanges it with the server."""
        make_private_directory(self._directory)
        return self._directory / f"{quote(key, safe='')}.lock"

    def read(self, key: str) -> RemoteFile:
        """What was noted; a copy of nothing where nothing was."""
        found = read_once(self.path(key))
        if found is None:
            return RemoteFile()
        head, _, data = found.data.partition(b"\n")
        return RemoteFile(data, json.loads(head)["etag"])

    def write(self, key: str, copy: RemoteFile) -> None:
        """Note it."""
        make_private_directory(self._directory)
        write_atomically(self.path(key), json.dumps({"etag": copy.etag}).encode() + b"\n" + copy.data)
