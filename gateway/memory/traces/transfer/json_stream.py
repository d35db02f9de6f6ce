"""JSON that may be larger than memory, value by value. The only module that touches ijson."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import ijson  # type: ignore[import-untyped]  # has no types of its own

from gateway.memory.traces.transfer.wire import plain

_REASON_CHARS = 200


class BrokenJson(Exception):
    """The file breaks off, or is no JSON from here on; the text says why."""


def values_at(file: IO[bytes], prefix: str) -> Iterator[Any]:
    """The values at a prefix: `item` for those of a list, `traces.item`, or nothing for whole values on end.

    Raises:
        BrokenJson: after all values before the fault.
    """
    try:
        for value in ijson.items(file, prefix, multiple_values=True):
            yield plain(value)
    except (ijson.JSONError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenJson(" ".join(str(error).split())[:_REASON_CHARS]) from error
