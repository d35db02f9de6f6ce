"""What people recorded: fetched, kept in their workspace, and heard, before the turn answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from gateway.domain.heard import MAX_BYTES, TOO_LARGE, Heard
from gateway.messages import Attachment, InboundMessage
from gateway.pipeline.attachments import COULD_NOT, Keeper, fetched
from gateway.protocols import ChannelAdapter

Hear = Callable[[bytes], Awaitable[Heard]]
NO_SERVICE = "I cannot listen here, because this gateway has no service for that; please write"


def recordings_in(message: InboundMessage) -> Sequence[Attachment]:
    """Those that the sender has recorded."""
    return [file for file in message.attachments if file.is_voice]


async def heard_in(
    message: InboundMessage,
    adapter: ChannelAdapter | None,
    hear: Hear | None,
    keeper: Keeper | None,
    known: Sequence[Heard] = (),
) -> list[Heard]:
    """What is said in each recording of the message, or why that is not known.

    Args:
        hear: None: there is no service.
        known: what an earlier try of the turn has found, of which only that is asked again which may be another by now.
    """
    found = []
    for number, file in enumerate(recordings_in(message), start=1):
        before = known[number - 1] if number <= len(known) else None
        if before is None or before.is_passing:
            before = await _heard(file, number, adapter, hear, keeper, is_own=message.is_trusted_text)
        found.append(before)
    return found


async def _heard(
    file: Attachment,
    number: int,
    adapter: ChannelAdapter | None,
    hear: Hear | None,
    keeper: Keeper | None,
    *,
    is_own: bool,
) -> Heard:
    if file.size_bytes > MAX_BYTES:
        return Heard(fault=TOO_LARGE)
    if hear is None and keeper is None:
        return Heard(fault=NO_SERVICE)
    data, fault = (None, "") if adapter is None else await fetched(file, adapter, MAX_BYTES)
    if data is None:
        return Heard(fault=f"it {fault or COULD_NOT}")
    kept = ""
    if keeper is not None:
        # In a folder of its own: a later try of the turn keeps the files of the message, and not the recordings again.
        name = f"recorded/voice-{number}.{await asyncio.to_thread(_extension, data)}"
        kept = await keeper.keep(name, data, is_own=is_own)
    heard = Heard(fault=NO_SERVICE) if hear is None else await hear(data)
    return replace(heard, kept=kept)


def _extension(data: bytes) -> str:
    """Of a file with these bytes; the platform's own word for it is not asked."""
    from gateway.speech.audio import sound_in  # noqa: PLC0415 (only for recordings)

    sound = sound_in(data, most_s=0.0)
    return "bin" if sound is None else sound.extension
