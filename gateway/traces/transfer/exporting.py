"""Exports: complete under their name, or not there."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from functools import partial
from pathlib import Path

from gateway.errors import StoreUnavailable, TraceError
from gateway.store.engine import Connection, snapshot
from gateway.store.payloads import to_ms
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import Bounds, Everything
from gateway.traces.transfer.detection import ExportFormat
from gateway.traces.transfer.import_records import Progress
from gateway.traces.transfer.json_format import write_json
from gateway.traces.transfer.markdown_format import write_notes
from gateway.traces.transfer.snapshot import Snapshot, snapshot_of
from gateway.traces.transfer.sqlite_format import copy_all, write_sqlite

_UNFINISHED = ".unfinished"


def ignore_progress(_done: int, _total: int) -> None:
    """Ignore the progress."""


async def export_traces(
    trace_store: TraceStore,
    target: Path,
    *,
    form: ExportFormat = "json",
    bounds: Bounds = Everything(),  # noqa: B008 (a frozen value)
    with_embeddings: bool = False,
    with_conversations: bool = True,
    progress: Progress = ignore_progress,
) -> int:
    """Write what is within the bounds, as it is at this moment; how many traces.

    Args:
        target: a file, for `markdown` and `obsidian` a directory; must not be there yet.
        with_embeddings: for `json`, `markdown` and `obsidian`; `sqlite` always has them.
        with_conversations: whether imported conversations and their messages are written too; `sqlite` of the whole
            trace store always has them.
        progress: called from another thread, in traces.

    Raises:
        TraceError: the target is there already, or its directory is not.
        StoreUnavailable: the trace store cannot be read, or the disk is full.
        OSError: the target cannot be written.
    """
    is_given_up = threading.Event()

    def watched(done: int, total: int) -> None:
        """A thread cannot be cancelled; it looks now and then whether anybody still wants what it does."""
        if is_given_up.is_set():
            raise StoreUnavailable(f"{target} was given up. Nothing was exported.")
        progress(done, total)

    write = partial(
        _write,
        form=form,
        exported_at_ms=to_ms(trace_store.now()),
        with_embeddings=with_embeddings,
        with_conversations=with_conversations,
        progress=watched,
    )
    try:
        if isinstance(trace_store.place, Path):
            from_file = partial(_write_file, trace_store.place, write=write, bounds=bounds, form=form, progress=watched)
            return await asyncio.to_thread(_completely, from_file, target)
        shared = partial(_write_shared, write=write, bounds=bounds, target=target)
        return await trace_store.database.read(shared)
    except asyncio.CancelledError:
        is_given_up.set()
        raise


def _completely(write: partial[int], target: Path) -> int:
    if target.exists() or target.is_symlink():
        raise TraceError(f"{target} is there already. Choose another name, or move it away.")
    if not target.absolute().parent.is_dir():
        raise TraceError(f"{target.absolute().parent} is no directory. Make it first.")
    unfinished = target.with_name(target.name + _UNFINISHED)
    _remove(unfinished)
    try:
        written = write(unfinished)
        os.replace(unfinished, target)  # noqa: PTH105 (a directory may take the place of nothing only)
    except sqlite3.Error as error:
        _remove(unfinished)
        raise StoreUnavailable(f"{target} cannot be written: {error}. Nothing was exported.") from error
    except BaseException:
        _remove(unfinished)
        raise
    return written


def _write_file(
    trace_store: Path, target: Path, *, write: partial[int], bounds: Bounds, form: ExportFormat, progress: Progress
) -> int:
    if form == "sqlite" and isinstance(bounds, Everything):
        target.touch(mode=0o600)
        return copy_all(trace_store, target, progress=progress)
    with snapshot_of(trace_store, bounds) as shown:
        return write(shown, target)


def _write_shared(connection: Connection, *, write: partial[int], bounds: Bounds, target: Path) -> int:
    with snapshot(connection):
        return _completely(partial(write, Snapshot(connection, bounds)), target)


def _write(
    shown: Snapshot,
    target: Path,
    *,
    form: ExportFormat,
    exported_at_ms: int,
    with_embeddings: bool,
    with_conversations: bool,
    progress: Progress,
) -> int:
    if form == "sqlite":
        return write_sqlite(shown, target, progress=progress)
    details = {"with_embeddings": with_embeddings, "with_conversations": with_conversations}
    if form == "json":
        opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8", newline="\n") as file:
            written = write_json(shown, file, exported_at_ms=exported_at_ms, progress=progress, **details)
            file.flush()
            os.fsync(file.fileno())
        return written
    target.mkdir(mode=0o700)
    return write_notes(
        shown,
        target,
        is_obsidian=form == "obsidian",
        exported_at_ms=exported_at_ms,
        progress=progress,
        **details,
    )


def _remove(path: Path) -> None:
    """Whatever an export that was broken off left there."""
    if path.is_dir():
        shutil.rmtree(path)
    for name in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + name).unlink(missing_ok=True)
