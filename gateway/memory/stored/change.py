"""What changes do to a document in a database, and how each is written down there. Pure: no store, no clock."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from gateway.errors import MemoryConflict
from gateway.memory import rules
from gateway.memory.delta import Delta
from gateway.memory.draft import PendingChange, draft
from gateway.memory.journal import HASH_OF_NOTHING, JournalEntry, JournalRequest, Key, is_due
from gateway.protocols import MemoryOutcome, MemoryScope, MemoryStoreName, UpdateOutcome

Result = UpdateOutcome | MemoryConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A document as its store has it; the defaults are those of one that is not there.

    Attributes:
        sha256: of the text as the newest entry of the history left it; another text was put there by hand.
        position: of that entry, 0 where there is none.
        modified_at: None where there is no document.
    """

    data: bytes = b""
    sha256: str = HASH_OF_NOTHING
    position: int = 0
    modified_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What a store writes down at once.

    Attributes:
        document: as it is afterwards.
        entries: for the history, in order; their ids are the store's to give.
        cut: what became too long, for the archive.
        results: of every change that was asked for.
    """

    document: StoredDocument
    entries: Sequence[JournalEntry] = ()
    cut: bytes = b""
    results: Mapping[Key, Result] = field(default_factory=dict)


def work_out(
    stored: StoredDocument,
    settled: Mapping[Key, MemoryOutcome],
    pending: Sequence[PendingChange],
    *,
    max_bytes: int,
    at: datetime,
) -> Commit:
    """What the changes make of the document as it is; those that are settled are not made again.

    Args:
        pending: at least one change.
    """
    results: dict[Key, Result] = dict.fromkeys(settled, "replayed")
    unique = {each.request.key: each for each in reversed(pending)}  # of a repetition, the first
    new = draft(
        stored.data, [each for key, each in reversed(unique.items()) if key not in settled], max_bytes=max_bytes
    )
    results.update(new.conflicts)
    results.update(new.outcomes)
    first = pending[0].request
    entries = [
        *edit_by_hand(stored, first.scope, first.document, first.store, at),
        *(
            JournalEntry(
                id=0,
                request=change.request,
                outcome="applied",
                written_at=at,
                hash_before=change.hash_before,
                hash_after=change.hash_after,
                delta=change.delta,
            )
            for change in new.changes
        ),
    ]
    position = stored.position + len(entries)
    entries = [replace(entry, position=stored.position + number) for number, entry in enumerate(entries, 1)]
    if entries and is_due(position, len(new.after), len(entries)):
        entries[-1] = replace(entries[-1], checkpoint=new.after)
    entries += [
        JournalEntry(id=0, request=unique[key].request, outcome="no_match", written_at=at)
        for key, outcome in new.outcomes.items()
        if outcome == "no_match"
    ]
    modified_at = at if new.changes else stored.modified_at
    after = StoredDocument(data=new.after, sha256=new.hash, position=position, modified_at=modified_at)
    return Commit(document=after, entries=entries, cut=new.cut, results=results)


def edit_by_hand(
    stored: StoredDocument, scope: MemoryScope, document: str, store: MemoryStoreName, at: datetime
) -> Sequence[JournalEntry]:
    """An entry for the text that somebody put into the store, past us; none where it is as we left it.

    The same text at the same position makes the same turn id, so that it is noted once. Of the scope the people are
    left out: who edited is not known.
    """
    found = rules.version(stored.data)
    if found == stored.sha256:
        return ()
    turn_id = f"edit:{document}:{stored.position + 1}:{found[:16]}"
    request = JournalRequest(
        scope=replace(scope, user_id=None, author_id=None, session_id=None, channel=None, turn_id=turn_id),
        index=0,
        document=document,
        store=store,
        action="edit",
        content="",
        at=at,
    )
    entry = JournalEntry(
        id=0,
        request=request,
        outcome="applied",
        position=stored.position + 1,
        written_at=at,
        hash_before=stored.sha256,
        hash_after=found,
        checkpoint=stored.data,
    )
    return (entry,)


# ---- an entry as text -----------------------------------------------------------------------------------------------


def packed(entry: JournalEntry) -> str:
    """An entry without its id, as JSON."""
    request, delta = entry.request, entry.delta
    values: dict[str, Any] = {
        **asdict(replace(request.scope, question=None)),
        "index": request.index,
        "document": request.document,
        "store": request.store,
        "action": request.action,
        "content": request.content,
        "at": request.at.isoformat(),
        "refers_to": request.refers_to,
        "outcome": entry.outcome,
        "position": entry.position,
        "written_at": None if entry.written_at is None else entry.written_at.isoformat(),
        "hash_before": entry.hash_before,
        "hash_after": entry.hash_after,
        "delta": None
        if delta is None
        else [delta.prefix_bytes, delta.suffix_bytes, _text(delta.removed), _text(delta.inserted)],
        "checkpoint": None if entry.checkpoint is None else _text(zlib.compress(entry.checkpoint)),
    }
    return json.dumps({name: value for name, value in values.items() if value is not None}, ensure_ascii=False)


def unpacked(entry_id: int, text: str) -> JournalEntry:
    """The entry that `packed` made a text of."""
    values = json.loads(text)
    delta, checkpoint = values.get("delta"), values.get("checkpoint")
    request = JournalRequest(
        scope=MemoryScope(
            personality_id=values["personality_id"],
            user_id=values.get("user_id"),
            session_id=values.get("session_id"),
            turn_id=values["turn_id"],
            place=values["place"],
            channel=values.get("channel"),
            author_id=values.get("author_id"),
        ),
        index=values["index"],
        document=values["document"],
        store=values["store"],
        action=values["action"],
        content=values["content"],
        at=datetime.fromisoformat(values["at"]),
        refers_to=values.get("refers_to"),
    )
    written_at = values.get("written_at")
    return JournalEntry(
        id=entry_id,
        request=request,
        outcome=values["outcome"],
        position=values.get("position"),
        written_at=None if written_at is None else datetime.fromisoformat(written_at),
        hash_before=values.get("hash_before"),
        hash_after=values.get("hash_after"),
        delta=None if delta is None else Delta(delta[0], delta[1], _bytes(delta[2]), _bytes(delta[3])),
        checkpoint=None if checkpoint is None else zlib.decompress(_bytes(checkpoint)),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
