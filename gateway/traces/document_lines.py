"""The lines of a memory's documents as traces, by which they are found: made, moved and taken out with the text.

A line that stays is the same trace, wherever it moves to, so that it keeps its age and its vector.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from gateway.memory import rules
from gateway.memory.paths import is_document
from gateway.store.engine import Connection
from gateway.store.payloads import storable
from gateway.traces.rows import insert, known_number, merge_index, owner_number
from gateway.traces.trace import Owner, Trace

_MERGED_PAGES = 16
_LAST = (1 << 63) - 1
_OF_PLACES = """
    SELECT number, content FROM traces
    WHERE owner = ? AND conversation = ? AND position BETWEEN ? AND ? AND deleted_at IS NULL ORDER BY position
"""
_MOVE_REST = """
    UPDATE traces SET position = position + ?
    WHERE owner = ? AND conversation = ? AND position > ? AND deleted_at IS NULL
"""
_MOVE = "UPDATE traces SET position = ? WHERE number = ?"
_DELETE = "DELETE FROM traces WHERE number = ?"
_DELETE_ALL = "DELETE FROM traces WHERE owner = ?"
_NEVER_COMPARED = "DELETE FROM uncompared WHERE owner = ?"


def lines_of(data: bytes) -> list[str]:
    """What a document's lines say, without those that are blank."""
    return [said for line in storable(rules.show(data)).split("\n") if (said := line.strip())]


def index_lines(
    connection: Connection,
    key: str,
    before: Sequence[str],
    after: Sequence[str],
    *,
    at: datetime,
    stability_ms: float,
) -> None:
    """Bring the traces of a document from the lines that it had to those that it has.

    Nothing of a text that is kept for a link, and that no prompt shows.
    """
    if not is_document(key):
        return
    owner = Owner("document", key)
    number = owner_number(connection, owner)
    start, end = _alike_ends(before, after)
    last = len(before) - end - 1
    spare: dict[str, list[int]] = defaultdict(list)
    for row in connection.execute(_OF_PLACES, (number, key, start, last)):
        spare[row["content"]].append(row["number"])
    if end and len(after) != len(before):
        connection.execute(_MOVE_REST, (len(after) - len(before), number, key, last))
    for place in range(start, len(after) - end):
        line = after[place]
        if spare[line]:
            connection.execute(_MOVE, (place, spare[line].pop(0)))
        else:
            insert(connection, _trace(owner, line, place, at, stability_ms))
    connection.executemany(_DELETE, [(each,) for numbers in spare.values() for each in numbers])
    connection.execute(_NEVER_COMPARED, (number,))
    merge_index(connection, pages=_MERGED_PAGES)


def indexed_lines(connection: Connection, key: str) -> list[str]:
    """The lines that the document has traces of."""
    number = known_number(connection, Owner("document", key))
    return [row["content"] for row in connection.execute(_OF_PLACES, (number, key, 0, _LAST))]


def forget_lines(connection: Connection, key: str) -> None:
    """Take out all traces of a document."""
    number = known_number(connection, Owner("document", key))
    if number is not None:
        connection.execute(_DELETE_ALL, (number,))
        connection.execute("DELETE FROM owners WHERE number = ?", (number,))


def _alike_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines are the same from the beginning, and how many of the others from the end."""
    most = min(len(before), len(after))
    start = next((place for place in range(most) if before[place] != after[place]), most)
    left = most - start
    end = next((place for place in range(left) if before[-1 - place] != after[-1 - place]), left)
    return start, end


def _trace(owner: Owner, line: str, place: int, at: datetime, stability_ms: float) -> Trace:
    return Trace(
        content=line,
        owner=owner,
        type="semantic",
        stability_ms=stability_ms,
        created_at=at,
        last_accessed_at=at,
        conversation=owner.id,
        position=place,
    )
