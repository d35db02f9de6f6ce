"""What limits a search or a list besides its words: whose traces, of which type, with which tags."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gateway.store.engine import Connection
from gateway.traces.rows import BETWEEN, visible
from gateway.traces.trace import ORGANIZATION, Owner, ScopeKind, Viewer
from gateway.traces.word_index import TAGGED, tag_values

_OWNERS = "SELECT number, kind, id FROM owners WHERE number IN (SELECT CAST(value AS bigint) FROM json_each(?))"
_WITH_TAGS = f"""
    SELECT number FROM traces WHERE number IN (SELECT CAST(value AS bigint) FROM json_each(?))
        AND {TAGGED.format(tags="tags", wanted="?")} = ?
"""  # noqa: S608 (constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """Of which traces of those that the viewer sees; empty: of all.

    Attributes:
        user_ids: all ids of one person: only the traces of this person, and those in `sessions`.
        sessions: of that person.
        personality_id: only the traces of this personality.
        tags: all of them.
    """

    user_ids: tuple[str, ...] = ()
    sessions: frozenset[str] = frozenset()
    personality_id: str | None = None
    tags: tuple[str, ...] = ()

    def fits(self, owner: Owner) -> bool:
        """Whether an owner's traces are wanted."""
        return self._is_of_person(owner) and self._is_of_personality(owner)

    def _is_of_person(self, owner: Owner) -> bool:
        if not self.user_ids:
            return True
        if owner.kind == "thread":
            return owner.id in self.sessions
        return owner.kind != "organization" and owner.id.partition(BETWEEN)[0] in self.user_ids

    def _is_of_personality(self, owner: Owner) -> bool:
        if self.personality_id is None:
            return True
        if owner.kind == "organization":
            return owner.id == f"{ORGANIZATION}{BETWEEN}{self.personality_id}"
        return owner.kind == "persona" and owner.id.partition(BETWEEN)[2] == self.personality_id


def filtered_owners(
    connection: Connection, viewer: Viewer, among: TraceFilter, scope: ScopeKind | None = None
) -> Sequence[int]:
    """The numbers of the owners whose traces the viewer sees and wants."""
    numbers = visible(connection, viewer)
    if scope is None and not among.user_ids and among.personality_id is None:
        return numbers
    rows = connection.execute(_OWNERS, (json.dumps(numbers),))
    return [row["number"] for row in rows if scope in (None, row["kind"]) and among.fits(Owner(row["kind"], row["id"]))]


def with_tags(connection: Connection, numbers: Collection[int], tags: Sequence[str]) -> Collection[int]:
    """Those of the traces that have all the tags."""
    if not tags:
        return numbers
    return [row[0] for row in connection.execute(_WITH_TAGS, (json.dumps(list(numbers)), *tag_values(tags)))]


def tag_clause(tags: Sequence[str]) -> tuple[str, Sequence[object]]:
    """The same as a condition on a row of `traces`; always true without tags."""
    return (f"{TAGGED.format(tags='traces.tags', wanted='?')} = ?", tag_values(tags)) if tags else ("TRUE", ())
