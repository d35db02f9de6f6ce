"""Says an answer: asks the service that speaks, and makes Opus in Ogg of what it gives, as voice messages are."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gateway.agent.model import Spender
from gateway.errors import ModelUnavailable
from gateway.speech.audio import Sound, sound_in
from gateway.speech.contract import Speak
from gateway.speech.metered import Metered
from gateway.speech.ogg import is_opus, waveform

if TYPE_CHECKING:
    from gateway.sandbox.tiers import Tier

SLOWEST_CHARS_PER_S = 8.0
"""A slow voice says more than that; what it may cost is reserved by it."""
MOST_S = 3_600.0
"""No answer is longer, whatever a sound says of itself."""
_PROGRAM = "ffmpeg"
_PLACES = "/usr/local/bin:/usr/bin:/bin"
_KBITS = "32k"
_FORMATS = {"aac": "aac", "flac": "flac", "m4a": "mov", "mp3": "mp3", "ogg": "ogg", "wav": "wav", "webm": "matroska"}
"""What ffmpeg calls them."""
_WALL_S, _MEMORY_BYTES = 30.0, 1 << 30

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A voice note; `is_voice` where it is Opus in Ogg, else it is a file that people play; `waveform` in base 64."""

    data: bytes
    sound: Sound
    is_voice: bool
    waveform: str = ""


class Saying:
    """Makes voice notes."""

    def __init__(self, speak: Speak, metered: Metered, tier: Callable[[], Awaitable[Tier | None]]) -> None:
        """`tier` finds where ffmpeg runs; it is asked with the first sound that is no Opus."""
        self._speak = speak
        self._metered = metered
        self._tier = tier

    async def say(self, text: str, spender: Spender) -> Said:
        """Say it.

        Raises:
            ModelUnavailable, ModelRefused, BudgetExhausted, StoreError: why it could not be made.
        """
        data, sound = await self._metered.call(
            lambda: self._asked(text),
            spender,
            most_s=len(text) / SLOWEST_CHARS_PER_S,
            seconds_of=lambda said: min(said[1].seconds or 0.0, MOST_S),
        )
        if not is_opus(data):
            data, sound = await self._as_opus(data, sound) or (data, sound)
        if not is_opus(data):
            return Said(data=data, sound=sound, is_voice=False)
        return Said(data=data, sound=sound, is_voice=True, waveform=await asyncio.to_thread(waveform, data))

    async def _asked(self, text: str) -> tuple[bytes, Sound]:
        data = await self._speak(text)
        sound = await asyncio.to_thread(sound_in, data)
        if sound is None or sound.seconds == 0:
            raise ModelUnavailable(f"{self._metered.name} gave {len(data)} bytes that are no sound; check `base_url`")
        return data, sound

    async def _as_opus(self, data: bytes, sound: Sound) -> tuple[bytes, Sound] | None:
        """The same as voice messages are; None where that cannot be made here."""
        program, tier = converter(), await self._tier()
        if program is None or tier is None:
            missing = "ffmpeg is not installed" if program is None else "no sandbox works here"
            _log.info("voice_note_as_file", reason=missing)
            return None
        opus = await converted(tier, program, data, _FORMATS[sound.extension])
        made = None if opus is None else await asyncio.to_thread(sound_in, opus)
        return None if opus is None or made is None else (opus, made)


def converter() -> str | None:
    """The path of ffmpeg, where programs that are shut in have it, too."""
    return shutil.which(_PROGRAM, path=_PLACES)


async def converted(tier: Tier, program: str, data: bytes, form: str) -> bytes | None:
    """What ffmpeg makes of a sound, shut in; None where it fails. It is read as `form` and nothing else."""
    from gateway.sandbox.running import SandboxFailed, run, temporary  # noqa: PLC0415 (only where it is needed)
    from gateway.sandbox.tiers import Limits, Plan  # noqa: PLC0415 (as above)

    command = [
        program, "-nostdin", "-hide_banner", "-loglevel", "error", "-threads", "1", "-protocol_whitelist", "file,pipe",
        "-f", form, "-i", "in", "-vn", "-map_metadata", "-1", "-ac", "1", "-c:a", "libopus", "-b:a", _KBITS,
        "-application", "voip", "-f", "ogg", "out",
    ]  # fmt: skip
    limits = Limits(wall_s=_WALL_S, memory_bytes=_MEMORY_BYTES)
    try:
        async with temporary() as workspace, temporary() as place:
            source, made = workspace / "in", workspace / "out"
            await asyncio.to_thread(source.write_bytes, data)
            ran = await run(tier, Plan(workspace=workspace, temporary=place, limits=limits), command)
            found = await asyncio.to_thread(_read, made) if ran.exit_code == 0 else None
    except (SandboxFailed, OSError) as error:  # OSError: the disk is full
        _log.warning("sound_not_converted", reason=str(error))
        return None
    if found is None or not is_opus(found):
        said = ran.output.decode("utf-8", "replace").strip()[-300:]
        _log.warning("sound_not_converted", exit_code=ran.exit_code, said=said)
        return None
    return found


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None
