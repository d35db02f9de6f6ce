"""Whose traces an export holds, and whose those become that an import brings."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.memory.traces.trace import Owner, Viewer

_ALL = "SELECT number FROM owners ORDER BY number"
_BETWEEN = "::"  # of a user id and a personality id in the id of a persona scope


class Bounds(Protocol):
    """On whose behalf traces leave and arrive."""

    def numbers(self, connection: sqlite3.Connection) -> Sequence[int]:
        """The owners whose traces may be seen, by number."""
        ...

    def owner(self, named: Owner) -> Owner | None:
        """Whose a trace becomes that arrives as `named`, whose id is empty where it was not said; None: nobody's."""
        ...


@dataclass(frozen=True, slots=True)
class Everything:
    """The operator's: the whole brain.

    Attributes:
        fallback: whose a trace becomes that does not say whose it is; None: it cannot come in.
    """

    fallback: Viewer | None = None

    def numbers(self, connection: sqlite3.Connection) -> Sequence[int]:
        """All."""
        return [int(row[0]) for row in connection.execute(_ALL)]

    def owner(self, named: Owner) -> Owner | None:
        """As it says; where it does not say, the fallback's."""
        if named.id:
            return named
        if named.kind == "organization":
            return Viewer(user_id=None, personality_id="", session_id=None).owner("organization")
        return None if self.fallback is None else OfPerson(self.fallback).owner(named)


@dataclass(frozen=True, slots=True)
class OfPerson:
    """One person's: of all personalities, of the sessions that are named, and what everybody shares.

    Attributes:
        sessions: the ids of the person's sessions, beside the viewer's own.
    """

    viewer: Viewer
    sessions: Collection[str] = field(default=frozenset())

    def numbers(self, connection: sqlite3.Connection) -> Sequence[int]:
        """The person's, and the organization's."""
        owners = [*self.viewer.owners, *(Owner("thread", session) for session in self.sessions)]
        rows = "SELECT number FROM owners WHERE (kind, id) IN (VALUES {})"
        found: set[int] = set()
        for start in range(0, len(owners), 400):  # SQLite takes 999 values at the least
            some = owners[start : start + 400]
            sql = rows.format(", ".join(["(?, ?)"] * len(some)))
            found |= {int(row[0]) for row in connection.execute(sql, [part for o in some for part in (o.kind, o.id)])}
        for user_id in self.viewer.ids:
            start_of = user_id + _BETWEEN
            sql = "SELECT number FROM owners WHERE kind = 'persona' AND substr(id, 1, ?) = ?"
            found |= {int(row[0]) for row in connection.execute(sql, (len(start_of), start_of))}
        return sorted(found)

    def owner(self, named: Owner) -> Owner | None:
        """The person's own, whoever it was; a thread that is none of theirs becomes theirs altogether.

        What was written under one of the person's other ids goes back there.
        """
        viewer = self.viewer
        if named.kind == "organization":
            return viewer.owner("organization")
        if named.kind == "thread":
            if named.id in self.sessions or (viewer.session_id is not None and named.id in ("", viewer.session_id)):
                return Owner("thread", named.id or viewer.session_id or "")
            return self.owner(Owner("user", ""))
        if viewer.user_id is None:
            return None
        user_id, _, personality = named.id.partition(_BETWEEN)
        if user_id not in viewer.other_ids:
            user_id = viewer.user_id
        if named.kind == "user":
            return Owner("user", user_id)
        return Owner("persona", f"{user_id}{_BETWEEN}{personality or viewer.personality_id}")


def owner_clause(numbers: Sequence[int], column: str = "owner") -> str:
    """SQL that limits a query to these owners; numbers of ours, so they may stand in it as they are."""
    return f"{column} IN ({', '.join(map(str, numbers))})" if numbers else "0"
