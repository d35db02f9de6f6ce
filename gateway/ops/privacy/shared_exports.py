"""Files that people are sent where many workers share a database: one makes it, and who has the channel sends it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from gateway.config import LiveConfig
from gateway.errors import FileError, StoreError, TransientSendError
from gateway.files.atomic import make_private_directory
from gateway.files.home import EXPORTS_NAME
from gateway.messages import Attachment, OutboundMessage
from gateway.store.blobs import PIECE_BYTES, SqlBlobs

MEDIA_TYPE = "application/zip"
ANY_TYPE = "application/octet-stream"
_LONGEST_DAYS = 36_500
_MS_PER_DAY = 86_400_000
_AFTER_FAULT_S = 5.0


class SharedExports:
    """Files in the database, by their place `exports/USER/NAME`, which is the `ref` of the attachment, too."""

    def __init__(self, blobs: SqlBlobs, place: Path, config: LiveConfig) -> None:
        """`place` is for files that are being sent; nothing else lies there."""
        self._blobs = blobs
        self._place = place
        self._config = config

    async def keep(self, name: str, path: Path) -> None:
        """Put the file at `path` into the database, and remove it there; raises as `SqlBlobs.put`."""
        try:
            await self._blobs.put(name, _pieces_of(path), media_type=MEDIA_TYPE, keep_ms=self._keep_ms)
        finally:
            await asyncio.to_thread(path.unlink)

    async def keep_data(self, user_id: str, name: str, data: bytes) -> str:
        """Keep a file for a user under a name that no other content has; the `ref` of its attachment.

        Raises:
            FileError: the database cannot take it now.
        """
        ref = f"{EXPORTS_NAME}/{user_id}/{name}"
        try:
            if not await self._blobs.keep_on(ref, keep_ms=self._keep_ms):
                await self._blobs.put(ref, _once(data), media_type=ANY_TYPE, keep_ms=self._keep_ms)
        except StoreError as error:
            raise FileError(f"the file could not be kept: {error}") from error
        return ref

    @property
    def _keep_ms(self) -> int:
        days = self._config.current.retention.exports_days
        return round((_LONGEST_DAYS if days is None else days) * _MS_PER_DAY)

    @asynccontextmanager
    async def fetched(self, message: OutboundMessage) -> AsyncGenerator[OutboundMessage]:
        """The message with its exports as files of this machine, for as long as it takes to send it.

        One that has expired is not there, as a file that was deleted.

        Raises:
            TransientSendError: the database cannot be read now.
        """
        if not any(each.ref.startswith(f"{EXPORTS_NAME}/") for each in message.attachments):
            yield message
            return
        await asyncio.to_thread(make_private_directory, self._place)
        directory = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._place))
        try:
            yield replace(
                message,
                attachments=tuple(
                    [await self._here(each, directory / str(i)) for i, each in enumerate(message.attachments)]
                ),
            )
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _here(self, attachment: Attachment, directory: Path) -> Attachment:
        """Two may have one `ref`: the same call that was asked for twice."""
        if not attachment.ref.startswith(f"{EXPORTS_NAME}/"):
            return attachment
        path = directory / Path(attachment.ref).name
        try:
            await asyncio.to_thread(make_private_directory, directory)
            if await self._blobs.info(attachment.ref) is not None:
                with await asyncio.to_thread(path.open, "xb") as file:
                    async for piece in self._blobs.read(attachment.ref):
                        await asyncio.to_thread(file.write, piece)
        except (StoreError, OSError) as error:
            raise TransientSendError(f"the file cannot be read now: {error}", retry_after_s=_AFTER_FAULT_S) from error
        return replace(attachment, ref=str(path))


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _pieces_of(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece
