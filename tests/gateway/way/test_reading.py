"""What a turn asks before it is known who writes: used where it was the right question, and nowhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import StoreUnavailable
from gateway.people.identity import IdentityMap
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.pipeline.reading import Ahead
from gateway.store.accounts import SqlAccounts
from gateway.store.links import SqlLinks
from gateway.store.sqlite.engine import SqliteEngine


async def test_what_is_asked_ahead_is_asked_once_and_given_up_when_it_is_not_needed() -> None:
    asked: list[str] = []
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def question(name: str, *, is_refused: bool = False) -> Any:
        async def ask() -> str:
            asked.append(name)
            await asyncio.sleep(0)
            if is_refused:
                raise StoreUnavailable(name)
            return name

        return ask

    with Ahead() as ahead:
        ahead.begin("a", question("a"))
        ahead.begin("a", question("a again"))
        assert await ahead.get("b", question("b")) == "b"
        assert await ahead.get("a", question("a later")) == "a"
        assert await ahead.get("a", question("a later")) == "a later"
        ahead.begin("c", question("c"))
        ahead.begin("d", question("d", is_refused=True))
        await asyncio.sleep(0)
        ahead.forget()
        assert await ahead.get("c", question("c later")) == "c later"
        ahead.begin("e", question("e", is_refused=True))
        with pytest.raises(StoreUnavailable):
            await ahead.get("e", question("e later"))
        ahead.begin("f", question("f", is_refused=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert asked == ["b", "a", "a later", "c", "d", "c later", "e", "f"]
    del ahead
    await asyncio.sleep(0)
    assert not complaints, "an answer that nobody needs may fail"


async def test_who_was_looked_up_is_not_looked_up_again_where_a_commit_asks_once_more(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "ethos.db")
    await engine.close()  # whoever asks it is refused
    known = LinkedIdentities(SqlAccounts(engine), SqlLinks(engine))
    async with known.present("fake:1", "Ada", "u_1") as user_id:
        assert user_id == "u_1"
    with pytest.raises(StoreUnavailable):
        async with known.present("fake:1", "Ada", None):
            pass
    file = IdentityMap(tmp_path / "users" / "identity-map.json")
    async with LinkedIdentities(file, SqlLinks(engine)).present("fake:1", "Ada", "u_1") as user_id:
        assert user_id != "u_1", "a link may have changed the file, and no commit looks at it"
