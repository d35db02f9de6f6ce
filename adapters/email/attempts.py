"""Which mails were begun to be read, and how often that never came to an end.

A connection may break by chance, a mail may break it each time, and nobody can tell the one from the other at once. So
a mail that was in the way three times, over half a minute, is read after all others, and is given up only after several
tries over some minutes. Until then the order is kept: kills in quick succession all hit the mail that is read first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.protocols import AdapterNotes

MAX_TRIES = 5
PATIENCE = timedelta(minutes=10)
SUSPICIOUS_TRIES = 3
SUSPICIOUS_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _Attempt:
    tries: int
    since: datetime


class Attempts:
    """Kept among the notes, so that a mail which ends the process is found out too."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._prefix = ""
        self._open: dict[int, _Attempt] = {}

    async def load(self, uid_validity: int) -> None:
        """Take up what was noted of this mailbox."""
        self._prefix = f"tries/{uid_validity}."
        self._open = {}
        for key in await self._notes.keys(self._prefix):
            note = await self._notes.get(key)
            if note is not None:
                found = json.loads(note)
                since = datetime.fromisoformat(found["since"])
                self._open[int(key.removeprefix(self._prefix))] = _Attempt(tries=found["tries"], since=since)

    @property
    def suspects(self) -> list[int]:
        """UIDs to be read after all others, in order."""
        before = datetime.now(UTC) - SUSPICIOUS_AFTER
        tried = self._open.items()
        return sorted(uid for uid, each in tried if each.tries >= SUSPICIOUS_TRIES and each.since <= before)

    def is_hopeless(self, uid: int) -> bool:
        """Whether it is time to give up."""
        attempt = self._open.get(uid)
        return attempt is not None and attempt.tries >= MAX_TRIES and datetime.now(UTC) - attempt.since >= PATIENCE

    async def begin(self, uid: int) -> None:
        """Count a try."""
        before = self._open.get(uid) or _Attempt(tries=0, since=datetime.now(UTC))
        self._open[uid] = _Attempt(tries=before.tries + 1, since=before.since)
        note = json.dumps({"tries": before.tries + 1, "since": before.since.isoformat()})
        await self._notes.put(f"{self._prefix}{uid}", note, is_durable=False)

    async def end(self, uid: int) -> None:
        """It came to an end, whatever that was."""
        self._open.pop(uid, None)
        await self._notes.remove(f"{self._prefix}{uid}")
