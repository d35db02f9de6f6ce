"""Files that are made to be taken once."""

from __future__ import annotations

from contextlib import AsyncExitStack

from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from gateway.desk.trace_transfer import Export


class Download(FileResponse):
    """A file that is gone when it was sent, or could not be."""

    def __init__(self, export: Export, held: AsyncExitStack) -> None:
        """`held` is let go of at the end."""
        super().__init__(
            export.path,
            media_type=export.media_type,
            filename=export.name,
            headers={"x-ethos-traces": str(export.traces)},
        )
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with self._held:
            await super().__call__(scope, receive, send)
