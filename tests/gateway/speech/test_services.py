"""The two services on the wire: what is asked, what is made of what they answer, and packages of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.app.speech import listening_of, speaking_of
from gateway.cli.doctor import ground_of
from gateway.config.file import check, load_config
from gateway.errors import ConfigError, ModelRefused, ModelUnavailable
from gateway.ops.doctor.speech import speech
from gateway.runtime.logs import secrets_in
from gateway.speech.audio import sound_in
from gateway.speech.contract import Recording
from gateway.speech.spoken import MAX_CHARS, spoken
from tests import sounds
from tests.speech_server import SpeechServer

KEY = "sk-canary-of-the-key-0123456789"


@pytest.fixture
def server() -> Iterator[SpeechServer]:
    with SpeechServer() as server:
        yield server


def configured(tmp_path: Path, **halves: dict[str, Any]) -> Any:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"speech": halves}))
    return load_config(home=tmp_path).config


def recording(data: bytes) -> Recording:
    sound = sound_in(data)
    assert sound is not None
    return Recording(data=data, filename=sound.filename, media_type=sound.media_type, seconds=sound.seconds or 0.0)


@pytest.mark.parametrize(
    ("model", "forms", "includes"),
    [("whisper-1", ["verbose_json"], None), ("gpt-4o-transcribe", ["json"], "logprobs")],
)
async def test_a_recording_is_sent_as_a_form_with_what_its_bytes_are(
    server: SpeechServer, tmp_path: Path, model: str, forms: list[str], includes: str | None
) -> None:
    config = configured(
        tmp_path, listen={"model": model, "base_url": server.url, "api_key": KEY, "language": "de"}
    ).speech.listen
    data = sounds.opus(1.0)
    transcript = await listening_of(config)(recording(data))
    assert (transcript.text, transcript.is_unsure) == ("what is the weather like", False)
    assert [one["response_format"] for one in server.heard] == forms
    (asked,) = server.heard
    assert (asked["model"], asked["language"], asked.get("include[]")) == (model, "de", includes)
    assert asked["file"] == ("voice.ogg", "audio/ogg", data)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY in set(secrets_in(config.settings)), "no log has it"


async def test_a_server_that_knows_json_only_is_asked_for_that_from_then_on(
    server: SpeechServer, tmp_path: Path
) -> None:
    server.behaviour.knows = ("json",)
    hear = listening_of(configured(tmp_path, listen={"model": "m", "base_url": server.url}).speech.listen)
    for _ in range(2):
        assert (await hear(recording(sounds.opus(1.0)))).text == "what is the weather like"
    assert [one["response_format"] for one in server.heard] == ["verbose_json", "json", "json"]


async def test_log_probabilities_of_tokens_say_whether_the_words_are_sure(server: SpeechServer, tmp_path: Path) -> None:
    server.behaviour.hears = lambda _data: {"text": "Dawe", "logprobs": [{"token": "Da", "logprob": -2.5}]}
    hear = listening_of(configured(tmp_path, listen={"model": "gpt-x", "base_url": server.url}).speech.listen)
    assert (await hear(recording(sounds.opus(1.0)))).is_unsure


async def test_words_that_are_made_up_for_a_pause_are_left_out(server: SpeechServer, tmp_path: Path) -> None:
    said = {"text": " Buy milk.", "avg_logprob": -0.2, "no_speech_prob": 0.01}
    silent = {"text": " Thank you for watching!", "avg_logprob": -1.5, "no_speech_prob": 0.9}
    server.behaviour.hears = lambda _data: {"text": "Buy milk. Thank you for watching!", "segments": [said, silent]}
    hear = listening_of(configured(tmp_path, listen={"model": "m", "base_url": server.url}).speech.listen)
    assert (await hear(recording(sounds.opus(1.0)))).text == "Buy milk."
    del said["text"]
    assert (await hear(recording(sounds.opus(1.0)))).text == "Buy milk. Thank you for watching!", "it cannot be told"


async def test_what_a_busy_server_did_not_do_is_asked_for_again_once_and_nothing_else_is(
    server: SpeechServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.speech.endpoint.AGAIN_S", 0.0)
    say = speaking_of(configured(tmp_path, speak={"model": "m", "base_url": server.url}).speech.speak)
    server.behaviour.failures = [(503, "busy")]
    assert (await say("Hello.")).startswith(b"OggS")
    server.behaviour.failures = [(503, "busy")] * 2
    with pytest.raises(ModelUnavailable, match="overloaded or down"):
        await say("Hello.")
    server.behaviour.failures = [(400, "no"), (400, "no")]
    with pytest.raises(ModelRefused):
        await say("Hello.")
    asked = len(server.said)
    server.behaviour.failures = [(502, "half done")]
    with pytest.raises(ModelUnavailable):
        await say("Hello.")
    assert len(server.said) == asked + 1, "it may be paid for"
    server.behaviour.failures = [(401, f"wrong key {KEY}")]
    with pytest.raises(ModelUnavailable) as refused:
        await say("Hello.")
    assert KEY not in str(refused.value)


async def test_a_server_that_is_not_there_is_said_with_its_address(tmp_path: Path) -> None:
    settings = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    say = speaking_of(configured(tmp_path, speak=settings).speech.speak)
    with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1:9"):
        await say("Hello.")


# ---- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("# Tea\n\nIt is **ready**, see [here](https://example.org/x).", "Tea.\nIt is ready, see here."),
        ("Run this:\n\n```sh\nrm -rf /\n```\n\nDone", "Run this:\nDone."),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\nThat is all!", "That is all!"),
        ("- one\n- `two`\n\n![a cat](cat.png)", "one.\ntwo."),
        ("See https://example.org/a/b?c=d for more", "See for more."),
        ("I looked at https://example.org/a. It is shut!", "I looked at . It is shut!"),
        ("```\nonly code\n```", ""),
        ("<b>no</b>\n\n---\n\n…", "no."),
    ],
)
def test_sentences_are_said_and_code_tables_pictures_and_addresses_are_not(answer: str, said: str) -> None:
    assert spoken(answer) == said


def test_a_long_answer_ends_with_a_sentence() -> None:
    said = spoken("This is a sentence of some words. " * 200)
    assert MAX_CHARS - 40 < len(said) <= MAX_CHARS
    assert said.endswith("words.")
    assert len(spoken("x" * 5_000)) == MAX_CHARS


@pytest.mark.parametrize(
    "sentence", ["これはいくつかの言葉でできた文です。", "यह कुछ शब्दों का वाक्य है। ", "هل هذه جملة؟ "]
)
def test_a_long_answer_ends_with_a_sentence_in_other_scripts_too(sentence: str) -> None:
    said = spoken(sentence * 200)
    assert MAX_CHARS - 40 < len(said) <= MAX_CHARS
    assert said.endswith(sentence.strip())


# ---- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"speech": {"listen": {"base_url": "http://127.0.0.1:1/v1"}}}, "speech.listen.model: missing"),
        ({"speech": {"listen": {"model": "m"}}}, "speech.listen.api_key: missing; expected `${ENV_VAR}`"),
        ({"speech": {"listen": {"kind": "opnai", "model": "m"}}}, "did you mean `openai`?"),
        (
            {"speech": {"speak": {"model": "m", "base_url": "http://h/v1", "voices": "a"}}},
            "speech.speak.voices: unknown",
        ),
        ({"speech": {"hear": {}}}, "speech.hear: unknown key"),
        (
            {"speech": {"speak": {"model": "m", "base_url": "http://h/v1"}}, "budgets": {"user": {"usd": 1}}},
            "speech.speak: its price is unknown",
        ),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected(tmp_path: Path, settings: dict[str, Any], complaint: str) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError) as error:
        load_config(home=tmp_path)
    assert complaint in str(error.value)


async def test_the_package_of_the_page_hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "voice.md").read_text()
    (tmp_path / "acme_voice").mkdir()
    (tmp_path / "acme_voice" / "__init__.py").touch()
    (tmp_path / "acme_voice" / "speech.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    config = configured(tmp_path, listen={"kind": "acme_voice.speech", "language": "de"}).speech.listen
    assert (await listening_of(config)(recording(sounds.opus(3.0)))).text == "3 seconds of de"


def test_one_that_cannot_be_loaded_is_left_out_with_a_warning(tmp_path: Path) -> None:
    config = configured(tmp_path, listen={"kind": "acme.nothing", "model": "m"})
    with pytest.raises(ValueError, match=r"no package 'acme\.nothing'"):
        listening_of(config.speech.listen)
    assert "left out" in "".join(check(home=tmp_path).warnings)


# ---- the doctor ------------------------------------------------------------------------------------------------------


async def test_the_doctor_asks_both_and_says_what_is_wrong(server: SpeechServer, tmp_path: Path) -> None:
    settings = {"model": "m", "base_url": server.url}
    config = configured(tmp_path, listen=settings, speak=dict(settings))

    async def found(*, asks: bool) -> list[tuple[str, str]]:
        ground = ground_of(tmp_path, config, None, asks_models=asks)
        return [(each.level, each.what) async for each in speech(ground)]

    assert all("was not asked" in what for _, what in (await found(asks=False))[:2])
    assert server.heard == []
    assert [what.split(" (")[0] for _, what in (await found(asks=True))[:2]] == [
        "The service that hears",
        "The service that speaks",
    ]
    assert all("works" in what for _, what in (await found(asks=True))[:2])
    server.behaviour.speaks = lambda _text: b"<html>"
    assert "no sound" in (await found(asks=True))[1][1]
    server.behaviour.failures = [(401, "no")] * 2
    assert [kind for kind, _ in (await found(asks=True))[:2]] == ["problem", "problem"]


async def test_the_doctor_looks_for_ffmpeg_where_the_sandbox_has_it(
    server: SpeechServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "elsewhere" / "ffmpeg"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr("gateway.speech.saying._PLACES", str(tmp_path))
    config = configured(tmp_path, speak={"model": "m", "base_url": server.url})
    ground = ground_of(tmp_path, config, None)
    found = [each async for each in speech(ground)][1]
    assert (found.level, "install ffmpeg" in str(found)) == ("warning", True)
