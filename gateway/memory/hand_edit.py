"""What a person changed, and what they had not read: an edit by hand, fitted to the text as the agent left it. Pure.

An editor saves the text that it opened, with the person's changes. What was written to the file in between is not in
it, and the person did not mean to take it out. So the version that the editor had read is looked for in the history,
and both changes of it are merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches

from gateway.memory import rules
from gateway.memory.journal import PastChange, iso
from gateway.memory.merging import merge_for_mine

LOOK_BACK_ENTRIES = 10_000
LOOK_BACK = timedelta(hours=24)
"""An editor that was open for longer is taken to have read the newest version."""
TOO_YOUNG = timedelta(seconds=2)
"""No person reads an update and takes it out within this time."""
FEW_LINES = 8
"""In a text of so few lines a line that was corrected counts as left: it may be the only one."""


@dataclass(frozen=True, slots=True)
class MergedEdit:
    """The saved text, with what it had not seen.

    Attributes:
        data: what the file should hold.
        unread: the changes that the editor had not read, newest first.
        displaced: lines of the agent's that gave way, because the person changed the same ones.
    """

    data: bytes
    unread: Sequence[PastChange] = ()
    displaced: Sequence[str] = ()

    def proposed(self) -> tuple[int, str] | None:
        """The id of the newest entry that what was displaced may come from, and what was."""
        text = "\n".join(self.displaced).strip()
        turns = [entry.id for entry in self.unread if entry.action in {"add", "replace", "remove"}]
        return (turns[0], text) if text and turns else None


def fit(
    saved: bytes, saved_at: datetime, ours: bytes, newest_first: Sequence[PastChange], *, is_late: bool = False
) -> MergedEdit:
    """Unite what a person saved with what was written since they read the text. Takes time for texts that are large.

    Args:
        saved: the person's text.
        saved_at: when they saved it.
        ours: the text as we left it.
        newest_first: the document's last changes; the first one left `ours`.
        is_late: it was saved into the version before our last write, so that this one cannot have been read.
    """
    least, opened_before = 0, saved_at
    if is_late and newest_first:
        last = newest_first[0].written_at
        least = sum(entry.written_at == last and not entry.is_by_hand for entry in newest_first)
        opened_before = min(saved_at, datetime.fromisoformat(last))
    unread = _unread(saved, saved_at, ours, _recent(opened_before, newest_first), least)
    if not unread:
        return MergedEdit(saved)
    base = ours
    for entry in unread:
        if (delta := entry.delta) is not None:
            base = delta.revert(base)
    texts = (rules.to_newlines(rules.decode(each)) for each in (base, saved, ours))
    merged, displaced = merge_for_mine(*texts)
    return MergedEdit(rules.encode(merged), unread, displaced)


def both(first: MergedEdit, late: MergedEdit, ours: bytes, newest_first: Sequence[PastChange]) -> MergedEdit:
    """Two saves by hand of which neither knows the other, fitted to `ours`. Where both changed a line, both stay."""
    texts = (rules.to_newlines(rules.decode(each)) for each in (ours, first.data, late.data))
    merged, second_ones = merge_for_mine(*texts)
    if second_ones:
        merged = "\n".join([merged.removesuffix("\n"), *second_ones, ""])
    unread = first.unread or late.unread or newest_first[:1]
    return MergedEdit(rules.encode(merged), unread, [*first.displaced, *late.displaced])


def _unread(
    saved: bytes, saved_at: datetime, ours: bytes, entries: Sequence[PastChange], least: int
) -> Sequence[PastChange]:
    """The changes that the person had not read, newest first: those without which the saved text is explained best.

    At least so many are unread.

    Best is the version from which the fewest lines had to be changed; of equals the newest. A version of which less
    than half is left explains nothing. A text that is an earlier version again was meant to be, if that can be.
    """
    distance = _Distance(saved, ours, _by_hand(entries))
    fewest, unread = distance.changed, 0
    for count, entry in enumerate(entries, start=1):
        distance.go_back(entry)
        if distance.is_none:
            is_meant = saved_at - datetime.fromisoformat(entry.written_at) > TOO_YOUNG
            if count <= least:
                unread = least
            elif fewest:  # else they took out of a later version what they had put in
                unread = 0 if is_meant else count
            break
        if count <= least or (distance.changed < fewest and distance.is_likely):
            fewest, unread = distance.changed, count
    # Who saves twice has read what was saved before.
    return [] if all(entry.is_by_hand for entry in entries[:unread]) else entries[:unread]


def _recent(opened_before: datetime, newest_first: Sequence[PastChange]) -> Sequence[PastChange]:
    since = iso(opened_before - LOOK_BACK)
    gone = (at for at, entry in enumerate(newest_first) if entry.prefix_bytes is None or entry.written_at < since)
    return newest_first[: next(gone, len(newest_first))]


def _by_hand(entries: Sequence[PastChange]) -> set[str]:
    """The lines that people brought in or took out; an edit counts together with what brought the unread back."""
    found: set[str] = set()
    net = Counter[str]()
    for entry in entries:
        if entry.action != "edit":
            continue
        net.update(_lines(entry.inserted))
        net.subtract(_lines(entry.removed))
        if entry.is_by_hand:
            found.update(line for line, count in net.items() if count)
            net.clear()
    return found


class _Distance:
    """How many lines of one version a person must have changed; goes back from the newest, change by change.

    What people had changed before does not count: they may do so again.
    """

    def __init__(self, saved: bytes, newest: bytes, by_hand: Collection[str]) -> None:
        self._more = Counter(_lines(saved))  # what the saved text has more of than the version; less is below zero
        self._size = self._more.total()
        self._more.subtract(_lines(newest))
        self._by_hand = by_hand
        self._differing = sum(count != 0 for count in self._more.values())
        counted = [count for line, count in self._more.items() if line not in by_hand]
        self.changed = sum(map(abs, counted))
        self._added = sum(count for count in counted if count > 0)

    @property
    def is_none(self) -> bool:
        """Whether they differ in blank lines at most."""
        return not self._differing

    @property
    def is_likely(self) -> bool:
        """Whether at least half of the version is left in the saved text, and anything at all."""
        kept, missing = self._size - self._added, self.changed - self._added
        if not 0 < kept >= missing and max(self._added, missing) <= FEW_LINES:
            corrected = self._corrected()
            kept, missing = kept + corrected, missing - corrected
        return 0 < kept >= missing

    def _corrected(self) -> int:
        came = [line for line, count in self._more.items() if count > 0 and line not in self._by_hand]
        went = [line for line, count in self._more.items() if count < 0]
        return sum(bool(get_close_matches(line, came, 1)) for line in went)

    def go_back(self, entry: PastChange) -> None:
        """Take the version from before a change."""
        for line in _lines(entry.inserted):
            self._shift(line, 1)
        for line in _lines(entry.removed):
            self._shift(line, -1)

    def _shift(self, line: str, by: int) -> None:
        before = self._more[line]
        self._more[line] = after = before + by
        self._differing += (after != 0) - (before != 0)
        if line not in self._by_hand:
            self.changed += abs(after) - abs(before)
            self._added += max(after, 0) - max(before, 0)


def _lines(data: bytes | None) -> Sequence[str]:
    """The lines that are not blank, each as often as it is there."""
    if not data:
        return ()
    text = rules.to_newlines(rules.decode(data))
    return [line for each in text.split("\n") if (line := each.strip())]
