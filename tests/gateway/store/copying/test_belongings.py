"""Files become rows, and rows the same files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from gateway.domain.tombstones import Tombstone
from gateway.ops.belongings import clear, gather, spread
from gateway.ops.moving import opened
from gateway.ops.privacy.tombstones import TombstoneFile
from gateway.people.identity import IdentityMap
from tests.gateway.store.copying.conftest import Empty
from tests.gateway.store.copying.ends import copied

FILES = {
    "MEMORY.md": b"Of all.\n",
    "users/u_ada/USER.md": b"Has a dog. \xff\r\n",
    "users/u_ada/memory-archive.md": b"Long ago.\n",
    "users/u_ada/before-k_1/USER.md": b"Before.\n",
    "users/u_ada/before-k_1/.complete": b"",
    "personalities/pirate/SOUL.md": b"You are a pirate.\n",
    "personalities/pirate/.previous/SOUL.md": b"You are a sailor.\n",
    "personalities/pirate/.previous/.complete": b"",
    "personalities/pirate/MEMORY.md": b"Arr.\n",
}


@pytest.mark.slow
async def test_there_and_back_by_a_server_every_file_is_the_same(empty: Empty) -> None:
    first, second, third = empty("sqlite"), empty("postgres"), empty("sqlite")
    assert isinstance(first, Path)
    assert isinstance(third, Path)
    for name, data in FILES.items():
        (first / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (first / name).write_bytes(data)
    user_id = await IdentityMap(first / "users" / "identity-map.json").resolve("mail:ada@example.org", "Ada")
    tombstone = Tombstone.of(["u_gone"])
    await TombstoneFile(first).add([tombstone])
    async with opened(first) as end:
        await gather(first, end.engine)
        await gather(first, end.engine)  # twice is as once
    await copied(first, second)
    await copied(second, third)
    async with opened(third) as end:
        await spread(third, end.engine)
        await end.engine.write(partial(clear))
        assert await end.engine.rows("SELECT path FROM documents") == []
    assert {name: (third / name).read_bytes() for name in FILES} == FILES
    assert (await IdentityMap(third / "users" / "identity-map.json").known(["mail:ada@example.org"])) == {
        "mail:ada@example.org": user_id
    }
    assert [each.digests for each in await TombstoneFile(third).all()] == [tombstone.digests]
