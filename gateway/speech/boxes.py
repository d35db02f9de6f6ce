"""How long recordings in MP4 and in WebM are, counted in the samples that they hold.

ISO/IEC 14496-12 (boxes), RFC 8794 (EBML) and RFC 9559 (Matroska, of which WebM is a part).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from gateway.speech.ogg import packet_s

MOST_ELEMENTS = 1_000_000
"""Of WebM that are looked at, several for each packet of the longest recording; each takes time."""
_CONTAINERS = frozenset([b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf"])
_AAC_FRAME = 1024
_NOT_KNOWN = _TOO_MANY = -1
# Those elements of EBML that are gone into.
_SEGMENT, _CLUSTER, _GROUP, _INFO, _TRACKS, _ENTRY = (
    0x18538067, 0x1F43B675, 0xA0, 0x1549A966, 0x1654AE6B, 0xAE,
)  # fmt: skip
_INSIDE = frozenset([_SEGMENT, _CLUSTER, _GROUP, _INFO, _TRACKS, _ENTRY])
_SCALE, _DURATION, _TIMECODE, _BLOCKS, _CODEC = 0x2AD7B1, 0x4489, 0xE7, frozenset([0xA3, 0xA1]), 0x86


def seconds_of_mp4(data: bytes) -> float | None:
    """The longest of what its boxes say, and of what its samples hold. None: there is no sound in it."""
    timescale = rate = samples = 0
    found_s = [0.0]
    is_sound = False
    for name, body in _boxes(data, 0, len(data)):
        if name == b"mdhd" and len(body) >= 24:
            is_long = body[0] == 1 and len(body) >= 32
            timescale, duration = struct.unpack_from(">IQ" if is_long else ">II", body, 20 if is_long else 12)
            found_s.append(_part(duration, timescale))
        elif name == b"mvhd" and len(body) >= 24:
            is_long = body[0] == 1 and len(body) >= 32
            scale, duration = struct.unpack_from(">IQ" if is_long else ">II", body, 20 if is_long else 12)
            found_s.append(_part(duration, scale))
        elif name == b"hdlr":
            is_sound = is_sound or body[8:12] == b"soun"
        elif name == b"stsd" and len(body) >= 44:
            rate = struct.unpack_from(">I", body, 40)[0] >> 16
        elif name == b"stts" and len(body) >= 8:
            entries = struct.unpack_from(">I", body, 4)[0]
            times = struct.iter_unpack(">II", body[8 : 8 + 8 * min(entries, (len(body) - 8) // 8)])
            found_s.append(_part(sum(amount * delta for amount, delta in times), timescale))
        elif name == b"stsz" and len(body) >= 12:
            samples += struct.unpack_from(">I", body, 8)[0]
        elif name == b"trun" and len(body) >= 8:
            samples += struct.unpack_from(">I", body, 4)[0]
    return max(*found_s, _part(samples * _AAC_FRAME, rate)) if is_sound else None


def _part(amount: int, scale: int) -> float:
    return amount / scale if scale and amount not in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) else 0.0


def _boxes(data: bytes, at: int, end: int, depth: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Every box that holds no others, with what is in it."""
    while at + 8 <= end:
        size, name = struct.unpack_from(">I4s", data, at)
        head = 8
        if size == 1 and at + 16 <= end:
            size, head = struct.unpack_from(">Q", data, at + 8)[0], 16
        until = end if size == 0 else min(end, at + size)
        if size != 0 and size < head:
            return
        if name in _CONTAINERS and depth < 8:
            yield from _boxes(data, at + head, until, depth + 1)
        elif name != b"mdat":
            yield name, data[at + head : until]
        at = until


def seconds_of_webm(data: bytes, most_s: float) -> float | None:
    """The longest of what it says, of when its last block begins, and of its Opus packets.

    None: no block is in it, or too much besides.
    """
    scale_ns, said, cluster, last, counted_s, blocks = 1_000_000, 0.0, 0, 0, 0.0, 0
    codec = b""
    for name, body in _elements(data):
        if name == _TOO_MANY:
            return None
        if name == _SCALE and len(body) <= 8:
            scale_ns = int.from_bytes(body) or scale_ns
        elif name == _DURATION and len(body) in (4, 8):
            said = struct.unpack(">f" if len(body) == 4 else ">d", body)[0]
        elif name == _CODEC:
            codec = body
        elif name == _TIMECODE:
            cluster = int.from_bytes(body[:8])
        elif name in _BLOCKS and len(body) > 4:
            blocks += 1
            _, begins = _number(body, 0, keeps_mark=False)
            offset = int.from_bytes(body[begins : begins + 2], signed=True)
            last = max(last, cluster + offset)
            if codec == b"A_OPUS":
                frame = body[begins + 3 :]
                laced = frame[0] + 1 if len(frame) > 1 and body[begins + 2] & 6 else 1
                counted_s += packet_s(frame[:2], len(frame)) * laced
            if max(counted_s, last * scale_ns / 1e9) > most_s:
                break
    said_s = said * scale_ns / 1e9 if 0 < said < 1e12 else 0.0
    return max(said_s, last * scale_ns / 1e9, counted_s) if blocks else None


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every element that holds no others; one whose size is not known is gone into. `_TOO_MANY` is the last one."""
    at = looked_at = 0
    while at < len(data):
        looked_at += 1
        if looked_at > MOST_ELEMENTS:
            yield _TOO_MANY, b""
            return
        name, at = _number(data, at, keeps_mark=True)
        size, at = _number(data, at, keeps_mark=False)
        if name in _INSIDE:
            continue
        if size == _NOT_KNOWN or name == 0:
            return
        yield name, data[at : at + size]
        at += size


def _number(data: bytes, at: int, *, keeps_mark: bool) -> tuple[int, int]:
    """A number of EBML, and where it ends."""
    if at >= len(data) or not data[at]:
        return 0, len(data)
    length = 9 - data[at].bit_length()
    value = int.from_bytes(data[at : at + length])
    if not keeps_mark:
        whole = (1 << 7 * length) - 1
        value &= whole
        value = _NOT_KNOWN if value == whole else value
    return value, at + length
