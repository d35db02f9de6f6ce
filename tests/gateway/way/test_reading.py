"""What a turn asks before it is known who writes: used where it was the right question, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.errors import StoreUnavailable
from gateway.messages import ConversationRef
from gateway.people.identity import IdentityMap
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.pipeline.reading import Ahead
from gateway.protocols import MemoryScope
from gateway.store.accounts import SqlAccounts
from gateway.store.links import SqlLinks
from gateway.store.sqlite.engine import SqliteEngine
from tests.gateway.way.conftest import House, settled

LISTENED_S = 60


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


class Watched:
    """The questions of turns, in order, as they begin."""

    def __init__(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.began = asyncio.Event()
        for owner, name, what in (
            (gateway.store.sessions, "active_session", lambda key: key),
            (gateway.history, "window", lambda session, **_: session.id),
            (gateway.memory, "prefetch", lambda scope: scope),
            (gateway.presence, "turn", lambda account, *_: account),
        ):
            monkeypatch.setattr(owner, name, self._watching(name, getattr(owner, name), what))

    def _watching(self, name: str, plain: Any, what: Callable[..., Any]) -> Any:
        def watching(*args: Any, **kwargs: Any) -> Any:
            self.asked.append((name, what(*args, **kwargs)))
            self.began.set()
            return plain(*args, **kwargs)

        return watching

    def take(self, name: str) -> list[Any]:
        """What was asked under this name since the last time."""
        found = [what for each, what in self.asked if each == name]
        self.asked = [each for each in self.asked if each[0] != name]
        return found


async def test_a_turn_asks_ahead_for_what_the_last_one_read_and_uses_it_only_where_it_is_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway() as (gateway, fake):
        await fake.ask("hello there")
        await settled(gateway)
        watched = Watched(gateway, monkeypatch)
        await fake.ask("hello again")
        [session] = set(watched.take("window"))
        [scope] = watched.take("prefetch")
        assert isinstance(scope, MemoryScope)
        assert scope.question == "hello again"
        assert len(watched.take("active_session")) == 1

        await fake.ask("/new")
        assert not watched.take("window"), "a command reads no history"
        watched.take("prefetch")
        await fake.ask("what did I say?")
        guessed, right = watched.take("window")
        assert guessed == session
        assert right != session
        assert [each.session_id for each in watched.take("prefetch")] == [guessed, right]
        assert "hello again" not in str(fake.sent[-1])

        await fake.ask("and I?", user="2")
        assert watched.take("window") == [right], "of another person in the conversation nothing is guessed"
        await fake.ask("and I?", user="2")
        assert watched.take("window") == [right]


async def test_what_was_read_before_a_wait_is_read_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is erased meanwhile must not come back with it."""
    async with house.gateway() as (gateway, fake):
        await fake.ask("hello there")
        await settled(gateway)
        watched = Watched(gateway, monkeypatch)
        async with gateway.presence.absence(["fake:1"], [ConversationRef(channel="fake", conversation="c1")]):
            said = await fake.say("hello again")
            while len(watched.asked) < 4:
                watched.began.clear()
                await asyncio.wait_for(watched.began.wait(), LISTENED_S)
        await fake.answers_to(said)
        assert [len(watched.take(name)) for name in ("active_session", "window", "prefetch", "turn")] == [2, 2, 2, 1]


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
