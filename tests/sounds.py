"""Recordings for tests: made by hand, packet by packet, and spoken by espeak-ng and packed by ffmpeg."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence

import pytest

_MARK = b"told:"
HOW_TO_INSTALL = "needs espeak-ng and ffmpeg: apt-get install espeak-ng ffmpeg"
needs_programs = pytest.mark.skipif(not (shutil.which("espeak-ng") and shutil.which("ffmpeg")), reason=HOW_TO_INSTALL)


def page(packets: Sequence[bytes], *, granule: int, number: int, flags: int = 0, serial: int = 1) -> bytes:
    """One page of Ogg (RFC 3533); its checksum is left out, as nothing here looks at it."""
    lacing = b"".join(bytes([255] * (len(each) // 255) + [len(each) % 255]) for each in packets)
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, granule, serial, number, 0, len(lacing))
    return head + lacing + b"".join(packets)


def opus(seconds: float, *, said_s: float | None = None, serial: int = 1, size: int = 60) -> bytes:
    """Opus in Ogg of packets of 20 ms, which says of itself that it takes `said_s` (RFC 7845)."""
    head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 312, 48_000, 0, 0)
    tags = b"OpusTags" + struct.pack("<I", 0) + struct.pack("<I", 0)
    parts = [
        page([head], granule=0, number=0, flags=2, serial=serial),
        page([tags], granule=0, number=1, serial=serial),
    ]
    amount = round(seconds / 0.02)
    granule = 312 + round((seconds if said_s is None else said_s) * 48_000)
    for number, at in enumerate(range(0, amount, 50), start=2):
        packets = [bytes([9 << 3]) + bytes(size + index % 30) for index in range(min(50, amount - at))]
        parts.append(
            page(packets, granule=granule if said_s is None else min(granule, 312 + 960), number=number, serial=serial)
        )
    return b"".join(parts)


def wave(seconds: float, *, rate: int = 8_000) -> bytes:
    """Silence in 16 bits."""
    data = bytes(round(seconds * rate) * 2)
    form = struct.pack("<HHIIHH", 1, 1, rate, rate * 2, 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(data))
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + (b"data" + struct.pack("<I", len(data)) + data)
    )


def marked(mark: str) -> bytes:
    """A recording that a listener can tell from all others."""
    return opus(1.0) + page([_MARK + mark.encode() + b";"], granule=48_000, number=9)


def mark_in(data: bytes) -> str:
    """The mark of a recording."""
    return data.partition(_MARK)[2].partition(b";")[0].decode()


def spoken(text: str) -> bytes:
    """WAVE, by espeak-ng."""
    command = ["espeak-ng", "-v", "en-us", "-s", "130", "--stdout", text]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def packed(sound: bytes, *options: str) -> bytes:
    """The same in another form, by ffmpeg; into a pipe."""
    command = ["ffmpeg", "-loglevel", "error", "-i", "pipe:0", *options, "pipe:1"]
    return subprocess.run(command, input=sound, capture_output=True, check=True, timeout=60).stdout


def flac(seconds: float, *, said_s: float) -> bytes:
    """Frames of 4 096 samples of silence at 16 kHz (RFC 9639), which say of themselves that they take `said_s`."""
    described = 16_000 << 44 | 15 << 36 | round(said_s * 16_000)
    blocks = struct.pack(">HH", 4_096, 4_096) + bytes(6) + described.to_bytes(8) + bytes(16)
    frames = []
    for number in range(round(seconds * 16_000 / 4_096)):
        coded = bytes([number]) if number < 128 else chr(number).encode()
        head = b"\xff\xf8\xc5\x08" + coded
        frames.append(head + bytes([_crc8(head)]) + bytes(3) + b"\0\0")
    return b"fLaC\x80\0\0\x22" + blocks + b"".join(frames)


def _crc8(data: bytes) -> int:
    crc = 0
    for bit in (byte >> place & 1 for byte in data for place in range(7, -1, -1)):
        crc = (crc << 1 & 0xFF) ^ (7 if crc >> 7 ^ bit else 0)
    return crc
