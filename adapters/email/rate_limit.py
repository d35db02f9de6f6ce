"""How much of one sender is answered: so many mails an hour, and not the same words again and again."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

_HOUR = timedelta(hours=1)
_CROWD = 1_000  # senders; beyond it those of long ago are forgotten
_LONG_CHARS = 30
_SAME_LONG = 5
_SAME_SHORT = 20
_SAME_BUT_NUMBERS = 20  # within an hour
_DIGITS = re.compile(r"\d+")


@dataclass(slots=True)
class _Row:
    """Mails in a row that say the same: when they came, by their names."""

    words: str = ""
    mails: dict[str, datetime] = field(default_factory=dict)


@dataclass(slots=True)
class _Sender:
    """What somebody sent lately.

    Attributes:
        seen_at: when the last mail came.
        taken: when, and which mail, the oldest first; those of the last hour.
        said: what the last mail said, as it is and without its numbers, and the mails in a row that said the same.
    """

    seen_at: datetime
    taken: deque[tuple[datetime, str]] = field(default_factory=deque)
    said: list[_Row] = field(default_factory=lambda: [_Row(), _Row()])


class Allowance:
    """Counts by the time of arrival, so that a backlog is no flood. Two programs that answer each other are stopped.

    A program that does not say that it is one sends the same words each time, perhaps with another number in them.
    """

    def __init__(self, mails_per_hour: int) -> None:
        self._mails_per_hour = mails_per_hour
        self._senders: dict[str, _Sender] = {}
        self._crowd = _CROWD

    def has_room(self, sender: str, name: str, at: datetime) -> bool:
        """Whether this mail may be taken now; if so, it counts, once.

        Args:
            name: of the mail.
            at: when it arrived, or now where it has waited for room.
        """
        taken = self._sender(sender, at).taken
        while taken and taken[0][0] <= at - _HOUR:
            taken.popleft()
        if any(each == name for _, each in taken):
            return True
        if len(taken) >= self._mails_per_hour:
            return False
        taken.append((at, name))
        return True

    def is_repeating(self, sender: str, name: str, text: str, at: datetime) -> bool:
        """Whether the sender has said this so often in a row that it is a program."""
        exact, numbered = self._sender(sender, at).said
        said = " ".join(text.split()).casefold()
        is_long = len(said) >= _LONG_CHARS
        most = _SAME_LONG if is_long else _SAME_SHORT
        if _is_full(exact, said, name, at, most):
            return True
        numbered.mails = {each: when for each, when in numbered.mails.items() if when > at - _HOUR}
        return is_long and _is_full(numbered, _DIGITS.sub("0", said), name, at, _SAME_BUT_NUMBERS)

    def _sender(self, sender: str, at: datetime) -> _Sender:
        if len(self._senders) >= self._crowd:
            recent = {each: one for each, one in self._senders.items() if one.seen_at > at - _HOUR}
            self._senders = recent
            self._crowd = max(_CROWD, 2 * len(recent))
        found = self._senders.setdefault(sender, _Sender(seen_at=at))
        found.seen_at = max(found.seen_at, at)
        return found


def _is_full(row: _Row, said: str, name: str, at: datetime, most: int) -> bool:
    """Whether the row has as many mails as it may; else this one is added to it, or begins another."""
    words = hashlib.sha256(said.encode(errors="replace")).hexdigest()
    if words != row.words:
        row.words, row.mails = words, {}
    if len(row.mails) >= most and name not in row.mails:
        return True
    row.mails[name] = at
    return False
