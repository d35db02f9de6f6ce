r"""How far a mailbox has been read. Values only.

IMAP numbers the messages of a mailbox upwards (UIDs), as long as its UIDVALIDITY stays the same (RFC 3501, section
2.3.1.1). Whether a message was read is our own note: the flag `\Seen` is set by people and their programs too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

LOOK_BACK = 50
"""UIDs below the mark that are looked at again: a server may show messages in another order than it numbers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Kept after each message.

    Attributes:
        floor: this UID and those below it are none of our business.
        mark: the highest UID that is done.
        done: the UIDs within `LOOK_BACK` of the mark that are done.
        began_at: when this mailbox was first looked at; what was written before that is none of our business.
        newest_at: when the newest message that is done had arrived.
        moved_to: UIDs up to this one were given to messages that may be old, when the server numbered them anew.
    """

    uid_validity: int
    floor: int
    mark: int
    done: frozenset[int]
    began_at: datetime
    newest_at: datetime
    moved_to: int = 0

    @classmethod
    def beginning(cls, *, uid_validity: int, last_uid: int) -> Progress:
        """For a mailbox that was never looked at: what is in it stays unanswered."""
        now = datetime.now(UTC)
        return cls(
            uid_validity=uid_validity,
            floor=last_uid,
            mark=last_uid,
            done=frozenset(),
            began_at=now.replace(microsecond=0),
            newest_at=now,
        )

    def renumbered(self, *, uid_validity: int, first_uid: int, last_uid: int) -> Progress:
        """For a mailbox whose UIDs mean nothing any more: read again from where we probably were."""
        return replace(
            self,
            uid_validity=uid_validity,
            floor=first_uid - 1,
            mark=first_uid - 1,
            done=frozenset(),
            moved_to=last_uid,
        )

    @property
    def first_uid(self) -> int:
        """To look for messages from here on."""
        return max(self.floor, self.mark - LOOK_BACK) + 1

    def after(self, uid: int, arrived_at: datetime | None) -> Progress:
        """With this message done; `arrived_at` None where that is not known."""
        mark = max(self.mark, uid)
        return replace(
            self,
            mark=mark,
            done=frozenset(each for each in (*self.done, uid) if each > mark - LOOK_BACK),
            newest_at=self.newest_at if arrived_at is None else max(self.newest_at, arrived_at),
        )

    def to_json(self) -> str:
        """For a note."""
        return json.dumps(
            {
                "uid_validity": self.uid_validity,
                "floor": self.floor,
                "mark": self.mark,
                "done": sorted(self.done),
                "began_at": self.began_at.isoformat(),
                "newest_at": self.newest_at.isoformat(),
                "moved_to": self.moved_to,
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
            began_at=datetime.fromisoformat(found["began_at"]),
            newest_at=datetime.fromisoformat(found["newest_at"]),
            moved_to=found["moved_to"],
        )
