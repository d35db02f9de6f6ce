"""What every store of files in pieces must do; see `gateway.store.blobs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.store.blobs import PIECE_BYTES, SPARE_MS, SqlBlobs
from gateway.store.engine import Engine

MINUTE_MS = 60_000


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def broken() -> AsyncIterator[bytes]:
    """As from a sender that goes away."""
    yield b"x" * PIECE_BYTES
    raise ConnectionError


async def put(blobs: SqlBlobs, name: str, *data: bytes, keep_ms: int = MINUTE_MS) -> int:
    return await blobs.put(name, pieces(*data), media_type="text/plain", keep_ms=keep_ms)


async def text(blobs: SqlBlobs, name: str) -> bytes:
    return b"".join([piece async for piece in blobs.read(name)])


async def rows(engine: Engine) -> int:
    [(count,)] = await engine.rows("SELECT count(*) FROM blobs")
    return int(count)


class BlobSuite:
    """Give it fixtures `engine`, an empty database, `blobs` over it, and `pass_ms`: lets time pass there."""

    @pytest.mark.parametrize(
        "size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7], ids=str
    )
    async def test_a_file_comes_back_byte_by_byte(self, blobs: SqlBlobs, size: int) -> None:
        data = (b"\x00\xff\n" * (size // 3 + 1))[:size]
        assert await put(blobs, "a", *(data[at : at + 700_001] for at in range(0, size, 700_001))) == size
        assert await text(blobs, "a") == data
        info = await blobs.info("a")
        assert info is not None
        assert (info.media_type, info.size_bytes) == ("text/plain", size)

    async def test_one_stays_as_long_as_it_is_wanted(self, blobs: SqlBlobs, pass_ms: Callable[[int], None]) -> None:
        await put(blobs, "a", b"tea")
        await put(blobs, "b", b"milk")
        pass_ms(MINUTE_MS - 1_000)
        assert await blobs.keep_on("a", keep_ms=10 * MINUTE_MS)
        pass_ms(5 * MINUTE_MS + SPARE_MS)
        assert await blobs.keep_on("b", keep_ms=MINUTE_MS) is False, "it has gone"
        assert await blobs.keep_on("c", keep_ms=MINUTE_MS) is False

    async def test_one_that_is_not_there_is_none(self, blobs: SqlBlobs) -> None:
        assert await blobs.info("a") is None
        assert await text(blobs, "a") == b""
        assert await blobs.claim("a") is None
        await blobs.remove("a")

    async def test_another_file_of_the_same_id_takes_its_place(self, blobs: SqlBlobs) -> None:
        await put(blobs, "a", b"x" * (2 * PIECE_BYTES))
        await put(blobs, "a", b"short")
        assert await text(blobs, "a") == b"short"

    async def test_one_that_was_cut_short_is_never_there_and_goes(
        self, engine: Engine, blobs: SqlBlobs, pass_ms: Callable[[int], None]
    ) -> None:
        with pytest.raises(ConnectionError):
            await blobs.put("a", broken(), media_type="text/plain", keep_ms=MINUTE_MS)
        assert (await blobs.info("a"), await blobs.claim("a"), await blobs.ids("")) == (None, None, [])
        pass_ms(MINUTE_MS + SPARE_MS)
        await blobs.remove_expired()
        assert await rows(engine) == 0

    async def test_what_is_over_is_not_read_and_goes_in_batches(
        self, engine: Engine, blobs: SqlBlobs, pass_ms: Callable[[int], None]
    ) -> None:
        await put(blobs, "old", b"x" * (5 * PIECE_BYTES))
        await put(blobs, "new", b"y", keep_ms=10 * SPARE_MS)
        pass_ms(MINUTE_MS)
        assert await blobs.info("old") is None
        assert await blobs.claim("old") is None
        pass_ms(SPARE_MS)
        assert [await blobs.remove_expired(4), await blobs.remove_expired(4), await blobs.remove_expired(4)] == [
            4,
            2,
            0,
        ]
        assert await text(blobs, "new") == b"y"
        assert await rows(engine) == 2

    async def test_what_is_put_takes_what_is_over_along(
        self, engine: Engine, blobs: SqlBlobs, pass_ms: Callable[[int], None]
    ) -> None:
        await put(blobs, "old", b"x")
        pass_ms(MINUTE_MS + SPARE_MS)
        await put(blobs, "new", b"y")
        assert await rows(engine) == 2

    async def test_of_many_who_claim_it_one_has_it(self, engine: Engine, blobs: SqlBlobs) -> None:
        await put(blobs, "a", b"text")
        found = await asyncio.gather(*(SqlBlobs(engine).claim("a") for _ in range(8)))
        assert sum(one is not None for one in found) == 1
        assert await text(blobs, "a") == b"text"
        await blobs.remove("a")
        assert await rows(engine) == 0

    async def test_ids_are_listed_by_their_beginning(self, blobs: SqlBlobs, pass_ms: Callable[[int], None]) -> None:
        for name in ("upload/b", "upload/a", "export/a"):
            await put(blobs, name, b"x")
            pass_ms(5)
        assert list(await blobs.ids("upload/")) == ["upload/a", "upload/b"]
