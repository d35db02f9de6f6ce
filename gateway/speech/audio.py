"""What a recording is, and how long, by its bytes alone: who sent it, and where, may be wrong about both.

A length is the larger of what the file says and of what it holds, so that one that lies about it costs no less.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from gateway.speech import boxes, flac, ogg

MOST_BYTES_PER_S = 64_000
"""Of compressed speech; what has more of them in a second is longer than it says."""
MOST_STRAY = 100_000
"""Marks of a frame that begin none, as a picture at the end of a file has some; each takes time to look at."""
_PLAIN = frozenset([1, 3, 6, 7, 0xFFFE])  # of WAVE: PCM, float, A-law, mu-law, and whichever of these in its long form
_MPEG_KBITS = {
    (3, 3): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (3, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (3, 1): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 3): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MPEG_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_AAC_RATES = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """What some bytes are.

    Attributes:
        seconds: None where that cannot be counted.
    """

    media_type: str
    extension: str
    seconds: float | None

    @property
    def filename(self) -> str:
        """A name that services understand: some go by it."""
        return f"voice.{self.extension}"


def sound_in(data: bytes, most_s: float = 7_200.0) -> Sound | None:
    """What the bytes are; None for no recording that is known. It is counted no further than a little over `most_s`."""
    for is_it, media_type, extension, count in _KINDS:
        if is_it(data):
            return Sound(media_type=media_type, extension=extension, seconds=count(data, most_s))
    begins = _behind_tag(data)
    frame = _frame(data, begins)
    if frame is None:
        return None
    media_type, extension = ("audio/mpeg", "mp3") if frame[2] else ("audio/aac", "aac")
    return Sound(media_type=media_type, extension=extension, seconds=_at_least(_frames_s(data, begins, most_s), data))


def _at_least(seconds: float | None, data: bytes) -> float | None:
    return None if seconds is None else max(seconds, len(data) / MOST_BYTES_PER_S)


def _wave_s(data: bytes) -> float | None:
    """By the bytes that are there, whatever the header says of how many."""
    at, bytes_per_s = 12, 0
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if name == b"fmt " and size >= 16 and at + 16 <= len(data):
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data, at)
            bytes_per_s = channels * rate * -(-bits // 8) if kind in _PLAIN else 0
        elif name == b"data":
            return (len(data) - at) / bytes_per_s if bytes_per_s else None
        at += size + size % 2
    return None


# ---- MPEG audio and AAC, frame by frame ------------------------------------------------------------------------------


def _behind_tag(data: bytes) -> int:
    """Where the sound begins: behind an ID3v2 tag, whose size has seven bits in a byte."""
    if not data.startswith(b"ID3") or len(data) < 10:
        return 0
    a, b, c, d = (byte & 0x7F for byte in data[6:10])
    return 10 + (a << 21 | b << 14 | c << 7 | d)


def _frames_s(data: bytes, at: int, most_s: float) -> float | None:
    seconds, stray = 0.0, 0
    while 0 <= at < len(data) - 4 and seconds <= most_s:
        frame = _frame(data, at)
        if frame is None:  # a decoder goes on with the next one that it finds
            stray += 1
            if stray > MOST_STRAY:
                return None
            at = data.find(b"\xff", at + 1)
            continue
        seconds += frame[0]
        at += frame[1]
    return seconds


def _frame(data: bytes, at: int) -> tuple[float, int, bool] | None:
    """How long a frame is, in seconds and in bytes, and whether it is of MP3 (else of AAC); None: there is none."""
    if at + 7 > len(data) or data[at] != 0xFF or data[at + 1] & 0xE0 != 0xE0:
        return None
    if data[at + 1] & 0xF6 == 0xF0:
        rate = data[at + 2] >> 2 & 15
        size = (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
        if rate >= len(_AAC_RATES) or size < 7:
            return None
        return ((data[at + 6] & 3) + 1) * 1024 / _AAC_RATES[rate], size, False
    version, layer = data[at + 1] >> 3 & 3, data[at + 1] >> 1 & 3
    bits, rates = data[at + 2] >> 4, data[at + 2] >> 2 & 3
    if version == 1 or layer == 0 or bits == 15 or rates == 3:
        return None
    rate = _MPEG_RATES[version][rates]
    samples = 384 if layer == 3 else 576 if layer == 1 and version != 3 else 1152
    kbits = _MPEG_KBITS[3 if version == 3 else 2, layer if version == 3 else (3 if layer == 3 else 2)][bits]
    padding = data[at + 2] >> 1 & 1
    of_layer_1 = (12_000 * kbits // rate + padding) * 4
    size = of_layer_1 if layer == 3 else samples // 8 * 1000 * kbits // rate + padding
    return samples / rate, max(size, 4), True


_KINDS: tuple[tuple[Callable[[bytes], bool], str, str, Callable[[bytes, float], float | None]], ...] = (
    (
        lambda data: data.startswith(b"OggS"),
        "audio/ogg",
        "ogg",
        lambda data, most_s: _at_least(ogg.seconds_of(data, most_s), data),
    ),
    (
        lambda data: data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE",
        "audio/wav",
        "wav",
        lambda data, _: _wave_s(data),
    ),
    (
        lambda data: data[4:8] == b"ftyp",
        "audio/mp4",
        "m4a",
        lambda data, _: _at_least(boxes.seconds_of_mp4(data), data),
    ),
    (
        lambda data: data.startswith(b"\x1aE\xdf\xa3"),
        "audio/webm",
        "webm",
        lambda data, most_s: _at_least(boxes.seconds_of_webm(data, most_s), data),
    ),
    (lambda data: data.startswith(b"fLaC"), "audio/flac", "flac", flac.seconds_of),
)
