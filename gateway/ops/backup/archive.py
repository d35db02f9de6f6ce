"""The file of a backup: a tar.gz that begins with a list of what is in it, each with size and SHA-256.

::

    ethos-backup.json       the list; always first
    home/config.yaml        the data directory, files only
    home/ethos.sqlite       a whole database, without companions

Any tar program can read it. Ours trusts nothing in it: a name that leads out, a file that is not listed, one that is
missing, or one byte that differs is an error before anything is put in place.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gateway.errors import BackupError
from gateway.files.atomic import make_private_directory, sync_directory

FORMAT = 1
LIST_NAME = "ethos-backup.json"
_ROOT = "home"
_MAX_LIST_BYTES = 256 * 1024 * 1024
_CHUNK_BYTES = 1 << 20
# Memory is text and packs well at any level; more than 6 costs much time for little.
_LEVEL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file in a backup; `sha256` in hex, `mtime_ns` since 1970."""

    size_bytes: int
    sha256: str
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The list of a backup.

    Attributes:
        created_at: ISO 8601, UTC.
        version: of the program that made it.
        schema_version: of the database; None where there was none.
        files: by the path below the data directory, with slashes.
        links: symbolic links, each to where it leads.
        secrets: the names that were left out because they hold secrets.
    """

    created_at: str
    version: str
    schema_version: int | None
    files: Mapping[str, ListedFile]
    links: Mapping[str, str]
    secrets: tuple[str, ...]

    def encode(self) -> bytes:
        """The contents as JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, indent=1).encode() + b"\n"


def list_files(directory: Path) -> dict[str, ListedFile]:
    """Every file below a directory, read to its end."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                status = os.fstat(file.fileno())
            name = str(PurePosixPath(path.relative_to(directory)))
            found[name] = ListedFile(size_bytes=status.st_size, sha256=digest, mtime_ns=status.st_mtime_ns)
    return found


def write_archive(path: Path, directory: Path, contents: Contents) -> None:
    """Write the file, durably; its name is durable once the directory is synced.

    Raises:
        OSError: the disk is full, or the name is taken.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=_LEVEL) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            data = contents.encode()
            tar.addfile(_member(LIST_NAME, size_bytes=len(data), mtime_ns=0), io.BytesIO(data))
            for name, listed in contents.files.items():
                member = _member(f"{_ROOT}/{name}", size_bytes=listed.size_bytes, mtime_ns=listed.mtime_ns)
                with (directory / name).open("rb") as source:
                    tar.addfile(member, source)
        file.flush()
        os.fsync(file.fileno())


def _member(name: str, *, size_bytes: int, mtime_ns: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size_bytes, 0o600, mtime_ns // 1_000_000_000
    return member


def read_archive(path: Path, directory: Path | None = None) -> Contents:
    """Read a backup to its end, and compare every byte with the list.

    Args:
        directory: an empty one, into which all is put, durably; None: it is only compared.

    Raises:
        BackupError: it is no backup, is damaged, or was made by a newer program; the directory then holds a part of it.
        OSError: the disk is full.
    """
    try:
        with gzip.open(path) as packed, tarfile.open(fileobj=packed, mode="r:") as tar:
            contents = _read_list(tar, path)
            left = dict(contents.files)
            while (member := tar.next()) is not None:
                name = member.name.removeprefix(f"{_ROOT}/")
                listed = left.pop(name, None)
                source = tar.extractfile(member) if member.isreg() else None
                if listed is None or source is None or member.name == name:
                    raise BackupError(f"{path} holds {member.name!r}, which is not in its list. It was tampered with.")
                _copy_out(source, listed, None if directory is None else directory / name, f"{path}: {name}")
            while packed.read(_CHUNK_BYTES):  # at its end stands gzip's own checksum, over all of it
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BackupError(f"{path} is damaged, or not a backup: {error}. Use another one.") from error
    if left:
        raise BackupError(f"{path} is damaged: {next(iter(left))!r} is missing. Use another one.")
    if directory is not None:
        _make_links(directory, contents.links)
        for below in [
            directory,
            *(found for found in directory.rglob("*") if found.is_dir() and not found.is_symlink()),
        ]:
            sync_directory(below)
    return contents


def _copy_out(source: IO[bytes], listed: ListedFile, target: Path | None, where: str) -> None:
    digest, size_bytes = hashlib.sha256(), 0
    descriptor = None
    if target is not None:
        make_private_directory(target.parent)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
            if size_bytes > listed.size_bytes:
                break
            view = memoryview(chunk)
            while descriptor is not None and view:
                view = view[os.write(descriptor, view) :]
        if size_bytes != listed.size_bytes or digest.hexdigest() != listed.sha256:
            raise BackupError(f"{where} is damaged: it is not what was put in. Use another backup.")
        if descriptor is not None:
            os.utime(descriptor, ns=(listed.mtime_ns, listed.mtime_ns))
            os.fsync(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _make_links(directory: Path, links: Mapping[str, str]) -> None:
    """Make them all, and only then look where each leads: one may lie on the way of another."""
    root = os.path.realpath(directory)
    for name, goal in links.items():
        place = directory / name
        make_private_directory(place.parent)
        place.symlink_to(goal)
    for name, goal in links.items():
        place = directory / name
        if Path(goal).is_absolute() or not Path(os.path.realpath(place)).is_relative_to(root):
            raise BackupError(f"the link {name!r} leads out of the data directory. The backup was tampered with.")


# ---- the list -------------------------------------------------------------------------------------------------------


def _read_list(tar: tarfile.TarFile, path: Path) -> Contents:
    member = tar.next()
    source = None if member is None or member.name != LIST_NAME else tar.extractfile(member)
    if member is None or source is None or member.size > _MAX_LIST_BYTES:
        raise BackupError(f"{path} is no backup of this program: it does not begin with {LIST_NAME}.")
    try:
        value = json.loads(source.read(member.size))
        number = value["format"]
        if number != FORMAT:
            raise BackupError(f"{path} has the format {number}, this program knows {FORMAT}. Install a newer program.")
        return _contents(value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{path} is damaged: its list cannot be read ({error!r}). Use another one.") from error


def _contents(value: Mapping[str, Any]) -> Contents:
    schema_version = value["schema_version"]
    contents = Contents(
        created_at=str(value["created_at"]),
        version=str(value["version"]),
        schema_version=None if schema_version is None else int(schema_version),
        files={
            str(name): ListedFile(
                size_bytes=int(item["size_bytes"]), sha256=str(item["sha256"]), mtime_ns=int(item["mtime_ns"])
            )
            for name, item in value["files"].items()
        },
        links={str(name): str(goal) for name, goal in value["links"].items()},
        secrets=tuple(str(name) for name in value["secrets"]),
    )
    for name in (*contents.files, *contents.links, *contents.secrets):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or str(path) != name or name in ("", ".") or "\0" in name:
            raise BackupError(f"the list names {name!r}, which is no place in a data directory. It was tampered with.")
    return contents
