"""What a recording is, and how long, by its bytes."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.speech.audio import MOST_STRAY, sound_in
from gateway.speech.boxes import MOST_ELEMENTS
from gateway.speech.flac import MOST_CANDIDATES
from gateway.speech.ogg import MOST_PACKETS, MOST_STREAMS, is_opus, packet_s, waveform
from tests import sounds

FORMS = {
    "opus": (("-c:a", "libopus", "-f", "ogg"), "audio/ogg"),
    "vorbis": (("-c:a", "libvorbis", "-f", "ogg"), "audio/ogg"),
    "mp3": (("-c:a", "libmp3lame", "-f", "mp3"), "audio/mpeg"),
    "aac": (("-c:a", "aac", "-f", "adts"), "audio/aac"),
    "m4a in pieces": (("-c:a", "aac", "-movflags", "frag_keyframe+empty_moov", "-f", "mp4"), "audio/mp4"),
    "flac": (("-c:a", "flac", "-f", "flac"), "audio/flac"),
    "flac of another rate": (("-c:a", "flac", "-ar", "12345", "-f", "flac"), "audio/flac"),
    "webm": (("-c:a", "libopus", "-f", "webm"), "audio/webm"),
    "webm as browsers write it": (("-c:a", "libopus", "-f", "webm", "-live", "1"), "audio/webm"),
}


def seconds(data: bytes, most_s: float = 7_200.0) -> float | None:
    found = sound_in(data, most_s)
    assert found is not None
    return found.seconds


@sounds.needs_programs
@pytest.mark.parametrize("form", FORMS)
def test_what_ffmpeg_packs_is_known_by_its_bytes_and_as_long_as_it_is(form: str) -> None:
    options, media_type = FORMS[form]
    found = sound_in(sounds.packed(sounds.wave(7.0), *options))
    assert found is not None
    assert found.media_type == media_type
    assert found.seconds == pytest.approx(7.0, abs=0.3)


def test_a_recording_by_hand_is_as_long_as_its_packets_and_its_samples_are() -> None:
    assert seconds(sounds.opus(61.0)) == pytest.approx(61.0)
    assert seconds(sounds.wave(3.5)) == pytest.approx(3.5)
    assert seconds(sounds.opus(2.0) + sounds.opus(3.0, serial=2)) == pytest.approx(5.0), "one behind the other"


def test_a_recording_that_lies_about_its_length_costs_no_less() -> None:
    assert seconds(sounds.opus(600.0, said_s=1.0)) == pytest.approx(600.0)
    told = bytearray(sounds.wave(9.0))
    told[40:44] = struct.pack("<I", 16)
    assert seconds(bytes(told)) == pytest.approx(9.0)
    short = b"\x00\x00\x00\x18ftypM4A " + bytes(12) + _box(b"moov", _mdhd(1) + _box(b"hdlr", bytes(8) + b"soun"))
    assert seconds(short) == pytest.approx(1.0)
    assert seconds(short + bytes(6_400_000)) == pytest.approx(100.0, rel=0.01), "by how many bytes there are"


def test_flac_is_as_long_as_its_frames_and_no_shorter_than_it_says() -> None:
    assert seconds(sounds.flac(60.0, said_s=60.0)) == pytest.approx(60.0)
    assert seconds(sounds.flac(600.0, said_s=1.0)) == pytest.approx(600.0, abs=0.3), "by its frames"
    assert seconds(sounds.flac(600.0, said_s=0.0), 60.0) == pytest.approx(60.0, abs=0.3)
    assert seconds(sounds.flac(1.0, said_s=90.0)) == pytest.approx(90.0)
    assert seconds(sounds.flac(0.0, said_s=9.0)) is None, "there is no sound in it"
    assert seconds(sounds.flac(1.0, said_s=1.0) + b"\xff\xf8" * (MOST_CANDIDATES + 9)) is None


def test_what_says_that_it_is_longer_is_believed() -> None:
    assert seconds(sounds.opus(1.0, said_s=None)[:-1]) == pytest.approx(1.0, abs=0.05)
    late = sounds.page([bytes([9 << 3, 0])], granule=48_000 * 1_300, number=9)
    assert (seconds(sounds.opus(1.0) + late) or 0) > 1_299


def test_it_is_counted_no_further_than_it_matters() -> None:
    assert 60.0 < (seconds(sounds.opus(600.0, said_s=1.0), 60.0) or 0) < 61.0


@pytest.mark.parametrize("data", [b"", b"MZ\x90\x00", b"%PDF-1.7", b"\xff\xd8\xff\xe0" + bytes(40), b"hello " * 10])
def test_what_is_no_recording_is_none(data: bytes) -> None:
    assert sound_in(data) is None


def test_a_scale_of_times_that_no_number_holds_is_passed_over() -> None:
    info = b"\x2a\xd7\xb1\x40\xff" + b"\xff" * 255
    block = b"\xe7\x81\x09\xa3\x85\x81\x00\x00\x80\x00"
    assert seconds(b"\x1aE\xdf\xa3\x80" + info + b"\x44\x89\x84" + struct.pack(">f", 5_000.0) + block) == 5.0


def test_what_is_made_to_take_long_is_not_counted_to_its_end() -> None:
    frame = b"\xff\xfb\x90\x00" + bytes(413)
    assert seconds(frame * 9 + b"\xff" * 1_000 + frame * 9) == pytest.approx(18 * 1152 / 44_100)
    assert seconds(frame + b"\xff" * (MOST_STRAY + 9) + frame * 9) is None
    assert seconds(b"\x1aE\xdf\xa3\x80" + b"\xa0\x80" * MOST_ELEMENTS) is None
    vorbis = b"\x01vorbis" + bytes(5) + b"\xff" * 4 + bytes(12) + b"\x66\x01"  # of 4 GHz, so none of it takes long
    quick = sounds.page([b""] * 255, granule=0, number=1)
    assert seconds(sounds.page([vorbis], granule=0, number=0, flags=2) + quick * (MOST_PACKETS // 255 + 1)) is None
    heads = (sounds.opus(0.02, serial=number) for number in range(MOST_STREAMS + 2))
    assert seconds(b"".join(heads)) is None
    block = b"\xa3\x85\x81\x00\x00\x80\x00"
    assert seconds(b"\x1aE\xdf\xa3\x80" + block + b"\xa0\x80" * MOST_ELEMENTS) is None


def test_one_whose_length_cannot_be_counted_has_none() -> None:
    assert seconds(b"fLaC" + bytes(200)) is None
    assert seconds(sounds.page([b"\x7fFLAC" + bytes(40)], granule=0, number=0, flags=2)) is None
    compressed = bytearray(sounds.wave(1.0))
    compressed[20:22] = struct.pack("<H", 0x31)  # GSM, as answering machines have it
    assert seconds(bytes(compressed)) is None


@given(
    st.sampled_from([sounds.opus(1.0), sounds.wave(0.5), sounds.flac(1.0, said_s=1.0)]),
    st.lists(st.tuples(st.integers(0, 400), st.binary()), max_size=4),
)
def test_bytes_of_any_kind_are_read_without_an_error(data: bytes, changes: list[tuple[int, bytes]]) -> None:
    for at, change in changes:
        data = data[:at] + change + data[at + len(change) :]
    for beginning in (b"", b"\x1aE\xdf\xa3", b"\x00\x00\x00\x18ftyp", b"ID3\x04"):
        found = sound_in(beginning + data, 100.0)
        assert found is None or found.seconds is None or found.seconds >= 0


@pytest.mark.parametrize(
    ("head", "expected"),
    [(b"\x00", 0.01), (b"\x18", 0.06), (b"\x48", 0.02), (b"\x81\x00", 0.005), (b"\xfb\x06", 0.12), (b"", 0.02)],
)
def test_a_packet_of_opus_says_how_long_it_is(head: bytes, expected: float) -> None:
    """RFC 6716, table 2: the frame's length, and how many there are."""
    assert packet_s(head, len(head)) == pytest.approx(expected)


def test_a_waveform_is_what_a_platform_can_draw() -> None:
    drawn = base64.b64decode(waveform(sounds.opus(60.0)))
    assert len(drawn) == 256
    assert (min(drawn), max(drawn)) == (0, 255)
    assert len(base64.b64decode(waveform(sounds.opus(1.0)))) == 50
    assert waveform(b"OggS") == ""
    assert is_opus(sounds.opus(1.0))
    assert not is_opus(sounds.wave(1.0))


def _box(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 8 + len(body)) + name + body


def _mdhd(seconds: int) -> bytes:
    return _box(b"mdhd", bytes(12) + struct.pack(">II", 1_000, 1_000 * seconds) + bytes(4))
