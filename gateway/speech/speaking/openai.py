"""`openai`: every server that speaks as OpenAI does: Kokoro, Piper behind an adapter, LocalAI and others.

https://platform.openai.com/docs/api-reference/audio/createSpeech (read 2026-11). Opus is asked for; a server that knows
only WAV or MP3 gives what it has, or refuses, and then is asked for WAV, once, and that is kept.
"""

from __future__ import annotations

import json
from typing import Literal

from gateway.agent.providers.models import CallFailed
from gateway.config.values import Text
from gateway.errors import ModelRefused
from gateway.speech.contract import Speak
from gateway.speech.endpoint import EndpointConfig, SpeechEndpoint

MOST_BYTES = 25 << 20
_Form = Literal["opus", "wav"]


class Config(EndpointConfig):
    """The model that speaks, and the name of its voice."""

    voice: Text = "alloy"


def speak(config: Config) -> Speak:
    """Ask it."""
    endpoint = SpeechEndpoint("speech.speak", config)
    form: list[_Form] = ["opus"]

    async def say(text: str) -> bytes:
        try:
            try:
                return await _asked(endpoint, config, text, form[-1])
            except CallFailed as failure:
                if form[-1] == "wav" or not isinstance(failure.error, ModelRefused):
                    raise
                sound = await _asked(endpoint, config, text, "wav")
                form.append("wav")
                return sound
        except CallFailed as failure:
            raise failure.error from failure

    return say


async def _asked(endpoint: SpeechEndpoint, config: Config, text: str, form: _Form) -> bytes:
    asked = {"model": config.model, "voice": config.voice, "input": text, "response_format": form}
    body = json.dumps(asked).encode()
    return await endpoint.post("/audio/speech", body, content_type="application/json", most_bytes=MOST_BYTES)
