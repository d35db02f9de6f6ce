"""JSON that may be larger than memory, value by value, within bounds. The only module that touches ijson.

`ijson.items` keeps the path of every level and the whole of every value, so that half a kilobyte of brackets in a zip
takes 21 GB. Here only its plain events are used: depth and size are counted before anything is built of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

import ijson  # type: ignore[import-untyped]  # has no types of its own

from gateway.traces.transfer.serialization import plain

DEEPEST = 100
LARGEST_VALUE_BYTES = 64 * 1024 * 1024
"""Of one record: the characters of its texts, and `_EVENT_BYTES` for each name and value in it."""
TOO_LARGE = f"it is larger than {LARGEST_VALUE_BYTES // 2**20} MB"
LONGEST_TEXT_BYTES = 16 * 1024 * 1024
_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"
_EVENT_BYTES = 100
_PIECE_BYTES = 64 * 1024
_REASON_CHARS = 200
_TOO_MANY_DIGITS = b"0" * 1_000
_DIGITS = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_IN_LIST = 2  # levels around what stands in a list of the document
_OPENS = frozenset({"start_map", "start_array"})
_CLOSES = frozenset({"end_map", "end_array"})


class BrokenJson(Exception):
    """The file breaks off, or is no JSON that is read from here on; the text says why."""


class TooLarge:
    """Stands for a value that was passed over, because it is larger than `LARGEST_VALUE_BYTES`."""


def values_at(file: IO[bytes], prefix: str, *, lists: dict[str, bool] | None = None) -> Iterator[Any]:
    """The values at a prefix: `item` for those of a list, `traces.item`, or nothing for whole values on end.

    Args:
        lists: gets the names of the lists in the document, and whether they have something in them.

    Raises:
        BrokenJson: after all values before the fault.
    """
    place = _Place(prefix, {} if lists is None else lists)
    value: _Value | None = None
    for events in _events(file):
        for event, given in events:
            if value is None and place.is_wanted(event):
                value = _Value(place.depth)
            if value is None:
                place.move(event, given)
            elif value.take(event, given):
                yield value.made()
                value = None


class _Place:
    """Where in a document an event is, and whether a wanted value begins there."""

    def __init__(self, prefix: str, lists: dict[str, bool]) -> None:
        self._section = prefix.removesuffix("item").removesuffix(".")
        self._around = ["start_map", "start_array"] if self._section else ["start_array"] if prefix else []
        self._lists = lists
        self._open: list[str] = []
        self._name: str | None = None

    def is_wanted(self, event: str) -> bool:
        """Whether a wanted value begins with this event."""
        is_value = self._open == self._around and event not in _CLOSES and event != "map_key"
        return is_value and (not self._section or self._name == self._section)

    @property
    def depth(self) -> int:
        """How many levels are around it."""
        return len(self._open)

    def move(self, event: str, given: Any) -> None:
        """Go past an event outside of the wanted values.

        Raises:
            BrokenJson: it is nested too deep.
        """
        if event in _CLOSES:
            self._open.pop()
            return
        depth = len(self._open)
        if event == "map_key":
            if depth == 1:
                self._name = given
            return
        if self._name is not None and depth == 1 and event == "start_array":
            self._lists.setdefault(self._name, False)
        elif self._name is not None and depth == _IN_LIST and self._open[1] == "start_array":
            self._lists[self._name] = True
        if event in _OPENS:
            if depth == DEEPEST:
                raise BrokenJson(_TOO_DEEP)
            self._open.append(event)


class _Value:
    """A value that is built of its events, as long as it is not too large."""

    def __init__(self, depth: int) -> None:
        self._builder = ijson.ObjectBuilder()
        self._size_bytes = 0
        self._depth = self._begins_at = depth

    def take(self, event: str, given: Any) -> bool:
        """One more event of it; whether that was its last.

        Raises:
            BrokenJson: it is nested too deep.
        """
        self._size_bytes += _EVENT_BYTES + (len(given) if isinstance(given, str) else 0)
        if self._size_bytes <= LARGEST_VALUE_BYTES:
            self._builder.event(event, given)
        else:
            self._builder = None
        if event in _OPENS:
            if self._depth == DEEPEST:
                raise BrokenJson(_TOO_DEEP)
            self._depth += 1
        elif event in _CLOSES:
            self._depth -= 1
        return self._depth == self._begins_at and event != "map_key"

    def made(self) -> Any:
        return TooLarge() if self._builder is None else plain(self._builder.value)


def _events(file: IO[bytes]) -> Iterator[Sequence[tuple[str, Any]]]:
    """What stands in the file, a piece at a time.

    Raises:
        BrokenJson: after all events before the fault.
    """
    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, multiple_values=True)
    numbers = _LongNumbers()
    fault: Exception | None = None
    silent_bytes = 0
    while fault is None:
        piece = file.read(_PIECE_BYTES)
        numbers.check(piece)
        try:
            if piece:
                parser.send(piece)
            else:
                parser.close()
        except (ijson.JSONError, ValueError) as error:  # ValueError: no UTF-8
            fault = error
        silent_bytes = 0 if events else silent_bytes + len(piece)
        if events:
            yield events
            del events[:]
        if silent_bytes > LONGEST_TEXT_BYTES:
            raise BrokenJson(f"a text or a gap in it is longer than {LONGEST_TEXT_BYTES // 2**20} MB")
        if not piece and fault is None:
            return
    raise BrokenJson(" ".join(str(fault).split())[:_REASON_CHARS]) from fault


class _LongNumbers:
    """Looks for integers of more digits than Python reads: at one of them ijson's C part (3.6.0) ends the process.

    Linear in what is read: the quotes are counted to know where texts are, and only where so many digits stand
    together the texts are taken out.
    """

    def __init__(self) -> None:
        self._is_in_text = False  # at the start of the tail
        self._tail = b""

    def check(self, piece: bytes) -> None:
        """Look at the next piece of the file.

        Raises:
            BrokenJson: there is one.
        """
        read = self._tail + piece
        if _TOO_MANY_DIGITS in read.translate(_DIGITS):
            outside = _TEXT.sub(b" ", b'"' + read if self._is_in_text else read)
            if _TOO_MANY_DIGITS in outside.translate(_DIGITS):
                raise BrokenJson(f"a number has more than {len(_TOO_MANY_DIGITS):,} digits")
        done = read[: -len(_TOO_MANY_DIGITS)]
        if (len(done) - len(done.rstrip(b"\\"))) % 2:  # an escape is not cut in two
            done = done[:-1]
        self._is_in_text ^= done.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') % 2 == 1
        self._tail = read[len(done) :]
