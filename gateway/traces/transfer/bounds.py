"""Whose traces an export holds, and whose those become that an import brings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gateway.store.engine import Connection
from gateway.traces.rows import BETWEEN, visible
from gateway.traces.trace import Owner, Viewer


class Bounds(Protocol):
    """On whose behalf traces leave and arrive."""

    def numbers(self, connection: Connection) -> Sequence[int]:
        """The owners whose traces may be seen, by number."""
        ...

    def owner(self, named: Owner) -> Owner | None:
        """The owner of an imported trace that names this one, with an empty id where unnamed; None: no owner."""
        ...


@dataclass(frozen=True, slots=True)
class Everything:
    """The operator's: the whole trace store.

    Attributes:
        fallback: whose a trace becomes that does not say whose it is; None: it cannot come in.
    """

    fallback: Viewer | None = None

    def numbers(self, connection: Connection) -> Sequence[int]:
        """Every owner."""
        viewer = Viewer(user_id=None, personality_id="", session_id=None, extent="everything")
        return visible(connection, viewer)

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
        sessions: the ids of the person's sessions besides the viewer's own.
    """

    viewer: Viewer
    sessions: Collection[str] = field(default=frozenset())

    def numbers(self, connection: Connection) -> Sequence[int]:
        """The person's, and the organization's."""
        return sorted(visible(connection, replace(self.viewer, extent="person", sessions=tuple(self.sessions))))

    def owner(self, named: Owner) -> Owner | None:
        """The person, whatever owner is named; a thread of another person becomes the person's own trace.

        So does a shared trace, where the person may not change shared ones. A trace of one of the person's other ids
        keeps that id.
        """
        viewer = self.viewer
        if named.kind == "organization":
            return viewer.owner("organization") if viewer.may_share else self.owner(Owner("user", ""))
        if named.kind == "thread":
            if named.id in self.sessions or (viewer.session_id is not None and named.id in ("", viewer.session_id)):
                return Owner("thread", named.id or viewer.session_id or "")
            return self.owner(Owner("user", ""))
        if viewer.user_id is None:
            return None
        user_id, _, personality = named.id.partition(BETWEEN)
        if user_id not in viewer.other_ids:
            user_id = viewer.user_id
        if named.kind == "user":
            return Owner("user", user_id)
        return Owner("persona", f"{user_id}{BETWEEN}{personality or viewer.personality_id}")


def owner_clause(numbers: Sequence[int], column: str = "owner") -> str:
    """SQL that limits a query to these owners; numbers of ours, so they may stand in it as they are."""
    return f"{column} IN ({', '.join(map(str, numbers))})" if numbers else "FALSE"
