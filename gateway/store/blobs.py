"""Files in the database, for many workers: those that came in, exports, calls for another worker.

They are in pieces, each with a time when it goes. The piece of number 0 has no data; it is written last, so that a file
of which a part is missing is never read.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from gateway.store.engine import Connection, Engine, statement
from gateway.store.rows import value_of

PIECE_BYTES = 1 << 20
BATCH_PIECES = 32
SPARE_MS = 3_600_000
"""So much longer the pieces stay than the whole: they are written before it, and in this time."""
_PUT = "INSERT INTO blobs (id, number, data, media_type, size_bytes, until) VALUES (?, ?, ?, ?, ?, now_ms() + ?)"
_KEEP_ON = """
    UPDATE blobs SET until = now_ms() + ? + CASE number WHEN 0 THEN 0 ELSE ? END
    WHERE id = ? AND EXISTS (SELECT 1 FROM blobs WHERE id = ? AND number = 0 AND until > now_ms())
"""
_WHOLE = "number = 0 AND until > now_ms()"
_EXPIRED = """
    DELETE FROM blobs WHERE (id, number) IN (
        SELECT id, number FROM blobs WHERE until <= now_ms() ORDER BY until LIMIT ? {skip_locked}
    )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """A whole file."""

    id: str
    media_type: str
    size_bytes: int


class SqlBlobs:
    """All files of one database; every method raises `StoreUnavailable`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.of("blobs")

    async def put(self, blob_id: str, pieces: AsyncIterable[bytes], *, media_type: str, keep_ms: int) -> int:
        """Write a file piece by piece, whatever sizes they have; returns its size in bytes.

        What expired meanwhile goes, a batch of it. A file of the same id is replaced.

        Args:
            keep_ms: so long it may be read, from the end of the writing on.
        """
        await self.remove(blob_id)
        size_bytes = number = 0
        async for data in _of_one_size(pieces):
            number += 1
            size_bytes += len(data)
            piece = statement(_PUT, (blob_id, number, data, None, None, keep_ms + SPARE_MS))
            await self._engine.write(piece, is_urgent=False, alone=())
        await self._engine.write(statement(_PUT, (blob_id, 0, b"", media_type, size_bytes, keep_ms)), alone=())
        await self.remove_expired()
        return size_bytes

    async def keep_on(self, blob_id: str, *, keep_ms: int) -> bool:
        """Let a whole file stay for so long from now on; False where there is none."""
        write = statement(_KEEP_ON, (keep_ms, SPARE_MS, blob_id, blob_id))
        return await self._engine.write(write, alone=()) > 0

    async def info(self, blob_id: str) -> BlobInfo | None:
        """What is known of a whole file; None where there is none, or its time is over."""
        row = await self._engine.row(f"SELECT * FROM blobs WHERE id = ? AND {_WHOLE}", (blob_id,))  # noqa: S608 (a constant)
        return None if row is None else value_of(BlobInfo, row)

    async def ids(self, prefix: str) -> Sequence[str]:
        """Of the whole files whose ids begin so, the one that goes last first."""
        sql = f"SELECT id FROM blobs WHERE substr(id, 1, length(?1)) = ?1 AND {_WHOLE} ORDER BY until DESC, id"  # noqa: S608 (a constant)
        return [row["id"] for row in await self._engine.rows(sql, (prefix,))]

    async def read(self, blob_id: str) -> AsyncIterator[bytes]:
        """The pieces of a file, in order, one in memory at a time."""
        number = 1
        while (piece := await self._piece(blob_id, number)) is not None:
            yield piece
            number += 1

    async def claim(self, blob_id: str) -> BlobInfo | None:
        """Take a whole file for oneself: of many who ask at once, one gets it, and may `read` it and then `remove` it.

        None where there is none, or another has it.
        """
        return await self._engine.write(partial(_claim, blob_id=blob_id), alone=())

    async def remove(self, blob_id: str) -> None:
        """Remove a file. Idempotent."""
        await self._engine.write(statement("DELETE FROM blobs WHERE id = ?", (blob_id,)), alone=())

    async def remove_all(self, prefix: str) -> None:
        """Remove every file whose id begins so, also what is written of one. Idempotent."""
        sql = "DELETE FROM blobs WHERE substr(id, 1, length(?1)) = ?1"
        await self._engine.write(statement(sql, (prefix,)), alone=())

    async def remove_expired(self, limit: int = BATCH_PIECES) -> int:
        """Remove some pieces whose time is over, the oldest first; how many it were. Less than `limit`: no more."""
        sql = _EXPIRED.format(skip_locked=self._engine.dialect.skip_locked)
        return await self._engine.write(statement(sql, (limit,)), is_durable=False, is_urgent=False, alone=())

    async def _piece(self, blob_id: str, number: int) -> bytes | None:
        row = await self._engine.row("SELECT data FROM blobs WHERE id = ? AND number = ?", (blob_id, number))
        return None if row is None else bytes(row["data"])


def _claim(connection: Connection, *, blob_id: str) -> BlobInfo | None:
    sql = f"DELETE FROM blobs WHERE id = ? AND {_WHOLE} RETURNING id, media_type, size_bytes"  # noqa: S608 (a constant)
    row = connection.execute(sql, (blob_id,)).fetchone()
    return None if row is None else value_of(BlobInfo, row)


async def _of_one_size(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    waiting = bytearray()
    async for piece in pieces:
        waiting += piece
        while len(waiting) >= PIECE_BYTES:
            yield bytes(waiting[:PIECE_BYTES])
            del waiting[:PIECE_BYTES]
    if waiting:
        yield bytes(waiting)
