"""With real programs: espeak-ng speaks, ffmpeg packs, and pocketsphinx hears behind an endpoint."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from gateway.speech.audio import sound_in
from tests import sounds
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_voice import SENT, asked, notes, recorded, speech
from tests.scripted_model import ScriptedModel
from tests.speech_server import Behaviour, SpeechServer, really_heard

WORDS = ("remember", "remind", "weather", "tomorrow", "saturday", "seven", "birthday")
PACKED = {
    "a phone's voice message": ("-c:a", "libopus", "-b:a", "24k", "-f", "ogg"),
    "a clip of a browser": ("-c:a", "libopus", "-f", "webm"),
    "an mp3": ("-c:a", "libmp3lame", "-f", "mp3"),
    "as it is": ("-f", "wav"),
}

pytestmark = [
    sounds.needs_programs,
    pytest.mark.skipif(importlib.util.find_spec("pocketsphinx") is None, reason="needs pocketsphinx: make dev"),
]


@pytest.fixture
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("voice") / "home")


@pytest.mark.parametrize("form", PACKED)
async def test_what_a_voice_says_is_what_the_model_reads(house: House, form: str) -> None:
    recording = sounds.packed(sounds.spoken("weather tomorrow"), *PACKED[form])
    model = ScriptedModel("Sunny.")
    with SpeechServer(Behaviour(hears=really_heard(WORDS))) as server:
        async with house.gateway(model, speech=speech(server, "listen")) as (_, channel):
            answer = await asked(channel, recorded(channel, recording))
    assert "weather tomorrow" in model.requests[0].messages[-1].text
    assert answer == "_I heard: “weather tomorrow”_\n\nSunny."


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap: apt-get install bubblewrap")
async def test_an_answer_goes_out_as_a_voice_message_that_says_it(house: House) -> None:
    """A server that knows WAV only: the sandboxed ffmpeg packs it, and the words survive."""
    behaviour = Behaviour(speaks=sounds.spoken, says=("wav",))
    with SpeechServer(behaviour) as server:
        async with house.gateway(ScriptedModel("**Remember** seven."), speech=speech(server, "speak"), fake=SENT) as (
            gateway,
            channel,
        ):
            await channel.ask("/voice always")
            await channel.ask("What?")
            await settled(gateway)
    data = _sent(channel)
    found = sound_in(data)
    assert found is not None
    assert (found.media_type, data[:4], data[28:36]) == ("audio/ogg", b"OggS", b"OpusHead")
    assert found.seconds == pytest.approx(sound_in(sounds.spoken("Remember seven.")).seconds, abs=0.2)  # type: ignore[union-attr]
    assert really_heard(WORDS)(data) == "remember seven"


def _sent(channel: FakeChannel) -> bytes:
    (note,) = notes(channel)
    (file,) = note.attachments
    assert file.is_voice
    assert len(file.waveform) > 10
    return channel.files[file.filename]
