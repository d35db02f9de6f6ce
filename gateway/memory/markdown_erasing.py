"""A person in Markdown files: what they say of one, and how that is taken out."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.errors import FileError
from gateway.files.atomic import follow, is_id, read_once, sync_directory, write_atomically
from gateway.files.locks import FileLock
from gateway.memory import rules
from gateway.memory.atomic_document import AtomicDocument
from gateway.memory.journal import Key
from gateway.memory.paths import ARCHIVE_NAME, LOCK_NAME, is_document


@asynccontextmanager
async def lines_taken_out(
    root: Path, document: str, lines: Collection[str], *, pending: Collection[Key], lock_timeout_s: float
) -> AsyncGenerator[None]:
    """Take lines out of a file that others read, too, its archive and its earlier versions.

    No turn writes the file while the block runs: a turn that finds it changed would look into its history, and bring
    back what the person who changed it seems not to have read.

    Args:
        root: the directory of all memory files.
        document: the file's key; nothing is done for one that no document can have.
        lines: without blanks around.
        pending: updates that are not settled yet, whose evidence must stay.
        lock_timeout_s: how long another process may hold the file's lock.

    Raises:
        FileError: a file cannot be read, locked or written.
    """
    path = await asyncio.to_thread(_place, root, document) if is_document(document) else None
    if path is None:
        yield
        return
    async with FileLock((root / document).parent / LOCK_NAME, lock_timeout_s):
        await asyncio.to_thread(_take_lines_out, path, lines, pending)
        yield


def _place(root: Path, document: str) -> Path | None:
    path = follow(root / document, str(root.resolve()))
    return path if path.parent.is_dir() else None


def _take_lines_out(path: Path, lines: Collection[str], pending: Collection[Key]) -> None:
    for each in (path, path.with_name(ARCHIVE_NAME)):
        filter_lines(each, lines)
    AtomicDocument(path).tidy(pending)
    for evidence in path.parent.glob(f".{path.name}.*.applied"):  # its name is what counts; it is a link to a version
        evidence.unlink()
        evidence.touch(mode=0o600)
    path.with_name(f".{path.name}.previous").unlink(missing_ok=True)
    sync_directory(path.parent)


def filter_lines(path: Path, lines: Collection[str]) -> None:
    """Rewrite a file without these lines; see `rules.without_lines`."""
    found = read_once(path)
    if found is None:
        return
    after = rules.encode(rules.without_lines(rules.decode(found.data), lines))
    if after != found.data:
        write_atomically(path, after)


def remove_user(root: Path, user_id: str) -> None:
    """Remove a person's own directory."""
    if is_id(user_id):
        remove_directory(root, root / "users" / user_id)


def remove_directory(root: Path, path: Path) -> None:
    """Remove a directory, durably; a link goes with what it leads to, if that is below `root`.

    Raises:
        FileError: something cannot be removed.
    """
    try:
        if path.is_symlink():
            real = path.resolve()
            path.unlink()
            if real.is_relative_to(root.resolve()):
                shutil.rmtree(real, ignore_errors=False)
        elif path.exists():
            shutil.rmtree(path)
        if path.parent.is_dir():
            sync_directory(path.parent)
    except OSError as error:
        raise FileError(f"{error.filename or path} could not be removed: {error.strerror}") from error


def visible_files(root: Path, user_id: str) -> Iterator[tuple[str, bytes]]:
    """A person's own files by name, `u_1/USER.md`; not the hidden ones next to a document."""
    directory = root / "users" / user_id
    for path in sorted(directory.rglob("*")) if is_id(user_id) and directory.is_dir() else ():
        parts = path.relative_to(directory).parts
        if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in parts):
            yield "/".join((user_id, *parts)), path.read_bytes()
