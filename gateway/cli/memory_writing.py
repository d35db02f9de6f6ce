"""Changing the memory by hand: taking a change back, and an editor on a copy."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from gateway.cli.data import opened_memory, opened_store, operator_config
from gateway.cli.errors import EXIT_ERROR, EXIT_TEMPORARY
from gateway.cli.memory_reading import describe
from gateway.cli.named import Wanted, find_memory, scope_of
from gateway.cli.output import print_diff, print_json, say
from gateway.config import Config
from gateway.config_file import data_directory
from gateway.errors import EthosError, FileError, MemoryConflict
from gateway.files import make_private_directory, write_new
from gateway.memory.history import NoSuchEntry, difference
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.protocols import MemoryDocument, MemoryScope, MemoryStoreName

EXIT_CONFLICT = EXIT_TEMPORARY  # nothing was written; look at what changed, and do it again
_EDITORS = ("sensible-editor", "nano", "vi")


async def undo_entry(entry_id: int, *, as_json: bool) -> int:
    """Bring back the bytes from before a change; returns the exit code.

    Raises:
        NoSuchEntry: there is none of that id, or it cannot be undone.
    """
    home = data_directory()
    config = operator_config(home)
    async with opened_store(home) as store:
        entry = None if store is None else await store.journal.entry(entry_id)
    if entry is None or not entry.ask.document:
        raise NoSuchEntry(f"there is no change {entry_id} that could be undone; `ethos memory log` lists them")
    scope, kind = scope_of(entry.ask.document)
    async with opened_memory(home, config) as memory:
        try:
            document = await memory.undo(scope, entry_id)
        except MemoryConflict as conflict:
            _tell_conflict(entry.ask.document, conflict, as_json=as_json)
            return EXIT_CONFLICT
    if as_json:
        described = describe(scope, kind, document, max_bytes=config.memory.max_file_bytes)
        print_json({"outcome": "undone", **described})
    else:
        say(f"{document.path} is as it was before change {entry_id}. `ethos memory log` has a way back from that, too.")
    return 0


def _tell_conflict(document: str, conflict: MemoryConflict, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "outcome": "conflict",
                "document": document,
                "current": conflict.current,
                "current_version": conflict.current_version,
                "proposed": conflict.proposed,
            }
        )
        return
    say(f"{document} has changed since; nothing was written. From what is there now (-) to what would be (+):\n")
    print_diff(difference(conflict.current, conflict.proposed))
    say("\nTake the later changes back first, the newest before the others, or put it right with `ethos memory edit`.")


# ---- the editor -----------------------------------------------------------------------------------------------------


async def edit_memory(wanted: Wanted, *, start: Path | None, as_json: bool) -> int:
    """Let a person edit a copy, and write that if the memory is still as it was; returns the exit code.

    Raises:
        FileError: there is no editor, or it failed, or what it left is no text; where something was typed, it is kept.
    """
    home = data_directory()
    config = operator_config(home)
    scope, stores = await find_memory(home, config, wanted)
    store = stores[0]
    async with opened_memory(home, config, is_written=True) as memory:
        before = await memory.read(scope, store)
        copy = _copy(home, before, start)
        try:
            text = _edited(copy, before.content)
        except FileError:
            if _is_as_given(copy, before.content if start is None else None):
                _remove(copy)
            raise
        if text == before.content:
            _remove(copy)
            return _tell(scope, store, before, config, outcome="unchanged", as_json=as_json)
        return await _write(memory, scope, store, before, copy, text, config=config, as_json=as_json)


async def _write(
    memory: MarkdownFileMemoryProvider,
    scope: MemoryScope,
    store: MemoryStoreName,
    before: MemoryDocument,
    copy: Path,
    text: str,
    *,
    config: Config,
    as_json: bool,
) -> int:
    try:
        document = await memory.write(scope, store, text, before.version)
    except MemoryConflict as conflict:
        _tell_edit_conflict(before, conflict, copy, as_json=as_json)
        return EXIT_CONFLICT
    except EthosError:
        sys.stderr.write(f"ethos: nothing was written. Your text is kept in {copy}\n")
        raise
    _remove(copy)
    return _tell(scope, store, document, config, outcome="written", as_json=as_json)
