"""The best matches of words among the traces of some owners, at a cost that does not grow with all that is there.

To rank a trace costs many times what it costs to find it, and FTS5 walks through all traces of each word that it is to
rank by. So the owner is no part of what is ranked (its "word" stands in every trace), and of words that are nearly
everywhere the newest matches are ranked, not all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from gateway.memory.query import RANKED_AT_MOST, Fts5Counts, WordCounts
from gateway.store.engine import Connection
from gateway.traces.lexemes import Lexemes
from gateway.traces.word_index import PLACED, TAGGED, IndexFilters, Ranked, WordIndex, tag_values

MOST_NAMED = 200
"""Of so many owners each is named to the full-text index; of more, the index's matches are looked up one by one."""
_FEW = 500  # of so many it costs less to look up the owner of each than to ask the index for the owners' ones

_OF_TYPE = "AND (SELECT type FROM traces WHERE number = search.rowid) = :type"
_OF_OWNER = "AND (SELECT owner FROM traces WHERE number = search.rowid) IN (SELECT value FROM json_each(:owners))"
_HAS_TAGS = TAGGED.format(tags="(SELECT tags FROM traces WHERE number = search.rowid)", wanted=":tags")
_OF_TAGS = f"AND {_HAS_TAGS} = :tag_count"
_SCORE = ":scale * -bm25(search, 0.0, :context, 1.0) AS score"
_IS_OWN = "traces.owner IN (SELECT value FROM json_each(:owners)) AND traces.deleted_at IS NULL"
_BEST_OF_FEW = f"""
    SELECT {PLACED}, {_SCORE} FROM search CROSS JOIN traces ON traces.number = search.rowid
    WHERE search MATCH :words AND {_IS_OWN} {{filters}}
    ORDER BY score DESC, search.rowid LIMIT :limit
"""  # noqa: S608 (constants)
_BEST = f"""
    WITH own AS MATERIALIZED (
        SELECT rowid AS number FROM search WHERE search MATCH :own {{filters}} ORDER BY rowid DESC LIMIT :most
    ), best AS MATERIALIZED (
        SELECT rowid AS number, {_SCORE}, (SELECT count(*) FROM own) AS among FROM search
        WHERE search MATCH :words AND rowid >= (SELECT min(number) FROM own) AND +rowid IN own
        ORDER BY score DESC, rowid LIMIT :limit
    )
    SELECT {PLACED}, score, among FROM best CROSS JOIN traces ON traces.number = best.number WHERE {_IS_OWN}
"""  # noqa: S608 (constants)
_HOLDERS = "SELECT rowid FROM search WHERE search MATCH ? LIMIT ?"
_HOLDING = """
    SELECT rowid FROM search
    WHERE search MATCH ? AND rowid IN (SELECT number FROM traces WHERE id IN (SELECT value FROM json_each(?)))
"""
_CHANGES = "SELECT total_changes()"


def index_of(connection: Connection) -> WordIndex:
    """The index of the connection's database."""
    return Lexemes(connection) if connection.dialect.is_shared else Fts5Index(connection)


class Fts5Index:
    """The full-text index of SQLite, which triggers keep."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def keep(self, number: int) -> None:
        """A trigger does it."""

    def counts(self, owners: Sequence[int]) -> WordCounts:  # noqa: ARG002 (the index is one for all owners)
        """Of all owners."""
        return Fts5Counts(self._connection)

    def best(
        self,
        owners: Sequence[int],
        needed: str,
        *,
        more: str = "",
        context_weight: float = 0.3,
        filters: IndexFilters = IndexFilters(),  # noqa: B008 (a frozen value)
        limit: int,
        documents: int | None = None,
    ) -> Ranked:
        """As `WordIndex.best` says."""
        columns = "{context text}" if context_weight else "text"
        wanted = f"{columns} : ({needed})"
        # What matches `needed` matches `needed OR more`, too; each stands in it twice, so their weights stay what they
        # are.
        words = f"{wanted} AND {columns} : ({more} OR {more} OR {needed})" if more else wanted
        among = " OR ".join(f'"{number}"' for number in owners)
        tags, tag_count = tag_values(filters.tags)
        values = {
            "own": f"scope : ({among}) AND {wanted}" if len(owners) <= MOST_NAMED else wanted,
            "words": words,
            "context": context_weight,
            "scale": 0.5 if more else 1.0,
            "most": RANKED_AT_MOST,
            "limit": limit,
            "type": filters.type,
            "tags": tags,
            "tag_count": tag_count,
            "owners": json.dumps([*owners]),
        }
        if documents is not None and documents <= _FEW:
            best = self._connection.execute(_BEST_OF_FEW.format(filters=_sql(filters, ())), values).fetchall()
            return Ranked(best=[(row, row["score"]) for row in best], among=len(best))
        best = self._connection.execute(_BEST.format(filters=_sql(filters, owners)), values).fetchall()
        return Ranked(best=[(row, row["score"]) for row in best], among=best[0]["among"] if best else 0)

    def holders(self, owner: int, word: str, most: int) -> Sequence[int]:  # noqa: ARG002 (as above)
        """Those of all owners."""
        return [int(row[0]) for row in self._connection.execute(_HOLDERS, (f'text : "{word}"', most))]

    def holding(self, expression: str, ids: Collection[str]) -> Collection[int]:
        """By their question and their context."""
        values = (f"{{context text}} : ({expression})", json.dumps([*ids]))
        return {int(row[0]) for row in self._connection.execute(_HOLDING, values)}

    def merge(self, pages: int) -> bool:
        """By FTS5's `merge`, https://www.sqlite.org/fts5.html#the_merge_command."""
        (before,) = self._connection.execute(_CHANGES).fetchone()
        self._connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (pages,))
        (after,) = self._connection.execute(_CHANGES).fetchone()
        return bool(after - before > 1)


def _sql(filters: IndexFilters, owners: Sequence[int]) -> str:
    """Conditions on `search.rowid`; the owners are among them where there are too many to be named."""
    parts = ((_OF_TYPE, filters.type), (_OF_TAGS, filters.tags), (_OF_OWNER, len(owners) > MOST_NAMED))
    return " ".join(part for part, is_wanted in parts if is_wanted)
