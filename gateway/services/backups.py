"""Backups, as they are made and found in the browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gateway.errors import EthosError
from gateway.files.atomic import make_private_directory
from gateway.files.last_backup import last_backup
from gateway.ops.backup.contents import NAME
from gateway.ops.backup.making import make_backup
from gateway.ops.backup.taking import TakenBackup
from gateway.services.caller import Caller, NotFound, Refused

DIRECTORY_NAME = "backups"
KEPT = 10
"""So many of the newest stay there."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFile:
    """A backup in the directory of those that were made in the browser."""

    path: Path
    made_at: datetime
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backups:
    """How it stands with them.

    Attributes:
        directory: of those that are made in the browser.
        files: in it, the newest first.
        last_at: when the newest of all was made, wherever it lies; None where there is no word of one.
        last_file: its path.
        running_since: one is being made.
        taken: the last one that was made since the start.
        error: why the last one that was begun since the start came to nothing.
    """

    directory: Path
    files: Sequence[BackupFile]
    last_at: datetime | None
    last_file: str | None
    running_since: datetime | None
    taken: TakenBackup | None
    error: str | None


class BackupService:
    """The operator's: a backup holds everybody's words."""

    def __init__(self, home: Path, url: str | None) -> None:
        """`url` is that of the database that many workers share; None where `home` has it."""
        self._home = home
        self._url = url
        self._running: asyncio.Task[TakenBackup] | None = None
        self._since = datetime.now(UTC)
        self._taken: TakenBackup | None = None
        self._error: str | None = None

    async def show(self, caller: Caller) -> Backups:
        """Which there are, and whether one is being made.

        Raises:
            NotAllowed: it is the operator's only.
        """
        caller.refuse_keys()
        directory = self._home / DIRECTORY_NAME
        last = await asyncio.to_thread(last_backup, self._home)
        return Backups(
            directory=directory,
            files=await asyncio.to_thread(_found, directory),
            last_at=None if last is None else last.at,
            last_file=None if last is None else last.file,
            running_since=None if self._running is None else self._since,
            taken=self._taken,
            error=self._error,
        )

    def begin(self, caller: Caller, ended: Callable[[], object]) -> None:
        """Begin to make one, of what is there now, without secrets; `ended` is called when it is there, or failed.

        Raises:
            NotAllowed: it is the operator's only.
            Refused: one is being made.
        """
        caller.refuse_keys()
        if self._running is not None:
            raise Refused("a backup is being made already; wait until it is done")
        self._since, self._error = datetime.now(UTC), None
        self._running = asyncio.create_task(self._make(), name="backup")
        self._running.add_done_callback(lambda task: self._end(task, ended))

    async def find(self, caller: Caller, name: str) -> BackupFile:
        """One that was made in the browser.

        Raises:
            NotAllowed: it is the operator's only.
            NotFound: there is none of that name.
        """
        for one in (await self.show(caller)).files:
            if one.path.name == name:
                return one
        raise NotFound(f"there is no backup {name[:80]!r} any more; the {KEPT} newest are kept")

    async def _make(self) -> TakenBackup:
        directory = self._home / DIRECTORY_NAME
        await asyncio.to_thread(make_private_directory, directory)
        return await make_backup(self._home, directory, url=self._url, keep=KEPT)

    def _end(self, task: asyncio.Task[TakenBackup], ended: Callable[[], object]) -> None:
        self._running = None
        if task.cancelled():
            return
        match task.exception():
            case None:
                self._taken = task.result()
            case EthosError() | OSError() as error:
                self._error = str(error)
            case error:
                self._error = "A fault of the gateway; its log says more."
                _log.error("backup_fault", exc_info=error)
        ended()


def _found(directory: Path) -> list[BackupFile]:
    found = []
    for path in sorted(directory.glob("ethos-*.tar.gz"), reverse=True) if directory.is_dir() else ():
        if NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            status = path.stat()
            made_at = datetime.fromtimestamp(status.st_mtime, UTC)
            found.append(BackupFile(path=path, made_at=made_at, size_bytes=status.st_size))
    return found
