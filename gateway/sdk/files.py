"""`client.files`: memory and personalities as files, to be edited elsewhere and merged."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.sdk.models.files import FilesRevision, PutTextFile, TextFile, TextFileInfo
from gateway.sdk.models.schema import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation


class Files(Namespace[S]):
    """Memory and personalities as files, by their paths as on one machine.

    Scopes: `memory:read` and `personalities:read`, `memory:write` and `personalities:write`. Not for the key of one
    person.
    """

    @listing
    def list(self, *, limit: int | None = None) -> AsyncIterator[TextFileInfo]:
        """Every file that exists, without its text."""
        return self.sender.items(Request("GET", "/files", Page[TextFileInfo]), limit)

    @operation
    async def get(self, path: str) -> TextFile:
        """One, with its text. `NotFoundError` where there is none."""
        return await self.sender.get("/files/text", TextFile, {"path": path})

    @operation
    async def put(
        self, path: str, content: str, *, base: str | None = None, idempotency_key: str | None = None
    ) -> TextFile:
        """Merge an edited text with what the file is now; the file as it is then.

        Args:
            base: the text before the edit; None where there was no such file.

        Raises:
            VersionConflictError: both sides changed the same lines, and nothing was written; has both texts.
            RequestTooLargeError: it is larger than a document may be.
            UnprocessableEntityError: there can be no such file, or it would not be valid.
            NotFoundError: there is no such person or personality.
        """
        body = PutTextFile(path=path, content=content, base=base)
        return await self.sender.write("PUT", "/files", TextFile, idempotency_key, body)

    @operation
    async def revision(self, *, seen: str | None = None, wait: int = 0) -> str:
        """What all files are now, in one word.

        Args:
            seen: wait until it is another one than this.
            wait: so many seconds, at most 10.
        """
        return (await self.sender.get("/files/revision", FilesRevision, {"seen": seen, "wait": wait})).revision
