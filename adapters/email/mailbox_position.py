r"""How far a mailbox has been read, and which mails break the reading.

IMAP numbers the messages of a mailbox upwards (UIDs), as long as its UIDVALIDITY stays the same (RFC 3501, section
2.3.1.1). We note ourselves what was read, since people and their programs set the flag `\Seen` too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter

from gateway.protocols import AdapterNotes

LOOK_BACK = 50
"""UIDs below the mark that are looked at again: a server may show messages in another order than it numbers them."""

_NEVER = datetime.min.replace(tzinfo=UTC)
OVERLAP = timedelta(days=2)
"""SEARCH SINCE has whole days only, in the server's time zone."""
CLOCKS = timedelta(hours=1)
"""A server numbers messages as they arrive, so one with a higher UID and an earlier time was put there by somebody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxPosition:
    """Noted after each message.

    Attributes:
        floor: this UID and those below it are ignored.
        mark: the highest UID that is done.
        done: the UIDs within `LOOK_BACK` of the mark that are done.
        newest_at: when the newest message that is done had arrived; at first, when the mailbox was first opened.
        moved_to: UIDs up to this one were given a second time, to messages that the server had before.
        moved_at: those of them that had arrived before this are done.
        waiting: UIDs that cannot be decided about yet, and since when.
    """

    uid_validity: int
    floor: int
    mark: int
    done: frozenset[int]
    newest_at: datetime
    waiting: Mapping[int, datetime] = field(default_factory=dict)
    moved_to: int = 0
    moved_at: datetime = _NEVER

    @classmethod
    def initial(cls, *, uid_validity: int, last_uid: int) -> MailboxPosition:
        """For a mailbox that was never opened: what is in it stays unanswered."""
        return cls(
            uid_validity=uid_validity,
            floor=last_uid,
            mark=last_uid,
            done=frozenset(),
            newest_at=datetime.now(UTC).replace(microsecond=0),  # servers tell seconds
        )

    def renumbered(self, *, uid_validity: int, first_uid: int, last_uid: int) -> MailboxPosition:
        """For a mailbox with new UIDs: read again from where we probably were."""
        return replace(
            self,
            uid_validity=uid_validity,
            floor=first_uid - 1,
            mark=first_uid - 1,
            done=frozenset(),
            waiting={},
            moved_to=last_uid,
            moved_at=self.newest_at if not self.waiting else min(self.newest_at, *self.waiting.values()) - OVERLAP,
        )

    @property
    def first_uid(self) -> int:
        """To look for messages from here on."""
        return min([max(self.floor, self.mark - LOOK_BACK) + 1, *self.waiting])

    def is_pending(self, uid: int) -> bool:
        """Whether a message in the mailbox is not done yet."""
        return uid in self.waiting or (uid > self.mark - LOOK_BACK and uid not in self.done)

    def is_old(self, uid: int, arrived_at: datetime) -> bool:
        """Whether a message that is new under this UID had arrived before those that are done."""
        if uid <= self.moved_to:
            return arrived_at < self.moved_at
        return uid > self.mark and uid not in self.waiting and arrived_at < self.newest_at - CLOCKS

    def with_deferred(self, uid: int, since: datetime) -> MailboxPosition:
        """With this message deferred."""
        return replace(self, waiting={**self.waiting, uid: since})

    def with_done(self, uid: int, arrived_at: datetime | None) -> MailboxPosition:
        """With this message done; `arrived_at` None where that is not known.

        A future time, of a wrong clock or of a program that put the mail there, must not make later mail old.
        """
        mark = max(self.mark, uid)
        newest_at = None if arrived_at is None else min(arrived_at, datetime.now(UTC))
        return replace(
            self,
            mark=mark,
            done=frozenset(each for each in (*self.done, uid) if each > mark - LOOK_BACK),
            newest_at=self.newest_at if newest_at is None else max(self.newest_at, newest_at),
            waiting={each: since for each, since in self.waiting.items() if each != uid},
        )


POSITION_JSON = TypeAdapter(MailboxPosition)
"""For a note."""


# ---- mails that break the reading -----------------------------------------------------------------------------------


MAX_TRIES = 5
PATIENCE = timedelta(minutes=10)
SUSPICIOUS_TRIES = 3
SUSPICIOUS_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _Attempt:
    tries: int
    since: datetime


_ATTEMPT_JSON = TypeAdapter(_Attempt)


class ReadAttempts:
    """Counts how often the reading of each mail was begun and did not come to an end.

    A connection may break by chance, or because of a mail. So a mail whose reading broke off three times, over half a
    minute, is read after all others; it is given up after several tries over some minutes. Until then the order stays:
    kills in quick succession all hit the mail that is read first.

    The counts are kept in the notes, so that a mail which ends the process is found out too.
    """

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._prefix = ""
        self._open: dict[int, _Attempt] = {}

    async def load(self, uid_validity: int) -> None:
        """Load the notes of this mailbox."""
        self._prefix = f"tries/{uid_validity}."
        self._open = {}
        for key in await self._notes.keys(self._prefix):
            note = await self._notes.get(key)
            if note is not None:
                self._open[int(key.removeprefix(self._prefix))] = _ATTEMPT_JSON.validate_json(note)

    @property
    def suspects(self) -> list[int]:
        """UIDs to be read after all others, in order."""
        before = datetime.now(UTC) - SUSPICIOUS_AFTER
        tried = self._open.items()
        return sorted(uid for uid, each in tried if each.tries >= SUSPICIOUS_TRIES and each.since <= before)

    def should_give_up(self, uid: int) -> bool:
        """Whether it is time to give up."""
        attempt = self._open.get(uid)
        return attempt is not None and attempt.tries >= MAX_TRIES and datetime.now(UTC) - attempt.since >= PATIENCE

    async def begin(self, uid: int) -> None:
        """Count a try."""
        before = self._open.get(uid) or _Attempt(tries=0, since=datetime.now(UTC))
        attempt = self._open[uid] = _Attempt(tries=before.tries + 1, since=before.since)
        await self._notes.put(f"{self._prefix}{uid}", _ATTEMPT_JSON.dump_json(attempt).decode(), is_durable=False)

    async def end(self, uid: int) -> None:
        """Forget the tries of a mail that was read."""
        self._open.pop(uid, None)
        await self._notes.remove(f"{self._prefix}{uid}")
