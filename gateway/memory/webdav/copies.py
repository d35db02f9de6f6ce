"""What a server had of each document when it was asked last: the base of every merge. Survives a restart."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from gateway.files.atomic import make_private_directory, read_once, sync_directory, write_atomically
from gateway.memory.markdown_erasing import filter_lines
from gateway.memory.rules import version
from gateway.memory.webdav.remote_file import RemoteFile

COPIES_NAME = ".copies"
_LOCK = ".lock"
_UPLOAD = ".upload"


class Copies:
    """One small file for each document: its ETag in the first line, then the bytes; and one for an upload of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, key: str) -> Path:
        """Where the copy of a document is noted."""
        return self._directory / quote(key, safe="")

    def lock_path(self, key: str) -> Path:
        """The lock of who exchanges it with the server."""
        make_private_directory(self._directory)
        return self._directory / f"{quote(key, safe='')}{_LOCK}"

    def read(self, key: str) -> RemoteFile:
        """What was noted; a copy of nothing where nothing was."""
        found = read_once(self.path(key))
        if found is None:
            return RemoteFile()
        head, _, data = found.data.partition(b"\n")
        return RemoteFile(data, json.loads(head)["etag"])

    def write(self, key: str, copy: RemoteFile) -> None:
        """Note it; what was being uploaded counts no more."""
        make_private_directory(self._directory)
        write_atomically(self.path(key), json.dumps({"etag": copy.etag}).encode() + b"\n" + copy.data)
        self.end_upload(key)

    def begin_upload(self, key: str, base: RemoteFile, data: bytes) -> None:
        """Note what goes to the server in place of `base`; of an upload that breaks off, a part may be there."""
        make_private_directory(self._directory)
        write_atomically(self._upload_path(key), version(base.data).encode() + b"\n" + data)

    def upload(self, key: str, base: RemoteFile) -> bytes | None:
        """What was being uploaded in place of `base`, if the end of that is not known."""
        found = read_once(self._upload_path(key))
        head, _, data = (b"" if found is None else found.data).partition(b"\n")
        return data if head == version(base.data).encode() else None

    def end_upload(self, key: str) -> None:
        """Forget it: what the server has is known."""
        self._upload_path(key).unlink(missing_ok=True)

    def keys(self) -> list[str]:
        """The documents of which something was noted."""
        return sorted({unquote(path.name.removesuffix(_LOCK).removesuffix(_UPLOAD)) for path in self._files()})

    def remove(self, user_id: str) -> None:
        """Forget what was noted of a person's own documents, with their locks."""
        for path in self._files():
            if unquote(path.name).startswith(f"users/{user_id}/"):
                path.unlink(missing_ok=True)
        if self._directory.is_dir():
            sync_directory(self._directory)

    def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        """Forget a person, where the server is not asked any more."""
        for user_id in user_ids:
            self.remove(user_id)
        for key, added in lines.items():
            filter_lines(self.path(key), added)
            filter_lines(self._upload_path(key), added)

    def _upload_path(self, key: str) -> Path:
        return self._directory / f"{quote(key, safe='')}{_UPLOAD}"

    def _files(self) -> Iterator[Path]:
        yield from self._directory.iterdir() if self._directory.is_dir() else ()
