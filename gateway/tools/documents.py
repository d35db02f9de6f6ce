"""PDFs as text, and pictures as models take them: read in a child program that is shut in, started where needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gateway.domain.images import ModelImage

if TYPE_CHECKING:
    from gateway.sandbox.tiers import Tier
    from gateway.tools.web.reading import PageReader

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = "application/pdf"
MAX_FILE_BYTES = 20 << 20
"""Of a picture or a PDF that is given to the child."""
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", PICTURES[0]),
    (b"\xff\xd8\xff", PICTURES[1]),
    (b"GIF8", PICTURES[2]),
    (b"%PDF-", PDF),
)


def kind_of(data: bytes) -> str | None:
    """The media type of a picture or a PDF, by its bytes; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return PICTURES[3]
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), None)


class Documents:
    """Reads what is no plain text; each method raises ToolError, which says why and what to do."""

    def __init__(self, tier: Callable[[], Awaitable[Tier | None]]) -> None:
        """`tier` finds where the child runs; it is asked with the first document."""
        self._tier = tier
        self._reader: PageReader | None = None

    async def text_of_pdf(self, data: bytes) -> str:
        """Page by page, each below its number."""
        return str((await (await self._loaded()).pdf(data)).get("text") or "")

    async def picture(self, data: bytes) -> ModelImage:
        """At most 1 568 pixels high and wide, and 5 MB; as it is where it is no larger."""
        return await (await self._loaded()).picture(data)

    async def picture_if_it_can(self, data: bytes) -> ModelImage | None:
        """The same; None where no picture is read by this gateway."""
        from gateway.tools.web.reading import NotHere  # noqa: PLC0415 (with the first document)

        try:
            return await self.picture(data)
        except NotHere:
            return None

    async def _loaded(self) -> PageReader:
        if self._reader is None:
            from gateway.tools.web.reading import PageReader  # noqa: PLC0415 (with the first document)

            self._reader = PageReader(tier=await self._tier())
        return self._reader
