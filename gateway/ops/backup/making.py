"""A backup as people ask for it: of one machine's directory, or of the database of many workers as such a directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.files.last_backup import note_backup
from gateway.ops.backup.taking import TakenBackup, take_backup


async def make_backup(
    home: Path, wanted: Path, *, url: str | None, with_secrets: bool = False, keep: int | None = None
) -> TakenBackup:
    """Take a backup, and leave word of it; arguments and errors are those of `take_backup`.

    Args:
        url: of the database that many workers share; None where the data directory has it.
    """
    copy = None
    if url is not None:
        from gateway.ops.moving import copy_of_server  # noqa: PLC0415 (only where there is a server)
        from gateway.ops.privacy.home import has_memory_files  # noqa: PLC0415 (as above)

        copy = copy_of_server(url, lambda _table, _rows: None, has_memory=has_memory_files(home))
    taken = await take_backup(home, wanted, with_secrets=with_secrets, keep=keep, copy=copy)
    await asyncio.to_thread(note_backup, home, taken.path)
    return taken
