"""Which traces have no vector of a model yet: new ones, edited ones, and all where the model was changed."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.store.engine import Connection, Row

_LACKS = """
    deleted_at IS NULL AND {whose} AND trim(content) <> ''
    AND NOT EXISTS (SELECT 1 FROM unembeddable WHERE unembeddable.number = traces.number AND model = :model
                    AND unembeddable.content_hash = traces.content_hash)
"""
# One after the other: the new ones first, then those of other models, each found by the index.
_WHOSE = ("embedding_model IS NULL", "embedding_model < :model", "embedding_model > :model")
_NEXT = f"""
    SELECT number, substr(content, 1, CAST(:chars AS integer)) AS text, content_hash FROM traces WHERE {_LACKS}
    ORDER BY embedding_model DESC, number DESC LIMIT :limit
"""  # noqa: S608 (constants)
_COUNT = f"SELECT count(*) FROM traces WHERE {_LACKS}"  # noqa: S608 (constants)


def count_lacking(connection: Connection, model: str) -> int:
    """How many traces have none of that model, those apart that it will never take."""
    values = {"model": model}
    return sum(int(connection.execute(_COUNT.format(whose=whose), values).fetchone()[0]) for whose in _WHOSE)


def next_lacking(connection: Connection, model: str, *, limit: int, longest_chars: int) -> Sequence[Row]:
    """Some of them: `number`, the beginning of the content as `text`, and `content_hash`."""
    values = {"model": model, "chars": longest_chars, "limit": limit}
    for whose in _WHOSE:
        if rows := connection.execute(_NEXT.format(whose=whose), values).fetchall():
            return rows
    return []
