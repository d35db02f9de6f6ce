"""The difference between two versions of a text: whole lines, in bytes, and reversible."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delta:
    """`removed` gave way to `inserted` after `prefix_bytes` common bytes and before `suffix_bytes` common ones.

    Both ends lie at the start of a line, so `inserted` holds every new line as a whole.
    """

    prefix_bytes: int
    suffix_bytes: int
    removed: bytes
    inserted: bytes

    @classmethod
    def between(cls, before: bytes, after: bytes) -> Delta:
        """What turns `before` into `after`."""
        prefix = _common_prefix(before, after)
        prefix = before.rfind(b"\n", 0, prefix) + 1
        most = min(len(before), len(after)) - prefix
        suffix = _common_suffix(before, after, most)
        # A line starts where a newline stands in front, in both versions.
        while suffix and not (_starts_line(before, len(before) - suffix) and _starts_line(after, len(after) - suffix)):
            newline = before.find(b"\n", len(before) - suffix)
            suffix = len(before) - newline - 1 if newline >= 0 else 0
        return cls(prefix, suffix, before[prefix : len(before) - suffix], after[prefix : len(after) - suffix])

    def apply(self, before: bytes) -> bytes:
        """The later version, from the earlier one."""
        return before[: self.prefix_bytes] + self.inserted + before[len(before) - self.suffix_bytes :]

    def revert(self, after: bytes) -> bytes:
        """The earlier version, from the later one."""
        return after[: self.prefix_bytes] + self.removed + after[len(after) - self.suffix_bytes :]


def _starts_line(data: bytes, at: int) -> bool:
    return at == 0 or data[at - 1] == 0x0A


def _common_prefix(one: bytes, other: bytes) -> int:
    """By halves, so that the comparing is done by `memcmp`."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _common_suffix(one: bytes, other: bytes, most: int) -> int:
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle
    return low
