"""What limits a search or a list besides its words: whose traces, of which type, with which tags."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gateway.store.engine import Connection
from gateway.traces.rows import BETWEEN, visible
from gateway.traces.trace import ORGANIZATION, Owner, ScopeKind, TraceType, Viewer

MOST_NAMED = 200
"""Of so many owners each is named to the full-text index; of more, the index's matches are looked up one by one."""

_OWNERS = "SELECT number, kind, id FROM owners WHERE number IN (SELECT value FROM json_each(?))"
_OF_TYPE = "AND (SELECT type FROM traces WHERE number = search.rowid) = :type"
_OF_OWNER = "AND (SELECT owner FROM traces WHERE number = search.rowid) IN (SELECT value FROM json_each(:owners))"
_TAGGED = "(SELECT count(DISTINCT value) FROM json_each({tags}) WHERE value IN (SELECT value FROM json_each(?))) = ?"
_OF_TAGS = """
    AND (
        SELECT count(DISTINCT value) FROM json_each((SELECT tags FROM traces WHERE number = search.rowid))
        WHERE value IN (SELECT value FROM json_each(:tags))
    ) = :tag_count
"""
_WITH_TAGS = f"SELECT number FROM traces WHERE number IN (SELECT value FROM json_each(?)) AND {_TAGGED}"  # noqa: S608 (constants)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFilters:
    """What stands behind a query of the full-text index, so that only what is wanted takes up its candidates."""

    type: TraceType | None = None
    tags: tuple[str, ...] = ()

    def sql(self, owners: Sequence[int]) -> str:
        """Conditions on `search.rowid`; the owners are among them where there are too many to be named."""
        parts = ((_OF_TYPE, self.type), (_OF_TAGS, self.tags), (_OF_OWNER, len(owners) > MOST_NAMED))
        return " ".join(part for part, is_wanted in parts if is_wanted)

    def values(self, owners: Sequence[int]) -> dict[str, object]:
        """The values of these conditions, by name."""
        tags, count = _tag_values(self.tags)
        return {"type": self.type, "tags": tags, "tag_count": count, "owners": json.dumps(list(owners))}


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
    sql = _WITH_TAGS.format(tags="tags")
    return [row[0] for row in connection.execute(sql, (json.dumps(list(numbers)), *_tag_values(tags)))]


def tag_clause(tags: Sequence[str]) -> tuple[str, list[object]]:
    """The same as a condition on a row of `traces`; always true without tags."""
    return (_TAGGED.format(tags="traces.tags"), _tag_values(tags)) if tags else ("1", [])


def _tag_values(tags: Sequence[str]) -> list[object]:
    wanted = list(dict.fromkeys(tags))
    return [json.dumps(wanted, ensure_ascii=False), len(wanted)]
