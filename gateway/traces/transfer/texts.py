"""Bytes as text, whatever program wrote them."""

from __future__ import annotations

import codecs

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
WINDOWS = "Windows-1252"
"""What spreadsheets write in Europe and America when they do not write Unicode."""


def decoded(data: bytes) -> tuple[str, str | None]:
    """The text; and the encoding, where it had to be guessed."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace"), None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace"), WINDOWS
