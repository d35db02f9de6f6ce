"""Files that are made for one answer and are gone with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.responses import StreamingResponse

from gateway.desk.personal import ExportFile

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
