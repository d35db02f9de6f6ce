"""Skills as ZIP files: packed from a directory, and taken apart in memory, so that nothing unknown is written.

Everything here blocks. A name in a ZIP is a claim: sizes are counted as they come, whatever it says of them.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from gateway.errors import FileError
from gateway.skills.folder import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_NAME_BYTES,
    NO_PARTS,
    SKILL_NAMES,
    read_files,
)

MAX_ZIP_BYTES = 10 << 20
_ENTRIES_AT_MOST = 4 * MAX_FILES
_LEFT_OUT = NO_PARTS | {"__MACOSX"}
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)


class BadArchive(Exception):
    """It is not taken; the text says why, and what to do."""


def packed(files: Mapping[str, bytes], directory: str) -> bytes:
    """The files of a skill as a ZIP with one directory; the same files make the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(f"{directory}/{name}", _FIRST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return out.getvalue()


def unpacked(data: bytes, fallback: str = "skill") -> tuple[str, Mapping[str, bytes]]:
    """What the skill's directory is called, and its files.

    Args:
        fallback: the name where `SKILL.md` is not in a directory.

    Raises:
        BadArchive: it is no ZIP, holds no skill or several, or something that would lead out or is too large.
    """
    if len(data) > MAX_ZIP_BYTES:
        raise BadArchive(f"the ZIP has {len(data)} bytes, and {MAX_ZIP_BYTES >> 20} MB are the most")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _of_skill(_files(archive), fallback)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OverflowError, NotImplementedError) as error:
        raise BadArchive(f"this is no whole ZIP file ({error}); pack the skill again") from error


def _files(archive: zipfile.ZipFile) -> Mapping[str, bytes]:
    entries = archive.infolist()
    if len(entries) > _ENTRIES_AT_MOST:
        raise BadArchive(f"the ZIP has {len(entries)} entries, and a skill has {MAX_FILES} files at most")
    found: dict[str, bytes] = {}
    left_bytes = MAX_BYTES
    for entry in entries:
        parts = _parts(entry)
        if entry.is_dir() or _LEFT_OUT & set(parts):
            continue
        name = "/".join(parts)
        if name in found:
            raise BadArchive(f"the ZIP holds {name!r} twice; pack the skill again")
        found[name] = _data(archive, entry, min(left_bytes, MAX_FILE_BYTES))
        left_bytes -= len(found[name])
    directories = {str(parent) for name in found for parent in PurePosixPath(name).parents}
    clash = next((name for name in found if name in directories), None)
    if clash is not None:
        raise BadArchive(f"the ZIP has {clash!r} as a file and as a directory; pack the skill again")
    return found


def _parts(entry: zipfile.ZipInfo) -> Sequence[str]:
    name = entry.filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise BadArchive(f"the ZIP holds a link, {name!r}; put the file itself in")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BadArchive(f"the ZIP holds {name!r}, which is neither a file nor a directory; take it out")
    if entry.flag_bits & 1:
        raise BadArchive("the ZIP is encrypted; pack the skill without a password")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    is_absolute = name.startswith(("/", "\\")) or (len(name) > 1 and name[1] == ":")
    if is_absolute or ".." in parts or "\\" in name:
        raise BadArchive(f"the ZIP holds {name!r}, which leads out of it; pack the skill again, from its own directory")
    is_good = all(part.isprintable() and len(part.encode("utf-8", "replace")) <= MAX_NAME_BYTES for part in parts)
    if not parts or not is_good or len(parts) > MAX_DEPTH + 1:
        raise BadArchive(f"the ZIP holds a file with the name {name[:MAX_NAME_BYTES]!r}; rename it")
    return parts


def _data(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most_bytes: int) -> bytes:
    if entry.compress_type not in _METHODS:
        raise BadArchive(f"{entry.filename!r} is packed in a way that is not read here; use plain ZIP")
    with archive.open(entry) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise BadArchive(
            f"{entry.filename!r} makes the skill too large: {MAX_FILE_BYTES >> 20} MB for a file and "
            f"{MAX_BYTES >> 20} MB for all of them are the most, unpacked"
        )
    return data


def _of_skill(files: Mapping[str, bytes], fallback: str) -> tuple[str, Mapping[str, bytes]]:
    texts = [PurePosixPath(name) for name in files if PurePosixPath(name).name in SKILL_NAMES]
    roots = sorted({path.parent for path in texts}, key=lambda path: len(path.parts))
    if not roots:
        raise BadArchive("there is no SKILL.md in the ZIP; pack the directory of a skill")
    root = roots[0]
    if len(roots) > 1 and len(roots[1].parts) == len(root.parts):
        raise BadArchive("the ZIP holds several skills; add each in a ZIP of its own")
    outside = next((name for name in files if root.parts and not PurePosixPath(name).is_relative_to(root)), None)
    if outside is not None:
        raise BadArchive(f"the ZIP holds {outside!r} beside the skill {root}; pack the directory of the skill alone")
    if len(files) > MAX_FILES:
        raise BadArchive(f"the skill has {len(files)} files, and {MAX_FILES} are the most")
    inside = {PurePosixPath(name).relative_to(root): data for name, data in files.items()}
    whole = {*inside, *(parent for path in inside for parent in path.parents if parent.parts)}
    if len(whole) > MAX_FILES or any(len(path.parts) > MAX_DEPTH for path in inside):  # as `folder` counts them
        raise BadArchive(
            f"the skill has more than {MAX_FILES} files and directories, or is deeper than {MAX_DEPTH}; take some out"
        )
    return root.name or fallback, dict(sorted((str(path), data) for path, data in inside.items()))


def given(path: Path) -> tuple[str, Mapping[str, bytes]]:
    """A skill that a person names: a directory, or a ZIP; as `unpacked`.

    Raises:
        BadArchive: as `unpacked`.
        FileError: it cannot be read.
    """
    if path.is_dir():
        whole = path.resolve()
        return whole.name, read_files(whole)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_ZIP_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    return unpacked(data, path.stem)
