"""The steps of a consolidation, each for one owner and in one transaction: pruning, merging, linking, compacting."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import combinations, product

from gateway.memory.traces import changes
from gateway.memory.traces.rows import SELECT, Kept, kept
from gateway.memory.traces.similar import similar_to
from gateway.memory.traces.trace import DAY_MS, KEEP, hash_of
from gateway.store.payloads import to_ms

PRUNED_BELOW = 0.05
PROTECTED_FROM = 0.3
"""A feeling of this intensity keeps a trace from being pruned."""
NEAR_IDENTICAL = 0.95
LINK_GAIN = 0.1
CO_ACTIVATED = "co_activated"
COMPACTED_AFTER_MS = 7 * DAY_MS
COMPACTED_FROM_USES = 3
USES_KEPT_MS = 90 * DAY_MS
_COMPARED_AT_ONCE = 500

# exp() is a function of ours: not every SQLite has it.
_FADED = """
    SELECT number FROM traces WHERE owner = :owner AND deleted_at IS NULL
        AND strength * exp(-max(0, :now - last_accessed_at) / stability_ms) < :least
        AND ifnull(json_extract(emotions, '$.intensity'), 0) < :protected
        AND NOT EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :keep)
"""
_HIDE = "UPDATE traces SET deleted_at = ? WHERE number = ?"
_UNCOMPARED = "SELECT number FROM uncompared WHERE owner = ? ORDER BY number LIMIT ?"
_COMPARED = "DELETE FROM uncompared WHERE owner = ? AND number <= ?"
_OWN = f"{SELECT} WHERE traces.number = ? AND deleted_at IS NULL"
_SAME = f"""
    {SELECT} WHERE owner = ? AND content_hash = ? AND type = ? AND deleted_at IS NULL AND traces.number <> ?
"""
_NEW_USES = """
    SELECT query_id, trace FROM uses INDEXED BY uses_to_count JOIN traces ON traces.id = uses.trace
    WHERE is_counted = 0 AND traces.owner = ? ORDER BY query_id, trace
"""
_COUNT = "UPDATE uses SET is_counted = 1 WHERE query_id = ? AND trace = ?"
_COUNTED_USES = """
    SELECT trace FROM uses JOIN traces ON traces.id = uses.trace
    WHERE query_id = ? AND traces.owner = ? AND is_counted = 1
"""
_FORGET_USES = """
    DELETE FROM uses WHERE is_counted = 1 AND used_at < ? AND (SELECT owner FROM traces WHERE id = uses.trace) = ?
"""
_LINK = """
    INSERT INTO edges (source, target, kind, weight, created_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET weight = min(1.0, weight + excluded.weight)
"""
_COMPACT = """
    UPDATE traces SET type = 'semantic'
    WHERE owner = ? AND type = 'episodic' AND created_at < ? AND retrieval_count >= ? AND deleted_at IS NULL
"""


def prune(connection: sqlite3.Connection, owner: int, now: datetime) -> int:
    """Hide what has faded; how many."""
    values = {
        "owner": owner,
        "now": to_ms(now),
        "least": PRUNED_BELOW,
        "protected": PROTECTED_FROM,
        "keep": KEEP,
    }
    faded = [int(row[0]) for row in connection.execute(_FADED, values)]
    connection.executemany(_HIDE, [(to_ms(now), number) for number in faded])
    return len(faded)


def merge_near_identical(connection: sqlite3.Connection, owner: int, now: datetime) -> tuple[int, bool]:
    """Merge some of the traces that were written since the last time with those that say the same.

    Each is compared with the few that share its rarest words, not with all others, so the time grows with what is new.

    Returns:
        How many traces went into others, and whether there may be more to compare.
    """
    numbers = [int(row[0]) for row in connection.execute(_UNCOMPARED, (owner, _COMPARED_AT_ONCE))]
    if not numbers:
        return 0, False
    groups = _Groups()
    for number in numbers:
        row = connection.execute(_OWN, (number,)).fetchone()
        if row is not None:
            one = kept(row)
            groups.join([one, *_near_identical(connection, owner, one)])
    merged = 0
    for sources in groups.found():
        merged += changes.merge(connection, sources, now).sources_deleted - 1
    connection.execute(_COMPARED, (owner, numbers[-1]))
    return merged, len(numbers) == _COMPARED_AT_ONCE


def _near_identical(connection: sqlite3.Connection, owner: int, one: Kept) -> Iterator[Kept]:
    for row in connection.execute(_SAME, (owner, hash_of(one.trace.content), one.trace.type, one.number)):
        yield kept(row)
    if one.trace.embedding is not None:
        for each in similar_to(connection, owner, one.trace, above=NEAR_IDENTICAL):
            if each.kept.trace.type == one.trace.type and each.kept.trace.embedding is not None:
                yield each.kept


class _Groups:
    """Traces that say the same as one another, whole chains together."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[int, Kept]] = {}

    def join(self, alike: Iterable[Kept]) -> None:
        """Say that these are alike."""
        together: dict[int, Kept] = {}
        for each in alike:
            together |= self._groups.get(each.number, {each.number: each})
        for number in together:
            self._groups[number] = together

    def found(self) -> Iterator[Sequence[Kept]]:
        """Each group of two or more, once."""
        seen = set()
        for group in self._groups.values():
            if len(group) > 1 and id(group) not in seen:
                seen.add(id(group))
                yield [group[number] for number in sorted(group)]


def link_used_together(connection: sqlite3.Connection, owner: int, now: datetime) -> int:
    """Turn uses that were not counted yet into edges between the traces that one query brought together; how many."""
    queries: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(_NEW_USES, (owner,)).fetchall():
        queries[row["query_id"]].append(row["trace"])
    links = 0
    for query_id, traces in queries.items():
        earlier = [row[0] for row in connection.execute(_COUNTED_USES, (query_id, owner))]
        pairs = [*combinations(traces, 2), *product(traces, earlier)]
        for pair in pairs:
            connection.execute(_LINK, (*sorted(pair), CO_ACTIVATED, LINK_GAIN, to_ms(now)))
        links += len(pairs)
        connection.executemany(_COUNT, [(query_id, trace) for trace in traces])
    connection.execute(_FORGET_USES, (to_ms(now) - USES_KEPT_MS, owner))
    return links


def compact(connection: sqlite3.Connection, owner: int, now: datetime) -> int:
    """Make knowledge of what happened a week ago and was used often; how many."""
    values = (owner, to_ms(now) - COMPACTED_AFTER_MS, COMPACTED_FROM_USES)
    return connection.execute(_COMPACT, values).rowcount
