"""Tombstones: they know who was erased, tell nobody, and are there before anything is erased."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.tombstones import Tombstone
from gateway.errors import FileError
from gateway.messages import ConversationRef
from gateway.ops.privacy.home import eraser_of, opened
from gateway.ops.privacy.tombstones import TOMBSTONES_NAME, TombstoneFile
from gateway.store.accounts import SqlAccounts
from gateway.store.tombstones import SqlTombstones
from gateway.store.tries import SqlErasureCodes, SqlOwnerTries


async def test_a_tombstone_knows_its_own_and_tells_nobody(tmp_path: Path) -> None:
    """The names are found again among candidates, and stand nowhere in the file."""
    tombstones = TombstoneFile(tmp_path)
    assert await tombstones.all() == ()
    stone = Tombstone.of(["u_ada", "fake:ada"])
    await tombstones.add([stone])
    (read,) = await TombstoneFile(tmp_path).all()
    assert read.names(["u_ada", "u_ben", "fake:ada", "fake:ad"]) == {"u_ada", "fake:ada"}
    text = (tmp_path / TOMBSTONES_NAME).read_text()
    assert "u_ada" not in text
    assert "fake:ada" not in text
    assert (tmp_path / TOMBSTONES_NAME).stat().st_mode & 0o777 == 0o600


async def test_the_same_person_has_other_digests_each_time() -> None:
    """So two erasures of one person cannot be told to be the same one's."""
    one, other = Tombstone.of(["u_ada"]), Tombstone.of(["u_ada"])
    assert set(one.digests).isdisjoint(other.digests)


async def test_many_at_once_are_all_kept(tmp_path: Path) -> None:
    """And one that is there already is kept once."""
    stones = [Tombstone.of([f"u_{number}"]) for number in range(20)]
    await asyncio.gather(*(TombstoneFile(tmp_path).add([stone]) for stone in (*stones, stones[0])))
    assert {stone.id for stone in await TombstoneFile(tmp_path).all()} == {stone.id for stone in stones}
    assert len(await TombstoneFile(tmp_path).all()) == 20


async def test_where_people_are_kept_in_tables_an_erasure_goes_through_them(tmp_path: Path) -> None:
    """The tombstone is a row, the account goes, and a code of `/forget-me` goes with it. There is no `users/`."""
    async with opened(tmp_path) as store:
        people, tombstones = SqlAccounts(store.engine), SqlTombstones(store.engine)
        eraser = replace(eraser_of(tmp_path, store), identities=people, tombstones=tombstones)
        ada, bob = await people.resolve("fake:ada", "Ada"), await people.resolve("fake:bob", "Bob")
        place = ConversationRef(channel="fake", conversation="c1")
        await SqlErasureCodes(store.engine).put(ada, "ACDEFG", place)
        await SqlOwnerTries(store.engine).take("fake:ada", "t1")
        tombstone = await eraser.schedule(ada)
        assert [each.id for each in await eraser.due()] == [tombstone.id]
        assert (await tombstones.all())[0].names([ada, bob, "fake:ada"]) == {ada, "fake:ada"}
        await eraser.erase(tombstone)
        assert await eraser.due() == []
        assert [user.id for user in await people.users()] == [bob]
        assert await store.engine.rows("SELECT user_id FROM erasure_codes") == []
        assert await store.engine.rows("SELECT account FROM owner_tries") == []
        assert len(await tombstones.all()) == 1
    assert not (tmp_path / TOMBSTONES_NAME).exists()
    assert not (tmp_path / "users").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2, "erasures": []}', '{"version": 1, "erasures": [1]}'])
async def test_a_damaged_file_is_an_error_that_says_what_it_is_for(tmp_path: Path, text: str) -> None:
    """Nothing is written over it."""
    path = tmp_path / TOMBSTONES_NAME
    path.write_text(text)
    with pytest.raises(FileError, match=r"erasures\.json"):
        await TombstoneFile(tmp_path).all()
    with pytest.raises(FileError):
        await TombstoneFile(tmp_path).add([Tombstone.of(["u_ada"])])
    assert path.read_text() == text
