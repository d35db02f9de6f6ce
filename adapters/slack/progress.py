"""How far each message on its way to Slack has come, as the notes have it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime

from gateway.protocols import AdapterNotes

_PREFIX = "message/"


@dataclass(slots=True)
class Progress:
    """What is known of one message on its way.

    Attributes:
        channel: Slack's id of where it goes.
        shown: `ts` of its pieces, in order.
        final: so many of them have their final text; the others are previews.
        is_posting: a piece was given to Slack, and its `ts` is not known yet.
        stream: `ts` of the piece that is written as a chat stream, which nobody may edit before it is stopped.
        files: so many of its files are shown.
        file: Slack's id of the next one, once it is uploaded.
        is_unsure: it cannot be told whether it is there, so what is sent now may be a repeat.
        is_inline: Slack takes no files there, so long blocks stay in the text.
        saved_at_s: since 1970.
    """

    channel: str = ""
    shown: list[str] = field(default_factory=list)
    final: int = 0
    is_posting: bool = False
    stream: str | None = None
    files: int = 0
    file: str | None = None
    is_unsure: bool = False
    is_inline: bool = False
    saved_at_s: float = 0.0


class ProgressNotes:
    """The notes `message/<id>`, which are there as long as Slack has a part of a message only."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._noted: set[str] = set()

    async def load(self, message_id: str) -> Progress:
        """What is known; of most messages, nothing."""
        text = await self._notes.get(_PREFIX + message_id)
        if text:
            self._noted.add(message_id)
        return _read(text)

    async def save(self, message_id: str, progress: Progress) -> None:
        """Keep it; a power cut may lose it, a killed process does not."""
        self._noted.add(message_id)
        progress.saved_at_s = datetime.now(UTC).timestamp()
        await self._notes.put(_PREFIX + message_id, json.dumps(asdict(progress)), is_durable=False)

    async def forget(self, message_id: str) -> None:
        """Slack has the whole message."""
        if message_id in self._noted:  # most messages need no note at all
            self._noted.discard(message_id)
            await self._notes.remove(_PREFIX + message_id)

    async def all(self) -> AsyncIterator[tuple[str, Progress]]:
        """Every message that is on its way, by id."""
        for key in await self._notes.keys(_PREFIX):
            yield key.removeprefix(_PREFIX), _read(await self._notes.get(key))


_KNOWN = frozenset(each.name for each in fields(Progress))


def _read(note: str | None) -> Progress:
    return Progress(**{key: value for key, value in json.loads(note).items() if key in _KNOWN}) if note else Progress()
