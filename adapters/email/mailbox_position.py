r"""How far a mailbox has been read. Values only.

IMAP numbers the messages of a mailbox upwards (UIDs), as long as its UIDVALIDITY stays the same (RFC 3501, section
2.3.1.1). Whether a message was read is our own note: the flag `\Seen` is set by people and their programs too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

LOOK_BACK = 50
"""UIDs below the mark that are looked at again: a server may show messages in another order than it numbers them."""

_NEVER = datetime.min.replace(tzinfo=UTC)
OVERLAP = timedelta(days=2)
"""SEARCH SINCE knows days only, and in the server's own time zone."""
CLOCKS = timedelta(hours=1)
"""A server numbers messages as they arrive, so one with a higher UID and an earlier time was put there by somebody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Kept after each message.

    Attributes:
        floor: this UID and those below it are none of our business.
        mark: the highest UID that is done.
        done: the UIDs within `LOOK_BACK` of the mark that are done.
        newest_at: when the newest message that is done had arrived; at first, when the mailbox was first looked at.
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
    def beginning(cls, *, uid_validity: int, last_uid: int) -> Progress:
        """For a mailbox that was never looked at: what is in it stays unanswered."""
        return cls(
            uid_validity=uid_validity,
            floor=last_uid,
            mark=last_uid,
            done=frozenset(),
            newest_at=datetime.now(UTC).replace(microsecond=0),  # servers tell seconds
        )

    def renumbered(self, *, uid_validity: int, first_uid: int, last_uid: int) -> Progress:
        """For a mailbox whose UIDs mean nothing any more: read again from where we probably were."""
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

    def is_open(self, uid: int) -> bool:
        """Whether a message that lies there is still to be seen to."""
        return uid in self.waiting or (uid > self.mark - LOOK_BACK and uid not in self.done)

    def is_old(self, uid: int, arrived_at: datetime) -> bool:
        """Whether a message that was not looked at yet under this UID had arrived before those that are done."""
        if uid <= self.moved_to:
            return arrived_at < self.moved_at
        return uid > self.mark and uid not in self.waiting and arrived_at < self.newest_at - CLOCKS

    def later(self, uid: int, since: datetime) -> Progress:
        """With this message put off."""
        return replace(self, waiting={**self.waiting, uid: since})

    def after(self, uid: int, arrived_at: datetime | None) -> Progress:
        """With this message done; `arrived_at` None where that is not known.

        A time to come, of a wrong clock or of a program that put the mail there, must not make what comes then old.
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

    def to_json(self) -> str:
        """For a note."""
        return json.dumps(
            {
                "uid_validity": self.uid_validity,
                "floor": self.floor,
                "mark": self.mark,
                "done": sorted(self.done),
                "newest_at": self.newest_at.isoformat(),
                "moved_to": self.moved_to,
                "moved_at": self.moved_at.isoformat(),
                "waiting": {str(uid): since.isoformat() for uid, since in self.waiting.items()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """From a note."""
        found: dict[str, Any] = json.loads(text)
        return cls(
            uid_validity=found["uid_validity"],
            floor=found["floor"],
            mark=found["mark"],
            done=frozenset(found["done"]),
            newest_at=datetime.fromisoformat(found["newest_at"]),
            moved_to=found["moved_to"],
            moved_at=datetime.fromisoformat(found["moved_at"]),
            waiting={int(uid): datetime.fromisoformat(since) for uid, since in found["waiting"].items()},
        )
