"""Traces that match a question: of the words, of the days that it is about, and what stands beside the best of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, time
from operator import attrgetter

from gateway.memory.days import Days
from gateway.memory.matching import QUESTION_MARKS, REACH, Match, lift
from gateway.store.payloads import to_ms
from gateway.traces.ranking import PLACED
from gateway.traces.trace import TraceType

_WITH_NEIGHBOURS = 20
_OF_DAYS_AT_MOST = 100

_ASKS = " OR ".join(f"instr(content, '{mark}')" for mark in QUESTION_MARKS)
# Of constant text, so that they are prepared once. The plus keeps SQLite from the indexes by owner, of whose traces it
# would look at every one.
_PLACES = f"""
    SELECT {PLACED} FROM traces
    WHERE number IN (SELECT value FROM json_each(?)) AND +owner IN (SELECT value FROM json_each(?))
        AND deleted_at IS NULL
"""  # noqa: S608 (constants)
_ON_DAYS = f"""
    SELECT {PLACED} FROM json_each(?1) AS given JOIN traces ON traces.owner = given.value
    WHERE traces.created_at BETWEEN ?2 AND ?3 AND traces.deleted_at IS NULL AND (?4 IS NULL OR traces.type = ?4)
    ORDER BY traces.number IN (SELECT value FROM json_each(?5)) DESC, traces.created_at DESC LIMIT {_OF_DAYS_AT_MOST}
"""  # noqa: S608 (constants)
_BESIDE_THEM = f"""
    SELECT {PLACED} FROM json_each(?) AS given JOIN traces AS best ON best.number = given.value
    JOIN traces ON traces.owner = best.owner AND traces.conversation = best.conversation
        AND traces.position BETWEEN best.position - {REACH} AND best.position + {REACH}
    WHERE traces.deleted_at IS NULL AND (?2 IS NULL OR traces.type = ?2)
"""  # noqa: S608 (constants)
_ASKING = f"SELECT number FROM traces WHERE number IN (SELECT value FROM json_each(?)) AND ({_ASKS})"  # noqa: S608 (constants)


def matches_of(connection: sqlite3.Connection, numbers: Iterable[int], owners: Sequence[int]) -> dict[int, Match]:
    """The owners' traces of these numbers."""
    rows = connection.execute(_PLACES, (json.dumps([*numbers]), json.dumps([*owners])))
    return {row[0]: match_of(row) for row in rows}


def match_of(row: sqlite3.Row, words: float = 0.0) -> Match:
    """The trace of a row that begins with `PLACED`, with what it has of the words."""
    place = None if row[2] is None or row[3] is None else (row[1], row[2])
    return Match(row[0], place, row[3] or 0, row[4], words)


def add_matches_of_days(
    connection: sqlite3.Connection,
    matches: dict[int, Match],
    owners: Sequence[int],
    days: Days,
    type_: TraceType | None,
) -> Collection[int]:
    """Add the owners' newest traces of some days to the matches that are of them; the numbers of both together."""
    first, last = to_ms(datetime.combine(days.first, time.min, UTC)), to_ms(datetime.combine(days.last, time.max, UTC))
    values = (json.dumps([*owners]), first, last, type_, json.dumps([*matches]))
    rows = connection.execute(_ON_DAYS, values).fetchall()
    for row in rows:
        matches.setdefault(row[0], match_of(row))
    return [row[0] for row in rows]


def lift_surroundings(connection: sqlite3.Connection, matches: dict[int, Match], type_: TraceType | None) -> None:
    """Add what stands beside the best matches, and weigh the matches of each conversation by each other."""
    placed = sorted((each for each in matches.values() if each.place is not None), key=attrgetter("own"), reverse=True)
    best = json.dumps([each.number for each in placed[:_WITH_NEIGHBOURS]])
    for row in connection.execute(_BESIDE_THEM, (best, type_)) if placed else ():
        if row[0] not in matches:
            matches[row[0]] = match_of(row)

    def asking(numbers: Sequence[int]) -> Collection[int]:
        return {row[0] for row in connection.execute(_ASKING, (json.dumps(numbers),))}

    lift(matches.values(), asking)
