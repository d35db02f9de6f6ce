"""Puts speech together: who hears, and who says; a part of the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import structlog

from gateway.config.packages import Packages
from gateway.config.speech import LISTEN, LISTENING, SPEAK, SPEAKING, ServiceConfig, load_speech_kind
from gateway.files.sent_files import drop_kept
from gateway.pipeline.open_turn import Hearing
from gateway.pipeline.voice_notes import VoiceNotes
from gateway.runtime.logs import hiding, secrets_in

if TYPE_CHECKING:
    from gateway.app.wiring import Composition
    from gateway.sandbox.tiers import Tier
    from gateway.speech.contract import Listen, Speak

_log = structlog.get_logger(__name__)


def hearing_of(gateway: Composition) -> Hearing | None:
    """What hears recordings; None where nothing is configured, or it cannot be used, and then that is said."""
    config = gateway.config.speech.listen
    listen = None if config is None else _made(gateway, LISTEN, config, listening_of)
    if config is None or listen is None:
        return None
    from gateway.speech.hearing import Hearing as Hears  # noqa: PLC0415 (only where it is configured)
    from gateway.speech.metered import Metered  # noqa: PLC0415 (as above)

    metered = Metered(meter=gateway.meter, name=LISTEN, purpose="listen", timeout_s=config.timeout_s)
    return Hears(listen, metered).hear


def voice_notes_of(gateway: Composition, tier: Callable[[], Awaitable[Tier | None]]) -> VoiceNotes | None:
    """What makes voice notes, as `hearing_of`; the outbox knows of it.

    Args:
        tier: finds where ffmpeg runs.
    """
    config = gateway.config.speech.speak
    speak = None if config is None else _made(gateway, SPEAK, config, speaking_of)
    if config is None or speak is None:
        return None
    from gateway.speech.metered import Metered  # noqa: PLC0415 (only where it is configured)
    from gateway.speech.saying import Saying  # noqa: PLC0415 (as above)

    metered = Metered(meter=gateway.meter, name=SPEAK, purpose="speak", timeout_s=config.timeout_s)
    say = Saying(speak, metered, tier).say
    voice = VoiceNotes(say, gateway.store.person_settings, gateway.channels, gateway.keep_file)
    gateway.outbox.voiced = voice.make
    if not gateway.store.is_shared:  # of other workers one may have made the same, and a sweep finds what is left
        gateway.outbox.not_sent = drop_kept
    return voice


def listening_of(config: ServiceConfig) -> Listen:
    """What asks the service that hears; raises ValueError where it cannot be used, for people."""
    listen: Listen = _asking(config, LISTENING)
    return listen


def speaking_of(config: ServiceConfig) -> Speak:
    """What asks the service that speaks; raises as `listening_of`."""
    speak: Speak = _asking(config, SPEAKING)
    return speak


def _asking(config: ServiceConfig, packages: Packages) -> Any:
    if config.fault:
        raise ValueError(config.fault)
    maker = packages.maker
    try:
        return load_speech_kind(packages, config.kind).made(maker, config.settings)
    except Exception as error:
        reason = hiding(secrets_in(config.settings))(f"{type(error).__name__}: {error}".partition("\n")[0])
        text = f"`{maker}` of {config.kind} failed ({reason}); correct its keys, or ask its author"
        raise ValueError(text) from error


def _made(gateway: Composition, name: str, config: ServiceConfig, asking: Callable[[ServiceConfig], Any]) -> Any:
    try:
        return asking(config)
    except ValueError as error:
        _log.error("speech_left_out", left_out=name, error=str(error))
        gateway.left_out.append(f"{name} is left out: {error}")
        return None
