"""Files that are made for one answer and are gone with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from starlette.responses import FileResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.services.personal import ExportFile
from gateway.services.trace_transfer import Export

ZIP = "application/zip"
CHUNK_BYTES = 256 * 1024


def download(export: ExportFile) -> StreamingResponse:
    """The file as an attachment; its name has no character that a header could not have."""
    return StreamingResponse(
        _chunks(export),
        media_type=ZIP,
        headers={
            "content-disposition": f'attachment; filename="{export.name}"',
            "content-length": str(export.size_bytes),
            "cache-control": "no-store",
        },
    )


async def _chunks(export: ExportFile) -> AsyncGenerator[bytes]:
    with export.file as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk


class Download(FileResponse):
    """A file with a name of its own, which is gone when it was sent, or could not be."""

    def __init__(self, export: Export, held: AsyncExitStack) -> None:
        """`held` is let go of at the end."""
        super().__init__(
            export.path,
            media_type=export.media_type,
            filename=export.name,
            headers={"x-ethos-traces": str(export.traces), "cache-control": "no-store"},
        )
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with self._held:
            await super().__call__(scope, receive, send)
