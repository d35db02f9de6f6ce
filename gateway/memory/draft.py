"""From the bytes of a file and what is asked for to the bytes that come after, one recorded change at a time. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gateway.errors import MemoryConflict
from gateway.memory import rules
from gateway.memory.delta import Delta
from gateway.memory.journal import Change, JournalRequest, Key
from gateway.protocols import MemoryOutcome, MemoryUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """What a caller wants done to one document.

    Attributes:
        data: the bytes to put in place, for a `write` or an `undo`; None for an update.
        expected_version: the hash that the document must have; None where any will do.
    """

    request: JournalRequest
    data: bytes | None = None
    expected_version: str | None = None


@dataclass(slots=True, kw_only=True)
class Draft:
    """What would be written.

    Attributes:
        after: the bytes of the file.
        hash: of these.
        cut: the bytes that go to the archive.
        changes: in order; each starts from where the one before ends.
        outcomes: of every change that has one.
        conflicts: the changes whose document is not what they expected.
    """

    after: bytes
    hash: str
    cut: bytes = b""
    changes: list[Change] = field(default_factory=list)
    outcomes: dict[Key, MemoryOutcome] = field(default_factory=dict)
    conflicts: dict[Key, MemoryConflict] = field(default_factory=dict)


def draft(base: bytes, pending: Sequence[PendingChange], *, max_bytes: int) -> Draft:
    """Apply the changes in order to `base`, then cut what is too long."""
    text = rules.decode(base)
    hasher = hashlib.sha256(base)
    result = Draft(after=base, hash=hasher.hexdigest())
    for each in pending:
        before_hash = result.hash
        if each.expected_version not in (None, before_hash):
            result.conflicts[each.request.key] = MemoryConflict(
                proposed=rules.show(each.data or b""), current=rules.show(result.after), current_version=before_hash
            )
            continue
        if each.data is not None:
            text, after = rules.decode(each.data), each.data
        else:
            changed = rules.apply(text, update_of(each.request))
            if changed is None:
                result.outcomes[each.request.key] = "no_match"
                continue
            text, after = changed, rules.encode(changed)
        delta = Delta.between(result.after, after)
        hasher = _hashed(hasher, result.after, after)
        result.hash = hasher.hexdigest()
        change = Change(request=each.request, hash_before=before_hash, hash_after=result.hash, delta=delta)
        result.changes.append(change)
        result.outcomes[each.request.key] = "applied"
        result.after = after
    if result.changes and len(result.after) > max_bytes:
        _cut(result, max_bytes)
    return result


def _hashed(hasher: hashlib._Hash, before: bytes, after: bytes) -> hashlib._Hash:
    """SHA-256 of `after`; costs nothing for what it has in common with the start of it."""
    if not after.startswith(before):
        return hashlib.sha256(after)
    hasher = hasher.copy()
    hasher.update(memoryview(after)[len(before) :])
    return hasher


def _cut(result: Draft, max_bytes: int) -> None:
    """Make the cut a part of the last change, so that undo brings it back."""
    last = result.changes.pop()
    before = result.after if last.delta is None else last.delta.revert(result.after)
    result.cut, result.after = rules.cut_to_size(result.after, max_bytes)
    delta = Delta.between(before, result.after)
    result.hash = hashlib.sha256(result.after).hexdigest()
    result.changes.append(replace(last, hash_after=result.hash, delta=delta))


def update_of(request: JournalRequest) -> MemoryUpdate:
    """The update that a request came from.

    Raises:
        ValueError: it came from none.
    """
    match request.action:
        case "add" | "replace" | "remove":
            return MemoryUpdate(action=request.action, store=request.store, content=request.content)
        case _:
            raise ValueError(f"a {request.action} is no update")
