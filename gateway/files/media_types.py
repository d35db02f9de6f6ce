"""What a file is by its name, the same on every machine."""

from __future__ import annotations

import mimetypes
from pathlib import PurePosixPath

# The standard library takes these from the machine's `mime.types`, which a small image has not.
_BESIDE = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "text/plain",
    ".log": "text/plain",
}


def media_type_of(filename: str) -> str | None:
    """The media type that a name stands for; None where that is not known, or the file is packed."""
    media_type, packing = mimetypes.guess_type(filename)
    if packing is not None:
        return None
    return media_type or _BESIDE.get(PurePosixPath(filename).suffix.lower())
