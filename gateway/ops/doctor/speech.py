"""Checks of speech: services that hear and speak, and what makes voice messages of what they say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from gateway.config.file import CONFIG_NAME
from gateway.config.speech import LISTEN, SPEAK, ServiceConfig
from gateway.errors import ModelError
from gateway.ops.doctor.finding import Finding, Ground
from gateway.sandbox.probing import find_sandbox

if TYPE_CHECKING:
    from gateway.speech.contract import Listen, Speak

T = TypeVar("T")
_WORDS = "Good day."


async def speech(ground: Ground) -> AsyncIterator[Finding]:
    """Each half that is configured is asked once, where the operator wants that: it may cost a cent."""
    if ground.config is None:
        return
    config = ground.config.speech
    if config.listen is not None:
        yield await _tried(LISTEN, "hears", config.listen, ground.parts.listening_of, _hears, asks=ground.asks_models)
    if config.speak is not None:
        yield await _tried(SPEAK, "speaks", config.speak, ground.parts.speaking_of, _speaks, asks=ground.asks_models)
        yield await _converter(ground.config.sandbox.command)


async def _tried(
    name: str,
    does: str,
    config: ServiceConfig,
    made: Callable[[ServiceConfig], T],
    ask: Callable[[T], Awaitable[None]],
    *,
    asks: bool,
) -> Finding:
    try:
        service = made(config)
        if not asks:
            return Finding(
                f"speech-{does}", "note", f"{name} is {config.kind}. It was not asked: `ethos doctor --ask` does."
            )
        async with asyncio.timeout(config.timeout_s):
            await ask(service)
    except TimeoutError:
        why = f"no answer within {config.timeout_s:g} s"
    except Exception as error:  # noqa: BLE001 (a package of somebody else may raise anything)
        is_told = isinstance(error, ModelError | ValueError)
        why = str(error) if is_told else f"{type(error).__name__}: {error}"
    else:
        return Finding(f"speech-{does}", "note", f"The service that {does} ({name}, {config.kind}) works.")
    advice = f"Correct `{name}` in {CONFIG_NAME}, or see to the service; then `ethos doctor --ask`."
    return Finding(
        f"speech-{does}", "problem", f"The service that {does} ({name}, {config.kind}) does not work: {why}.", advice
    )


async def _hears(listen: Listen) -> None:
    """A second of silence: what comes back does not matter."""
    from gateway.speech.contract import Recording  # only where it is configured

    silence = bytes(32_000)
    form = b"fmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00"
    body = b"WAVE" + form + b"data" + len(silence).to_bytes(4, "little") + silence
    data = b"RIFF" + len(body).to_bytes(4, "little") + body
    recording = Recording(data=data, filename="voice.wav", media_type="audio/wav", seconds=1.0)
    await listen(recording)


async def _speaks(speak: Speak) -> None:
    from gateway.speech.audio import sound_in  # only where it is configured

    data = await speak(_WORDS)
    if sound_in(data) is None:
        raise ValueError(f"it gave {len(data)} bytes that are no sound; is it a server of speech?")


async def _converter(words: tuple[str, ...]) -> Finding:
    from gateway.speech.saying import converter  # only where it is configured

    program, sandbox = converter(), await find_sandbox(words)
    if program is not None and sandbox.tier is not None:
        return Finding(
            "speech-converter", "note", f"What is no Opus becomes a voice message by {program}, in {sandbox.tier.name}."
        )
    missing = sandbox.remedy if program is not None else "install ffmpeg"
    what = "A service that speaks WAV or MP3 only is sent as an audio file, and not as a voice message."
    return Finding("speech-converter", "warning", what, f"If yours is one: {missing}.")
