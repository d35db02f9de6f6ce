"""The best matches of words among the traces of some owners, at a cost that does not grow with all that is there.

To rank a trace costs many times what it costs to find it, and FTS5 walks through all traces of each word that it is to
rank by. So the owner is no part of what is ranked (its "word" stands in every trace), and of words that are nearly
everywhere the newest matches are ranked, not all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.memory.query import RANKED_AT_MOST
from gateway.store.engine import Connection, Row
from gateway.traces.filters import MOST_NAMED, IndexFilters

_FEW = 500  # of so many it costs less to look up the owner of each than to ask the index for the owners' ones
PLACED = "traces.number, traces.owner, traces.conversation, traces.position, traces.speaker"
"""With these begins a row of a trace that was found."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """The best matches, each the columns of `PLACED` and `score`, and how many were ranked at least."""

    best: Sequence[Row]
    among: int


def best_of(
    connection: Connection,
    owners: Sequence[int],
    needed: str,
    *,
    more: str = "",
    context_weight: float = 0.3,
    filters: IndexFilters = IndexFilters(),  # noqa: B008 (a frozen value)
    limit: int,
    documents: int | None = None,
) -> Ranked:
    """The owners' traces that match best, by BM25.

    Args:
        needed: an expression of FTS5's that each of them matches.
        more: words, as an expression, that raise what matches, and need not stand in it.
        context_weight: of who said it and when; 0: the text alone counts.
        documents: how many traces of all owners match at most; None where that is not known.
    """
    columns = "{context text}" if context_weight else "text"
    wanted = f"{columns} : ({needed})"
    # What matches `needed` matches `needed OR more`, too; each stands in it twice, so their weights stay what they are.
    words = f"{wanted} AND {columns} : ({more} OR {more} OR {needed})" if more else wanted
    among = " OR ".join(f'"{number}"' for number in owners)
    values = {
        "own": f"scope : ({among}) AND {wanted}" if len(owners) <= MOST_NAMED else wanted,
        "words": words,
        "context": context_weight,
        "scale": 0.5 if more else 1.0,
        "most": RANKED_AT_MOST,
        "limit": limit,
        **filters.values(owners),
    }
    if documents is not None and documents <= _FEW:
        best = connection.execute(_BEST_OF_FEW.format(filters=filters.sql(())), values).fetchall()
        return Ranked(best=best, among=len(best))
    best = connection.execute(_BEST.format(filters=filters.sql(owners)), values).fetchall()
    return Ranked(best=best, among=best[0]["among"] if best else 0)
