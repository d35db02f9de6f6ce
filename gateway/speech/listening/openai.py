"""`openai`: every server that takes recordings as OpenAI does: faster-whisper, whisper.cpp, vLLM, LocalAI and others.

https://platform.openai.com/docs/api-reference/audio/createTranscription (read 2026-11). Whisper says of each segment
how likely its words are, where `verbose_json` is asked for; the vendor's newer models know `json` only, and there the
likelihood of each token is asked for. A server that refuses the one is asked for the other, once, and that is kept.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Literal

from gateway.agent.providers.models import CallFailed
from gateway.config.values import Text
from gateway.errors import ModelRefused, ModelUnavailable
from gateway.speech.contract import Listen, Recording, Transcript
from gateway.speech.endpoint import EndpointConfig, SpeechEndpoint

_Form = Literal["verbose_json", "json"]
# Whisper's own limits: https://github.com/openai/whisper/blob/main/whisper/transcribe.py (read 2026-11).
_LEAST_LOG_PROBABILITY = -1.0
_NO_SPEECH = 0.6
_MOST_BYTES = 4 << 20


class Config(EndpointConfig):
    """The model that hears.

    Attributes:
        language: of what people say, such as `de`; None: the model finds out.
    """

    language: Text | None = None


def listen(config: Config) -> Listen:
    """Ask it."""
    endpoint = SpeechEndpoint("speech.listen", config)
    form: list[_Form] = ["json" if config.model.startswith("gpt-") else "verbose_json"]

    async def hear(recording: Recording) -> Transcript:
        try:
            try:
                answer = await _asked(endpoint, config, recording, form[-1])
            except CallFailed as failure:
                if form[-1] == "json" or not isinstance(failure.error, ModelRefused):
                    raise
                answer = await _asked(endpoint, config, recording, "json")
                form.append("json")
        except CallFailed as failure:
            raise failure.error from failure
        return _read(answer)

    return hear


async def _asked(endpoint: SpeechEndpoint, config: Config, recording: Recording, form: _Form) -> bytes:
    fields = [("model", config.model), ("response_format", form)]
    fields += [] if config.language is None else [("language", config.language)]
    if form == "json" and config.model.startswith("gpt-"):
        fields.append(("include[]", "logprobs"))
    boundary = secrets.token_hex(16)
    return await endpoint.post(
        "/audio/transcriptions",
        _multipart(boundary, fields, recording),
        content_type=f"multipart/form-data; boundary={boundary}",
        most_bytes=_MOST_BYTES,
    )


def _multipart(boundary: str, fields: Sequence[tuple[str, str]], recording: Recording) -> bytes:
    """RFC 7578. No name in it comes from outside."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields
    ]
    parts.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{recording.filename}"\r\n'
        f"Content-Type: {recording.media_type}\r\n\r\n"
    )
    return b"".join([*(part.encode() for part in parts), recording.data, f"\r\n--{boundary}--\r\n".encode()])


def _read(answer: bytes) -> Transcript:
    """The words; those of silence are left out."""
    try:
        body = json.loads(answer)
        text = body["text"].strip()
        segments = body.get("segments") or []
        spoken = [one for one in segments if not _is_silence(one)]
        if len(spoken) < len(segments) and all("text" in one for one in spoken):
            text = "".join(one["text"] for one in spoken).strip()
        chances = [float(one["avg_logprob"]) for one in spoken if one.get("avg_logprob") is not None]
        chances += [float(one["logprob"]) for one in body.get("logprobs") or []]
        usage = body.get("usage") or {}
        seconds = usage.get("seconds", body.get("duration"))
        return Transcript(
            text=text,
            is_unsure=bool(chances) and sum(chances) / len(chances) < _LEAST_LOG_PROBABILITY,
            seconds=None if seconds is None else float(seconds),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelUnavailable("speech.listen: the answer is no transcript; check `base_url`") from error


def _is_silence(segment: Any) -> bool:
    """As Whisper itself decides it; what it writes then is made up."""
    chance, words = segment.get("no_speech_prob"), segment.get("avg_logprob")
    return chance is not None and words is not None and chance > _NO_SPEECH and words < _LEAST_LOG_PROBABILITY
