"""A file as a server has it; without the client for servers, which not everybody needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as a server has it, or had it; by default there is none.

    Attributes:
        etag: with its quotation marks; None where there is no file, and from a server that has no ETags.
    """

    data: bytes = b""
    etag: str | None = None
