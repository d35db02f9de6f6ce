"""Opus and Vorbis in Ogg: how long they are, counted in their packets, and how loud they look.

RFC 3533 (Ogg), RFC 7845 (Opus in Ogg), RFC 6716, section 3.1 (how long a packet is), the Vorbis I specification 4.2.2.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

OPUS_HEAD = b"OpusHead"
MOST_PACKETS, MOST_STREAMS = 1_000_000, 1_000
"""Of a file that is counted: the longest recording has half as many, and one stream; each takes time."""
_PAGE = b"OggS"
_HEADER_BYTES, _HEAD_BYTES = 27, 32
_RATE = 48_000
_WAVEFORM_POINTS = 256
_VORBIS_HEAD = b"\x01vorbis"
# Of one frame, in milliseconds, by the five bits of the packet's first byte.
_FRAME_MS = (10, 20, 40, 60) * 3 + (10, 20) * 2 + (2.5, 5, 10, 20) * 4


@dataclass(slots=True)
class _Stream:
    """One of those in a file.

    Attributes:
        rate: of what the granule position counts; 0 where that is not known.
        frame_s: how long each packet is; None for Opus, where each says it itself.
        headers: packets that are no sound, and still to come.
    """

    rate: float
    headers: int
    skipped: int = 0
    frame_s: float | None = None
    counted_s: float = 0.0
    granule: int = 0

    @property
    def seconds(self) -> float:
        """By the larger of its two measures: what it says, and what it holds."""
        said = max(0, self.granule - self.skipped) / self.rate if self.rate else 0.0
        return max(said, self.counted_s)


class Packet(NamedTuple):
    """Where a packet begins: its stream, its size on that page, its first bytes, and what the page says of itself."""

    serial: int
    size: int
    head: bytes
    granule: int
    is_first_page: bool


def packets(data: bytes) -> Iterator[Packet]:
    """All packets of all streams in a file, in its order."""
    at = data.find(_PAGE)
    is_open: dict[int, bool] = {}
    while at >= 0 and at + _HEADER_BYTES <= len(data):
        flags = data[at + 5]
        granule, serial = struct.unpack_from("<qI", data, at + 6)
        amount = data[at + 26]
        lacing = data[at + _HEADER_BYTES : at + _HEADER_BYTES + amount]
        body = at + _HEADER_BYTES + amount
        begins, size = body, 0
        for length in lacing:
            size += length
            if length < 255:
                if not is_open.pop(serial, False):
                    yield Packet(serial, size, data[begins : begins + min(size, _HEAD_BYTES)], granule, bool(flags & 2))
                begins, size = begins + size, 0
        if lacing and lacing[-1] == 255:
            if not is_open.get(serial):
                yield Packet(serial, size, data[begins : begins + _HEAD_BYTES], granule, bool(flags & 2))
            is_open[serial] = True
        at = data.find(_PAGE, max(at + 4, body + sum(lacing)))


def seconds_of(data: bytes, most_s: float) -> float | None:
    """How long it is; it is counted no further than a little over `most_s`.

    None: it is not Opus and not Vorbis, or made of too many pieces.
    """
    streams: dict[int, _Stream] = {}
    done_s = counted_s = 0.0
    for number, packet in enumerate(packets(data)):
        if number == MOST_PACKETS or len(streams) > MOST_STREAMS:
            return None
        stream = streams.get(packet.serial)
        if stream is None or (packet.is_first_page and packet.head.startswith((OPUS_HEAD, _VORBIS_HEAD))):
            done_s += 0.0 if stream is None else stream.seconds
            stream = _begun(packet.head)
            if stream is None:
                return None
            streams[packet.serial] = stream
        stream.granule = max(stream.granule, packet.granule)
        if stream.headers:
            stream.headers -= 1
            continue
        length_s = packet_s(packet.head[:2], packet.size) if stream.frame_s is None else stream.frame_s
        stream.counted_s += length_s
        counted_s += length_s
        if counted_s > most_s:
            break
    return done_s + sum(stream.seconds for stream in streams.values()) if streams else None


def packet_s(head: bytes, size: int) -> float:
    """How long an Opus packet is; an empty one stands for 20 ms that were lost."""
    if not size or not head:
        return 0.02
    code = head[0] & 3
    frames = 1 if code == 0 else 2 if code < 3 else (head[1] & 63 if len(head) > 1 else 1)
    return _FRAME_MS[head[0] >> 3] * frames / 1000


def waveform(data: bytes) -> str:
    """Up to 256 loudnesses of 0 to 255, in base 64: by the sizes of its packets, which grow with what is in them."""
    sizes = [each.size for each in packets(data) if not each.head.startswith((OPUS_HEAD, b"OpusTags"))]
    if not sizes:
        return ""
    points = min(_WAVEFORM_POINTS, len(sizes))
    bounds = [len(sizes) * index // points for index in range(points + 1)]
    means = [sum(sizes[a:b]) / (b - a) for a, b in pairwise(bounds)]
    least, most = min(means), max(means)
    scaled = bytes(round(255 * (mean - least) / (most - least)) if most > least else 0 for mean in means)
    return base64.b64encode(scaled).decode()


def is_opus(data: bytes) -> bool:
    """Whether it is what voice messages are: Opus in Ogg."""
    return data.startswith(_PAGE) and OPUS_HEAD in data[:128]


def _begun(head: bytes) -> _Stream | None:
    if head.startswith(OPUS_HEAD) and len(head) >= 12:
        return _Stream(rate=_RATE, headers=2, skipped=struct.unpack_from("<H", head, 10)[0])
    if head.startswith(_VORBIS_HEAD) and len(head) >= 29:
        rate = struct.unpack_from("<I", head, 12)[0]
        # No packet has more than half of its longest block in it.
        return _Stream(rate=rate, headers=3, frame_s=(1 << (head[28] >> 4)) / 2 / rate) if rate else None
    return None
