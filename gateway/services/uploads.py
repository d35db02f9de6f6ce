"""Files on their way in or out: on disk, in a place that no backup takes, and removed after use."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gateway.config import LiveConfig
from gateway.files.atomic import make_private_directory
from gateway.services.caller import Refused, ServiceError

KEPT_S = 3_600.0
"""So long a file waits for a yes."""
MOST_WAITING = 8
MOST_AT_WORK = 2
_PLACE = ("run", "transfers")
_NAME = re.compile(r"[^\w .()\[\]+-]")
_MOST_NAME_CHARS = 60  # of four bytes each, at the most
_AT_ONCE_BYTES = 1 << 20


class TooLarge(ServiceError):
    """The file is larger than the configuration allows."""


@dataclass(slots=True)
class Transfer:
    """A directory of one file's own, and the file in it.

    Attributes:
        token: a secret that cannot be guessed.
        path: of the file; what comes in keeps its name, for detection and for errors.
    """

    token: str
    path: Path

    def drop(self) -> None:
        """Remove it; blocks. Idempotent."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


class Incoming:
    """Takes the bytes of one upload, whose memory stays flat."""

    def __init__(self, transfer: Transfer, max_bytes: int | None) -> None:
        """`max_bytes` is None for the room of the disk."""
        self.transfer = transfer
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._is_whole = False
        self._waiting = bytearray()
        self._file: IO[bytes] = transfer.path.open("xb")

    async def write(self, chunk: bytes) -> None:
        """Take some more.

        Raises:
            TooLarge: it is more than is allowed; what came is gone.
            Refused: the disk is full.
        """
        self._size_bytes += len(chunk)
        if self._max_bytes is not None and self._size_bytes > self._max_bytes:
            await self._give_up()
            raise TooLarge(
                f"the file is larger than {self._max_bytes / (1 << 20):,.0f} MiB; raise web.max_upload_bytes in "
                "config.yaml, or import it with `ethos traces import`, which has no bound"
            )
        self._waiting += chunk
        if len(self._waiting) >= _AT_ONCE_BYTES:
            await self._flush()

    async def finish(self) -> Transfer:
        """It is whole.

        Raises:
            Refused: the disk is full.
        """
        await self._flush()
        await asyncio.to_thread(self._file.close)
        self._is_whole = True
        return self.transfer

    async def close(self) -> None:
        """Forget what came, unless it is whole. Idempotent."""
        if not self._is_whole:
            await self._give_up()

    async def _give_up(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        await asyncio.to_thread(self.transfer.drop)

    async def _flush(self) -> None:
        data, self._waiting = bytes(self._waiting), bytearray()
        try:
            await asyncio.to_thread(self._file.write, data)
        except OSError as error:
            await self._give_up()
            raise Refused(
                f"the file cannot be kept: {error.strerror}. Make room on the disk, then try again"
            ) from error


class Transfers:
    """All of them; one for a gateway."""

    def __init__(self, home: Path, config: LiveConfig) -> None:
        """What a gateway that was killed left here is removed; blocks.

        Args:
            home: the data directory, which is ours alone.
            config: says how large an upload may be.
        """
        self._place = home.joinpath(*_PLACE)
        self._config = config
        self._waiting: dict[str, Transfer] = {}
        self._at_work = 0
        shutil.rmtree(self._place, ignore_errors=True)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Only so many imports and exports run at once.

        Raises:
            Refused: that many do.
        """
        if self._at_work >= MOST_AT_WORK:
            raise Refused("other imports or exports are at work; try again when they are done")
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1

    async def incoming(self, name: str, *, is_bounded: bool = True) -> Incoming:
        """A place for an upload; `name` is what its sender calls the file."""
        max_bytes = self._config.current.web.max_upload_bytes if is_bounded else None
        return Incoming(await self.outgoing(name), max_bytes)

    async def outgoing(self, name: str) -> Transfer:
        """A place for a file that is made here."""
        token = secrets.token_hex(16)
        await asyncio.to_thread(make_private_directory, self._place / token)
        return Transfer(token, self._place / token / _safe_name(name))

    def keep(self, transfer: Transfer) -> None:
        """Let an upload wait for a yes, for an hour; of too many, the one that has waited longest goes."""
        self._waiting[transfer.token] = transfer
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, transfer.token)
        while len(self._waiting) > MOST_WAITING:
            self._forget(next(iter(self._waiting)))

    def take(self, token: str) -> Transfer:
        """The upload that waits, which waits no more; the caller drops it.

        Raises:
            Refused: it is not there any more.
        """
        found = self._waiting.pop(token, None)
        if found is None:
            raise Refused("the file is not here any more: it waits an hour for a yes. Choose it once more")
        return found

    def _forget(self, token: str) -> None:
        found = self._waiting.pop(token, None)
        if found is not None:
            found.drop()


def _safe_name(name: str) -> str:
    """A file's name without anything that means something to a path; its ending is kept."""
    last = re.split(r"[/\\]", name)[-1]
    safe = _NAME.sub("_", last)[-_MOST_NAME_CHARS:]
    return safe.strip(". ") or "upload"
