"""The files of a data directory that tell of a person. Everything here blocks, except where a lock is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from gateway.domain.sessions import LOCAL, OPERATOR_ACCOUNT
from gateway.errors import FileError
from gateway.files.atomic import follow, read_once, sync_directory, write_atomically
from gateway.files.chat_state import ChatState
from gateway.files.home import DATABASE_NAME
from gateway.files.locks import FileLock
from gateway.memory.atomic_document import AtomicDocument
from gateway.memory.journal import Key
from gateway.memory.paths import ARCHIVE_NAME, LOCK_NAME
from gateway.ops.backup.contents import REPLACED_PREFIX, UNPACKED_PREFIX
from gateway.traces.trace_store import TRACES_NAME

EXPORTS_NAME = "exports"
_LOCK_TIMEOUT_S = 30.0
_MOST_BYTES = 1 << 20  # of a file of a channel that is a list of conversations


async def take_lines_out(home: Path, document: str, lines: Collection[str], pending: Collection[Key]) -> int:
    """Take a person's lines out of a shared memory file, its archive and its earlier versions; how many.

    Args:
        document: the file's path in the data directory.
        lines: without blanks around.
        pending: updates that are not settled yet, whose evidence must stay.

    Raises:
        FileError: a file cannot be read, locked or written.
    """
    path = await asyncio.to_thread(_where, home, document)
    if path is None:
        return 0
    async with FileLock((home / document).parent / LOCK_NAME, _LOCK_TIMEOUT_S):
        return await asyncio.to_thread(_take_lines_out, path, lines, pending)


def _where(home: Path, document: str) -> Path | None:
    path = follow(home / document, str(home.resolve()))
    return path if path.parent.is_dir() else None


def _take_lines_out(path: Path, lines: Collection[str], pending: Collection[Key]) -> int:
    count = sum(_filter(each, lines) for each in (path, path.with_name(ARCHIVE_NAME)))
    AtomicDocument(path, lambda _step: None).tidy(pending)
    for evidence in path.parent.glob(f".{path.name}.*.applied"):  # its name is what counts; it is a link to a version
        evidence.unlink()
        evidence.touch(mode=0o600)
    path.with_name(f".{path.name}.previous").unlink(missing_ok=True)
    sync_directory(path.parent)
    return count


def _filter(path: Path, lines: Collection[str]) -> int:
    found = read_once(path)
    if found is None:
        return 0
    before = found.data.decode("utf-8", "surrogateescape").split("\n")
    after: list[str] = []
    count, is_gap = 0, False
    for line in before:
        if line.strip() in lines:
            count, is_gap = count + 1, not any(after[-1:])
        elif line.strip() or not is_gap:  # of the blank lines around, one is enough
            after.append(line)
            is_gap = False
    if count:
        text = "\n".join(after).rstrip("\n")
        write_atomically(path, f"{text}\n".encode("utf-8", "surrogateescape") if text else b"")
    return count


def remove_user(home: Path, user_id: str) -> None:
    """Remove what lies in `users/` and among the exports; a link goes with what it leads to, if that is ours.

    Raises:
        FileError: something cannot be removed.
    """
    for path in (home / "users" / user_id, home / EXPORTS_NAME / user_id):
        try:
            if path.is_symlink():
                real = path.resolve()
                path.unlink()
                if real.is_relative_to(home.resolve()):
                    shutil.rmtree(real, ignore_errors=False)
            elif path.exists():
                shutil.rmtree(path)
            if path.parent.is_dir():
                sync_directory(path.parent)
        except OSError as error:
            raise FileError(f"{error.filename or path} could not be removed: {error.strerror}") from error


def remove_traces_of_chats(home: Path, accounts: Collection[str], conversations: Iterable[tuple[str, str]]) -> None:
    """Remove what was typed in a terminal, and the person's conversations from lists of them.

    Args:
        accounts: of the person, as in the identity map; the terminal is the operator's.
        conversations: direct chats of the person, each with its channel.
    """
    if f"{LOCAL}:{OPERATOR_ACCOUNT}" in accounts:
        ChatState(home, "").erase()
    gone: dict[str, set[str]] = {}
    for channel, conversation in conversations:
        gone.setdefault(channel, set()).add(conversation)
    for channel, names in gone.items():
        directory = home / "channels" / channel
        for path in directory.iterdir() if directory.is_dir() else ():
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES:
                with contextlib.suppress(UnicodeDecodeError):
                    _filter(path, names)


def copies_of_databases(home: Path) -> Sequence[Path]:
    """The copies that were made before an upgrade."""
    return [path for name in (DATABASE_NAME, TRACES_NAME) for path in sorted(home.glob(f"{name}.before-*"))]


def copies_in(home: Path) -> Sequence[Path]:
    """Copies of the data of all people: from before an upgrade, put aside by a restore, or left by a killed one.

    Not while a restore is running: the directory that it unpacks into is one of them.
    """
    of_restores = sorted(path for prefix in (REPLACED_PREFIX, UNPACKED_PREFIX) for path in home.glob(f"{prefix}*"))
    return [*copies_of_databases(home), *(path for path in of_restores if path.is_dir() and not path.is_symlink())]


def remove_copies(home: Path) -> Sequence[str]:
    """Delete them all, durably; their names.

    Raises:
        FileError: one of them cannot be deleted.
    """
    found = copies_in(home)
    try:
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        sync_directory(home)
    except OSError as error:
        raise FileError(f"{error.filename} could not be deleted: {error.strerror}") from error
    return [path.name for path in found]
