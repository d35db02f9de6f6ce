"""The files of a data directory that tell of a person. Everything here blocks, except where a lock is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from gateway.config.memory_kinds import DEFAULT_KIND
from gateway.domain.sessions import LOCAL, OPERATOR_ACCOUNT
from gateway.errors import FileError
from gateway.files.atomic import sync_directory
from gateway.files.chat_state import ChatState
from gateway.files.home import DATABASE_NAME, EXPORTS_NAME
from gateway.memory.journal import MemoryJournal
from gateway.memory.markdown_erasing import filter_lines, lines_taken_out, remove_directory, remove_user
from gateway.memory.webdav.copies import COPIES_NAME, Copies
from gateway.ops.backup.contents import REPLACED_PREFIX, UNPACKED_PREFIX
from gateway.sandbox.workspace import Workspaces
from gateway.traces.trace_store import TRACES_NAME

_LOCK_TIMEOUT_S = 30.0
_MOST_BYTES = 1 << 20  # of a file of a channel that is a list of conversations


async def erase_earlier_memories(
    home: Path, kind: str, user_ids: Collection[str], lines: Mapping[str, Collection[str]], journal: MemoryJournal
) -> None:
    """Take a person out of the Markdown files of memories that were chosen earlier, and are not asked any more.

    Args:
        home: the data directory.
        kind: of the memory that is chosen now, which is asked.
        user_ids: of the person.
        lines: of the person, by shared document.
        journal: knows what is not settled yet.

    Raises:
        FileError: a file cannot be read, locked, written or removed.
    """
    now = home if kind == DEFAULT_KIND else home / "memory" / kind
    for root in [home, *await asyncio.to_thread(lambda: sorted((home / "memory").glob("*/")))]:
        if root == now:
            continue
        for document, added in lines.items():
            pending = await journal.pending(document)
            async with lines_taken_out(root, document, added, pending=pending, lock_timeout_s=_LOCK_TIMEOUT_S):
                pass  # no turn writes there
        for user_id in user_ids:
            await asyncio.to_thread(remove_user, root, user_id)
        await asyncio.to_thread(Copies(root / COPIES_NAME).erase, user_ids, lines)


def remove_exports(home: Path, user_id: str) -> None:
    """Remove a user's exports; raises as `remove_directory`."""
    remove_directory(home, home / EXPORTS_NAME / user_id)


def remove_workspaces(workspaces: Workspaces, user_ids: Collection[str]) -> None:
    """Remove the files of users, where all workers share them; raises as `remove_directory`."""
    workspaces.check_place()
    for user_id in user_ids:
        remove_user(workspaces.place, user_id)


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
                    filter_lines(path, names)


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
