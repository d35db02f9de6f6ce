"""How long FLAC is, counted in the frames that it holds. RFC 9639, sections 8.2 and 9.1."""

from __future__ import annotations

import re

MOST_CANDIDATES = 100_000
"""Places that look like the beginning of a frame: the longest recording has half as many; each takes time."""
_SYNC = re.compile(rb"\xff[\xf8\xf9]")
_FIRST_FRAME = 42
_RATES = (
    0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000,
)  # fmt: skip
_MORE_BLOCK = {6: 1, 7: 2}  # bytes behind the number of the frame, by the four bits for it
_MORE_RATE = {12: (1, 1_000), 13: (2, 1), 14: (2, 10)}  # and in which unit


def seconds_of(data: bytes, most_s: float) -> float | None:
    """The larger of what it says and of what its frames hold; it is counted no further than a little over `most_s`.

    None: there is no frame in it, or too much that looks like one. Who writes into a pipe says no length.
    """
    described = int.from_bytes(data[18:26])
    rate, samples = described >> 44, described & (1 << 36) - 1
    counted_s, frames = 0.0, 0
    for number, found in enumerate(_SYNC.finditer(data, _FIRST_FRAME)):
        if number == MOST_CANDIDATES:
            return None
        length_s = _frame_s(data[found.start() : found.start() + 16], rate)
        if length_s is not None:
            counted_s += length_s
            frames += 1
        if counted_s > most_s:
            break
    return max(counted_s, samples / rate if rate else 0.0) if frames else None


def _frame_s(head: bytes, rate: int) -> float | None:
    """How long the frame is that begins here; None: none does."""
    if len(head) < 16:
        head = head.ljust(16, b"\0")
    block, frequency = head[2] >> 4, head[2] & 15
    behind_number = 4 + max(1, _leading_ones(head[4]))
    more_block = _MORE_BLOCK.get(block, 0)
    more_rate, unit = _MORE_RATE.get(frequency, (0, 0))
    ends = behind_number + more_block + more_rate
    if block == 0 or frequency == 15 or head[3] & 1 or ends > 15 or _crc8(head[:ends]) != head[ends]:
        return None
    if more_rate:
        rate = int.from_bytes(head[behind_number + more_block : ends]) * unit
    elif frequency:
        rate = _RATES[frequency]
    if more_block:
        samples = int.from_bytes(head[behind_number : behind_number + more_block]) + 1
    else:
        samples = 192 if block == 1 else 144 << block if block < 6 else 1 << block
    return samples / rate if rate else None


def _leading_ones(byte: int) -> int:
    return 8 - (byte ^ 0xFF).bit_length()


def _crc8(data: bytes) -> int:
    """Of the header of a frame: x^8 + x^2 + x + 1."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc << 1 ^ (0x107 if crc & 0x80 else 0)
    return crc
