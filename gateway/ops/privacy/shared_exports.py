"""Exports where many workers share a database: one writes the file, and the one that has the channel sends it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from gateway.errors import StoreError, TransientSendError
from gateway.files.atomic import make_private_directory
from gateway.files.home import EXPORTS_NAME
from gateway.messages import Attachment, OutboundMessage
from gateway.store.blobs import PIECE_BYTES, SqlBlobs

MEDIA_TYPE = "application/zip"
_AFTER_FAULT_S = 5.0


class SharedExports:
    """Files in the database, by their place `exports/USER/NAME`, which is the `ref` of the attachment, too."""

    def __init__(self, blobs: SqlBlobs, place: Path) -> None:
        """`place` is for files that are being sent; nothing else lies there."""
        self._blobs = blobs
        self._place = place

    async def keep(self, name: str, path: Path, *, keep_ms: int) -> None:
        """Put the file at `path` into the database, and remove it there; raises as `SqlBlobs.put`."""
        try:
            await self._blobs.put(name, _pieces_of(path), media_type=MEDIA_TYPE, keep_ms=keep_ms)
        finally:
            await asyncio.to_thread(path.unlink)

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
                message, attachments=tuple([await self._here(each, directory) for each in message.attachments])
            )
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _here(self, attachment: Attachment, directory: Path) -> Attachment:
        if not attachment.ref.startswith(f"{EXPORTS_NAME}/"):
            return attachment
        path = directory / Path(attachment.ref).name
        try:
            if await self._blobs.info(attachment.ref) is not None:
                with await asyncio.to_thread(path.open, "xb") as file:
                    async for piece in self._blobs.read(attachment.ref):
                        await asyncio.to_thread(file.write, piece)
        except (StoreError, OSError) as error:
            raise TransientSendError(f"the export cannot be read now: {error}", retry_after_s=_AFTER_FAULT_S) from error
        return replace(attachment, ref=str(path))


async def _pieces_of(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece
