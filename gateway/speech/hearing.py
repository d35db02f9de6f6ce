"""Hears what people recorded. Whatever goes wrong is a sentence for the person and the model, and never an error."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import structlog

from gateway.agent.model import Spender
from gateway.domain.heard import MAX_BYTES, TOO_LARGE, Heard
from gateway.errors import BudgetExhausted, ModelError, ModelRefused, StoreError
from gateway.speech.audio import sound_in
from gateway.speech.contract import Listen, Recording, Transcript
from gateway.speech.metered import Metered, TooSlow

MAX_S = 20 * 60.0
MOST_CHARGED_S = 2 * MAX_S
"""A service that says more of one recording is wrong."""
MAX_TEXT_CHARS = 40_000
"""More than anybody says in 20 minutes."""
_TOO_LONG = f"it is longer than {MAX_S / 60:.0f} minutes, which is the most that I listen to"
_UNKNOWN = "it is no kind of recording that I know; OGG, MP3, AAC, M4A, WebM, WAV and FLAC are"
_UNCOUNTED = "I cannot tell how long it is, so I do not listen to it"
_SILENCE = "I heard no words in it"
_NO_BUDGET = "there is no room for it in today's budget"
_SLOW = "the service that listens took too long"
_DOWN = "the service that listens does not work just now"
_REFUSED = "the service that listens does not take it"

# What no store and no terminal takes: control characters, and sequences that begin with one.
_NO_TEXT = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")

_log = structlog.get_logger(__name__)


class Hearing:
    """Asks the service that hears, once for each recording."""

    def __init__(self, listen: Listen, metered: Metered) -> None:
        self._listen = listen
        self._metered = metered

    async def hear(self, data: bytes, spender: Spender) -> Heard:
        """What is said in it, or why it is not known."""
        if len(data) > MAX_BYTES:
            return Heard(fault=TOO_LARGE)
        sound = await asyncio.to_thread(sound_in, data, MAX_S)
        if sound is None:
            return Heard(fault=_UNKNOWN)
        if sound.seconds is None:
            return Heard(fault=_UNCOUNTED)
        if sound.seconds > MAX_S:
            return Heard(seconds=sound.seconds, fault=_TOO_LONG)
        recording = Recording(data=data, filename=sound.filename, media_type=sound.media_type, seconds=sound.seconds)
        try:
            transcript = await self._metered.call(
                lambda: self._asked(recording),
                spender,
                most_s=recording.seconds,
                seconds_of=lambda transcript: _charged_s(transcript, recording.seconds),
            )
        except (ModelError, StoreError) as error:
            _log.warning("recording_not_heard", seconds=round(recording.seconds), reason=str(error))
            fault = _why(error)
            return Heard(seconds=recording.seconds, fault=fault, is_passing=fault in (_NO_BUDGET, _DOWN))
        return _heard(transcript, recording.seconds)

    async def _asked(self, recording: Recording) -> Transcript:
        """A package of another author may give anything."""
        given: Any = await self._listen(recording)
        if not isinstance(given, Transcript) or not isinstance(given.text, str):
            raise TypeError(f"it gave a {type(given).__name__}; expected a Transcript with a text")
        if not isinstance(given.seconds, float | int | None):
            raise TypeError(f"its Transcript has the seconds {given.seconds!r}; expected a number, or None")
        transcript: Transcript = given
        return transcript


def _charged_s(transcript: Transcript, counted_s: float) -> float:
    """The larger of what was counted and what the service says, where that can be the length of a recording."""
    said_s = transcript.seconds or 0.0
    return said_s if counted_s < said_s <= MOST_CHARGED_S else counted_s


def _heard(transcript: Transcript, seconds: float) -> Heard:
    text = _NO_TEXT.sub("", transcript.text.encode("utf-8", "replace").decode()).strip()[:MAX_TEXT_CHARS]
    if not any(character.isalnum() for character in text):
        return Heard(seconds=seconds, fault=_SILENCE)
    return Heard(text=text, seconds=seconds, is_unsure=transcript.is_unsure)


def _why(error: Exception) -> str:
    match error:
        case BudgetExhausted():
            return _NO_BUDGET
        case TooSlow():
            return _SLOW
        case ModelRefused():
            return _REFUSED
        case _:
            return _DOWN
