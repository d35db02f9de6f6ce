"""Files that are sent: those that are made for one answer are gone with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.services.caller import Caller
from gateway.services.personal import ExportFile
from gateway.services.sessions import SessionService
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


async def session_file(sessions: SessionService, caller: Caller, session: str, *, is_json: bool) -> Response:
    """The whole session, as JSON for programs or as Markdown for people."""
    if is_json:
        transcript = await sessions.export(caller, session)
        text, media_type, ending = transcript.model_dump_json(by_alias=True, indent=2), "application/json", "json"
    else:
        text, media_type, ending = await sessions.markdown(caller, session), "text/markdown", "md"
    headers = {"content-disposition": f'attachment; filename="{session}.{ending}"'}
    return Response(text.encode("utf-8", "replace"), media_type=media_type, headers=headers)


async def traces_file(exporting: AbstractAsyncContextManager[Export]) -> Response:
    """The file of an export, which is held until it was sent, or could not be."""
    async with AsyncExitStack() as stack:
        return _Held(await stack.enter_async_context(exporting), stack.pop_all())


class _Held(FileResponse):
    """Lets go of the file at the end."""

    def __init__(self, export: Export, held: AsyncExitStack) -> None:
        super().__init__(
            export.path,
            media_type=export.media_type,
            filename=export.name,
            headers={"x-ethos-traces": str(export.traces), "cache-control": "no-store"},
        )
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)
