"""Files on their way in or out: on disk, in a place that no backup takes, and removed after use.

What waits for a person's yes stays there, or in the database where many workers share that.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from gateway.config import LiveConfig
from gateway.files.atomic import make_private_directory
from gateway.services.caller import Refused, ServiceError
from gateway.store.blobs import PIECE_BYTES, SqlBlobs

KEPT_S = 3_600.0
"""So long a file waits for a yes."""
MOST_WAITING = 8
MOST_AT_WORK = 2
_PLACE = ("run", "transfers")
_NAME = re.compile(r"[^\w .()\[\]+-]")
_MOST_NAME_CHARS = 60  # of four bytes each, at the most
_AT_ONCE_BYTES = 1 << 20
_UPLOAD = "upload/"
_ANYTHING = "application/octet-stream"


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


class Waiting(Protocol):
    """Where uploads wait for a yes, for an hour; of too many, the one that has waited longest goes."""

    async def keep(self, transfer: Transfer) -> str:
        """Let one wait; the ticket with which it is taken again. A secret that cannot be guessed.

        Raises:
            StoreUnavailable: it cannot be kept now.
        """

    async def take(self, ticket: str) -> Transfer | None:
        """The upload, which waits no more; None where it is not there any more. Of many who ask, one gets it."""


class WaitingHere(Waiting):
    """They wait where they are, for the one process that received them."""

    def __init__(self) -> None:
        self._waiting: dict[str, Transfer] = {}

    async def keep(self, transfer: Transfer) -> str:
        """See `Waiting.keep`."""
        self._waiting[transfer.token] = transfer
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, transfer.token)
        while len(self._waiting) > MOST_WAITING:
            self._forget(next(iter(self._waiting)))
        return transfer.token

    async def take(self, ticket: str) -> Transfer | None:
        """See `Waiting.take`."""
        return self._waiting.pop(ticket, None)

    def _forget(self, token: str) -> None:
        found = self._waiting.pop(token, None)
        if found is not None:
            found.drop()


class WaitingInStore(Waiting):
    """They wait in the database, and any worker takes them out of it."""

    def __init__(self, blobs: SqlBlobs, place: Path) -> None:
        """`place` is for the files that are taken."""
        self._blobs = blobs
        self._place = place

    async def keep(self, transfer: Transfer) -> str:
        """See `Waiting.keep`."""
        ticket = f"{transfer.token}/{transfer.path.name}"
        try:
            pieces = _pieces_of(transfer.path)
            await self._blobs.put(f"{_UPLOAD}{ticket}", pieces, media_type=_ANYTHING, keep_ms=int(KEPT_S * 1000))
        finally:
            await asyncio.to_thread(transfer.drop)
        for late in (await self._blobs.ids(_UPLOAD))[MOST_WAITING:]:
            await self._blobs.remove(late)
        return ticket

    async def take(self, ticket: str) -> Transfer | None:
        """See `Waiting.take`."""
        blob = await self._blobs.claim(f"{_UPLOAD}{ticket}")
        if blob is None:
            return None
        transfer = await _new_transfer(self._place, ticket.partition("/")[2])
        with await asyncio.to_thread(transfer.path.open, "xb") as file:
            async for piece in self._blobs.read(blob.id):
                await asyncio.to_thread(file.write, piece)
        await self._blobs.remove(blob.id)
        return transfer


class Transfers:
    """All of them; one for a gateway."""

    def __init__(self, home: Path, config: LiveConfig, blobs: SqlBlobs | None = None) -> None:
        """What a gateway that was killed left here is removed; blocks.

        Args:
            home: the data directory, which is ours alone.
            config: says how large an upload may be.
            blobs: where uploads wait for any worker; None: here, where there is one.
        """
        self._place = home.joinpath(*_PLACE)
        self._config = config
        self._waiting = WaitingHere() if blobs is None else WaitingInStore(blobs, self._place)
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
        return await _new_transfer(self._place, name)

    async def keep(self, transfer: Transfer) -> str:
        """See `Waiting.keep`."""
        return await self._waiting.keep(transfer)

    async def take(self, ticket: str) -> Transfer:
        """The upload that waits, which waits no more; the caller drops it.

        Raises:
            Refused: it is not there any more.
        """
        found = await self._waiting.take(ticket)
        if found is None:
            raise Refused("the file is not here any more: it waits an hour for a yes. Choose it once more")
        return found


async def _new_transfer(place: Path, name: str) -> Transfer:
    token = secrets.token_hex(16)
    await asyncio.to_thread(make_private_directory, place / token)
    return Transfer(token, place / token / _safe_name(name))


async def _pieces_of(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


def _safe_name(name: str) -> str:
    """A file's name without anything that means something to a path; its ending is kept."""
    last = re.split(r"[/\\]", name)[-1]
    safe = _NAME.sub("_", last)[-_MOST_NAME_CHARS:]
    return safe.strip(". ") or "upload"
